//! Which disruption budgets keep VMs on a node: those that guard a migration off it.

use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use rstest::rstest;
use rules::evacuation::{budgets, remaining, retries, retry_note};
use serde_json::{Value, json};

use crate::read;

/// A budget that KubeVirt raised for migration kubevirt-evacuation-1 of VM web.
fn raised() -> Value {
    json!({
        "metadata": {"name": "kubevirt-disruption-budget-x", "namespace": "default",
            "labels": {"kubevirt.io/migrationName": "kubevirt-evacuation-1"},
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web", "uid": "u"}]},
        "spec": {"minAvailable": 2},
    })
}

fn migration(fields: Value) -> Value {
    let mut migration = json!({
        "metadata": {"name": "kubevirt-evacuation-1", "namespace": "default"}, "spec": {"vmiName": "web"}, "status": {}});
    json_merge(&mut migration, fields);
    migration
}

fn instance(node: &str) -> Value {
    json!({"metadata": {"name": "web", "namespace": "default", "labels": {"kubevirt.io/nodeName": node}},
        "status": {"phase": "Running"}})
}

fn json_merge(into: &mut Value, fields: Value) {
    match (into, fields) {
        (Value::Object(into), Value::Object(fields)) => {
            for (key, value) in fields {
                json_merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, value) => *into = value,
    }
}

fn kept(budget: Value, migrations: &[Value], instances: &[Value]) -> bool {
    let budget: Arc<PodDisruptionBudget> = Arc::new(read(budget));
    let migrations: Vec<_> = migrations.iter().map(|object| Arc::new(read(object.clone()))).collect();
    let instances: Vec<_> = instances.iter().map(|object| Arc::new(read(object.clone()))).collect();
    let found = budgets("node-1", &[budget], &migrations, &instances);
    assert!(
        found
            .iter()
            .all(|waiting| waiting.what == api::ProgramWait::EvacuationBudget)
    );
    !found.is_empty()
}

#[rstest]
#[case::evacuates_this_node(json!({"metadata": {"annotations": {"kubevirt.io/evacuationMigration": "node-1"}}}), true)]
#[case::evacuates_another(json!({"metadata": {"annotations": {"kubevirt.io/evacuationMigration": "node-2"}}}), false)]
#[case::leaves_this_node(json!({"status": {"migrationState": {"sourceNode": "node-1"}}}), true)]
#[case::leaves_another(json!({"status": {"migrationState": {"sourceNode": "node-2"}}}), false)]
#[case::of_another_namespace(json!({"metadata": {"namespace": "other", "annotations": {"kubevirt.io/evacuationMigration": "node-1"}}}), false)]
#[case::of_another_name(json!({"metadata": {"name": "kubevirt-evacuation-2", "annotations": {"kubevirt.io/evacuationMigration": "node-1"}}}), false)]
fn a_budget_concerns_the_node_that_its_migration_leaves(#[case] fields: Value, #[case] expected: bool) {
    assert_eq!(kept(raised(), &[migration(fields)], &[]), expected);
}

#[test]
fn a_budget_concerns_the_node_of_its_instance() {
    assert!(kept(raised(), &[], &[instance("node-1")]));
    assert!(!kept(raised(), &[], &[instance("node-2")]));
    let mut left = instance("node-2");
    left["status"]["migrationState"] = json!({"sourceNode": "node-1"});
    assert!(kept(raised(), &[], &[left]));
    let mut other = instance("node-1");
    other["metadata"]["namespace"] = json!("other");
    assert!(!kept(raised(), &[], &[other]));
    let mut named_otherwise = instance("node-1");
    named_otherwise["metadata"]["name"] = json!("db");
    assert!(!kept(raised(), &[], &[named_otherwise]));
    let mut owned_by_pod = raised();
    owned_by_pod["metadata"]["ownerReferences"][0]["kind"] = json!("Pod");
    assert!(!kept(owned_by_pod, &[], &[instance("node-1")]));
}

#[test]
fn only_a_raised_budget_of_an_evacuation_guards_one() {
    let here = [instance("node-1")];
    for (least, expected) in [
        (json!(1), false),
        (json!(2), true),
        (json!("50%"), false),
        (json!(null), false),
    ] {
        let mut budget = raised();
        budget["spec"]["minAvailable"] = least.clone();
        assert_eq!(kept(budget, &[], &here), expected, "{least}");
    }
    let mut by_user = raised();
    by_user["metadata"]["labels"]["kubevirt.io/migrationName"] = json!("my-migration");
    assert!(!kept(by_user, &[], &here));
    let mut unlabelled = raised();
    unlabelled["metadata"]["labels"] = json!({});
    assert!(!kept(unlabelled, &[], &here));
}

#[test]
fn older_kubevirt_names_the_budget_after_the_migration() {
    let budget = json!({"metadata": {"name": "kubevirt-migration-pdb-kubevirt-evacuation-1", "namespace": "default"}});
    let leaves = migration(json!({"status": {"migrationState": {"sourceNode": "node-1"}}}));
    assert!(kept(budget.clone(), &[leaves], &[]));
    let mut other = migration(json!({"status": {"migrationState": {"sourceNode": "node-1"}}}));
    other["metadata"]["name"] = json!("kubevirt-evacuation-10");
    assert!(!kept(budget, &[other], &[]));
}

#[test]
fn tries_are_counted_for_the_plan_that_made_them() {
    let note = retry_note("up", 2);
    let metadata = read(note["metadata"].clone());
    assert_eq!(retries(&metadata, "up"), 2);
    assert_eq!(retries(&metadata, "other"), 0);
    assert_eq!(retries(&Default::default(), "up"), 0);
    assert_eq!(retries(&Default::default(), ""), 0);
}

#[test]
fn on_a_single_node_vms_are_named_until_they_are_down() {
    let mut going = instance("node-1");
    going["metadata"]["name"] = json!("going");
    going["metadata"]["deletionTimestamp"] = json!("2026-03-13T04:00:00Z");
    let all = [instance("node-1"), going, instance("node-2")];
    let all: Vec<_> = all.into_iter().map(|object| Arc::new(read(object))).collect();
    let found: Vec<(String, String)> = remaining("node-1", &all)
        .into_iter()
        .map(|one| (one.object, one.message))
        .collect();
    let expected = [
        (
            "VirtualMachineInstance default/web",
            "VM default/web still runs, and there is no other node for it: stop it",
        ),
        (
            "VirtualMachineInstance default/going",
            "VM default/going is shutting down",
        ),
    ];
    assert_eq!(
        found,
        expected.map(|(object, message)| (object.to_owned(), message.to_owned()))
    );
}
