//! Cases of creating a plan that concern the plan, its source and other plans.

use crate::support;
use checks::{Cluster, admission, refusal};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{annotated, create, healthy, named, other, plan, plan_with, read};

#[rstest]
#[case("True")]
#[case("1")]
#[case("")]
fn create_with_any_other_value_of_skip_webhook_is_not_skipped(#[case] value: &str) {
    let plan = annotated(plan(), "skip-webhook", value);
    assert!(!create(&plan, &Cluster::empty()).is_empty());
}

#[test]
fn s11_who_skips_the_checks_still_meets_no_other_upgrade_and_no_volume_that_is_not_healthy() {
    let mut cluster = healthy(1);
    cluster.nodes = Ok(Vec::new());
    cluster.versions = Ok(Vec::new());
    let skips = || annotated(plan(), "skip-webhook", "true");
    assert!(
        create(&skips(), &cluster).is_empty(),
        "nodes and versions do not matter"
    );
    cluster.plans = Ok(vec![other("running", "NodeUpgrading", Some("True"))]);
    cluster.volumes = Err("no answer".into());
    let errors = create(&skips(), &cluster);
    assert_eq!(errors.len(), 2, "{errors:#?}");
    assert!(errors[0].contains("running"), "{errors:#?}");
    let knows = annotated(skips(), "skip-data-checks", "true");
    assert!(create(&knows, &cluster).is_empty());
    let alone = annotated(plan(), "skip-data-checks", "true");
    assert_eq!(
        create(&alone, &cluster),
        create(&plan(), &cluster),
        "the second word alone says nothing"
    );
}

#[test]
fn create_with_version_and_image_and_the_version_missing_gives_no_version_error() {
    let mut cluster = healthy(1);
    cluster.versions = Ok(Vec::new());
    cluster.images = Ok(vec![support::upgrade_image("iso")]);
    let both = plan_with(json!({"version": "v9", "image": "iso"}));
    assert!(create(&both, &cluster).is_empty());
}

#[test]
fn create_with_neither_version_nor_image_requires_the_version() {
    let refused = "spec.version: Required value: must be set when spec.image is not provided";
    assert_eq!(create(&plan_with(json!({})), &healthy(1)), [refused]);
}

#[test]
fn create_with_the_version_in_another_namespace_is_not_found() {
    let mut cluster = healthy(1);
    cluster.versions = Ok(vec![named("default", support::VERSION, json!({}))]);
    assert_eq!(create(&plan(), &cluster), ["spec.version: Not found: \"v1.8.0\""]);
}

#[test]
fn create_while_another_plan_cleans_up_without_progressing_is_rejected() {
    let mut cluster = healthy(1);
    cluster.plans = Ok(vec![
        other("older", "CleaningUp", Some("False")),
        other("oldest", "CleaningUp", Some("False")),
        other("done", "CleanedUp", Some("False")),
    ]);
    let errors = [
        "spec: Forbidden: upgrade \"older\" is still cleaning up",
        "spec: Forbidden: upgrade \"oldest\" is still cleaning up",
    ];
    assert_eq!(create(&plan(), &cluster), errors);
}

#[test]
fn create_of_a_plan_that_a_cache_already_shows_is_not_blocked_by_itself() {
    let mut cluster = healthy(1);
    cluster.plans = Ok(vec![other("up", "CleaningUp", Some("True"))]);
    assert!(create(&plan(), &cluster).is_empty());
}

#[test]
fn create_with_a_generated_name_is_blocked_by_any_plan_that_progresses() {
    let mut cluster = healthy(1);
    cluster.plans = Ok(vec![other("up", "ISODownloading", Some("True"))]);
    let mut plan = plan();
    plan.metadata.name = None;
    plan.metadata.generate_name = Some("up-".to_owned());
    let refused = "spec: Forbidden: another upgrade \"up\" is in progress";
    assert_eq!(create(&plan, &cluster), [refused]);
}

#[test]
fn create_names_only_the_first_other_plan_that_progresses() {
    let mut cluster = healthy(1);
    let running = |name| other(name, "NodeUpgrading", Some("True"));
    cluster.plans = Ok(vec![running("a"), running("b")]);
    assert_eq!(
        create(&plan(), &cluster),
        ["spec: Forbidden: another upgrade \"a\" is in progress"]
    );
}

#[rstest]
#[case(
    "ns/name",
    "spec.image: Invalid value: \"ns/name\": must be a plain VMImage name without namespace prefix"
)]
#[case("missing", "spec.image: Not found: \"missing\"")]
#[case("", "spec.image: Not found: \"\"")]
#[case("elsewhere", "spec.image: Not found: \"elsewhere\"")]
fn create_with_an_image_that_cannot_be_is_rejected(#[case] image: &str, #[case] refused: &str) {
    let mut cluster = healthy(1);
    cluster.images = Ok(vec![named("default", "elsewhere", json!({}))]);
    assert_eq!(create(&plan_with(json!({"image": image})), &cluster), [refused]);
}

#[test]
fn create_with_an_image_that_is_not_imported_is_allowed() {
    let mut cluster = healthy(1);
    let mut image = support::upgrade_image("iso");
    image.status = read(json!({"progress": 3, "conditions": [{"type": "Imported", "status": "Unknown"}]}));
    cluster.images = Ok(vec![image]);
    assert!(create(&plan_with(json!({"image": "iso"})), &cluster).is_empty());
}

#[test]
fn create_with_unknown_pause_nodes_gives_an_error_each_at_its_index() {
    let pausing = |names: Value| plan_with(json!({"version": "v1.8.0", "nodeUpgradeOption": {"pauseNodes": names}}));
    let errors = create(&pausing(json!(["node-1", "ghost"])), &healthy(1));
    assert_eq!(errors, ["spec.nodeUpgradeOption.pauseNodes[1]: Not found: \"ghost\""]);
    let errors = create(&pausing(json!(["a", "node-1", "b"])), &healthy(1));
    let both = [
        "spec.nodeUpgradeOption.pauseNodes[0]: Not found: \"a\"",
        "spec.nodeUpgradeOption.pauseNodes[2]: Not found: \"b\"",
    ];
    assert_eq!(errors, both);
    assert!(create(&pausing(json!(["node-1"])), &healthy(1)).is_empty());
}

#[test]
fn create_with_several_failures_reports_all_in_the_order_of_the_table_as_one_422() {
    let mut cluster = healthy(3);
    cluster.versions = Ok(Vec::new());
    cluster.plans = Ok(vec![other("older", "CleaningUp", Some("True"))]);
    let mut node = support::node(1);
    node["spec"]["unschedulable"] = json!(true);
    cluster.nodes.as_mut().unwrap()[0] = read(node);
    cluster.rancher_clusters = Ok(Vec::new());
    cluster.machines.as_mut().unwrap()[0].status.phase = Some("Deleting".to_owned());
    cluster.machines.as_mut().unwrap()[1].status.node_ref = None;
    cluster.volumes = Ok(vec![support::volume("v", 3, "attached", "degraded")].into());
    cluster.vm_backups = Ok(vec![named("default", "b", json!({}))].into());
    cluster.backup_schedules = Ok(vec![named("default", "s", json!({}))].into());
    cluster.vmis = Ok(vec![support::vmi(
        "vm",
        json!({"domain": {"devices": {"gpus": [{"name": "gpu"}]}}}),
    )]
    .into());
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    cluster.managed_charts = Ok(vec![named("fleet-local", "harvester", unready)].into());
    cluster.addons = Ok(vec![named("kube-system", "descheduler", json!({"spec": {"enabled": true}}))].into());
    cluster.v1_upgrades = Ok(vec![named("harvester-system", "hvst-upgrade-x", json!({}))].into());
    let mut plan = plan_with(json!({"version": "v1.8.0", "nodeUpgradeOption": {"pauseNodes": ["ghost"]}}));
    plan.metadata.name = Some("u".repeat(64));
    let long = "u".repeat(64);

    let errors = admission::create(&plan, &cluster);
    let expected = [
        "spec.version: Not found: \"v1.8.0\"",
        "spec: Forbidden: another upgrade \"older\" is in progress",
        "spec: Forbidden: node \"node-1\" is unschedulable",
        "spec: Forbidden: cluster not found",
        "spec: Forbidden: machine fleet-local/machine-1 is not running",
        "spec: Forbidden: machine fleet-local/machine-2 has no node reference",
        "spec: Forbidden: there are degraded volumes, please check all volumes are healthy: default/v-data",
        "spec: Forbidden: please wait until all vmbackups are stopped, for example default/b is under processing",
        "spec: Forbidden: please suspend all backup/snapshot schedule, for example default/s is running",
        "spec: Forbidden: there are non-live migratable VMs that need to be shut off before initiating the upgrade: default/vm; or set spec.restoreVM to true: then VMs that cannot move are shut down for the upgrade of their node and started again",
        "spec: Forbidden: managed chart harvester is not ready, please wait for it to be ready or fix it",
        "spec: Forbidden: addon kube-system/descheduler is enabled but still on status , please wait for it to be ready or fix it",
        "spec: Forbidden: upgrade \"older\" is still cleaning up",
        "spec.nodeUpgradeOption.pauseNodes[0]: Not found: \"ghost\"",
        "spec: Forbidden: a V1 upgrade (upgrades.harvesterhci.io) \"hvst-upgrade-x\" is in progress, please wait for it to end",
        &format!(
            "metadata.name: Invalid value: \"{long}\": must be no more than 63 characters: the objects of the upgrade carry the plan's name as a label, and a label has at most 63"
        ),
    ];
    assert_eq!(support::texts(&errors), expected);
    let status = refusal::status(&long, &errors).unwrap();
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert_eq!(status.details.unwrap().causes.len(), expected.len());
}

#[test]
fn create_without_any_list_reports_each_list_once_in_the_message_and_goes_on() {
    let cluster = Cluster::unknown("no route");
    let plan = plan_with(json!({"version": "v1.8.0", "nodeUpgradeOption": {"pauseNodes": ["ghost"]}}));
    let errors = create(&plan, &cluster);
    assert_eq!(
        errors[0],
        "spec.version: Internal error: failed to list versions: no route"
    );
    assert!(errors.contains(&"[]: Internal error: failed to list nodes: no route".to_owned()));
    let paused = "spec.nodeUpgradeOption.pauseNodes: Internal error: failed to list nodes: no route";
    assert!(errors.contains(&paused.to_owned()));
    // Every check but those on the two images, which are not set, and the name fails by itself.
    assert_eq!(errors.len(), admission::CREATE.len() - 3);
    let message = support::message(&plan, &cluster);
    assert_eq!(message.matches("[]: Internal error: failed to list nodes").count(), 1);
}

// Ours.

#[rstest]
#[case(json!({}), false)]
#[case(json!({"labels": {"harvesterhci.io/upgradeState": "UpgradingNodes"}}), false)]
#[case(json!({"labels": {"harvesterhci.io/upgradeState": "Succeeded"}}), true)]
#[case(json!({"labels": {"harvesterhci.io/upgradeState": "Failed"}}), true)]
#[case(json!({"completed": "Unknown"}), false)]
#[case(json!({"completed": "True"}), true)]
#[case(json!({"completed": "False"}), true)]
fn create_while_a_v1_upgrade_runs_is_rejected(#[case] upgrade: Value, #[case] allowed: bool) {
    let object = json!({
        "metadata": {"name": "hvst-upgrade-x", "namespace": "harvester-system", "labels": upgrade["labels"]},
        "status": {"conditions": upgrade.get("completed").map(|status| json!([{"type": "Completed", "status": status}]))},
    });
    let mut cluster = healthy(1);
    cluster.v1_upgrades = Ok(vec![read(object)].into());
    let errors = create(&plan(), &cluster);
    assert_eq!(errors.is_empty(), allowed, "{errors:?}");
    assert_eq!(errors.concat().contains("hvst-upgrade-x"), !allowed);
}

#[test]
fn create_with_a_name_that_does_not_fit_a_label_is_refused_with_the_reason() {
    let of = |name: Option<usize>, prefix: Option<usize>| {
        let mut plan = plan();
        plan.metadata.name = name.map(|length| "a".repeat(length));
        plan.metadata.generate_name = prefix.map(|length| "a".repeat(length));
        create(&plan, &healthy(1))
    };
    assert!(of(Some(63), None).is_empty());
    assert!(of(None, Some(58)).is_empty());
    assert!(of(Some(63), Some(60)).is_empty(), "a name was generated already");
    let refused = of(Some(64), None).concat();
    assert!(
        refused.starts_with("metadata.name: Invalid value: ") && refused.contains("as a label"),
        "{refused}"
    );
    let refused = of(None, Some(59)).concat();
    assert!(
        refused.starts_with("metadata.generateName: Invalid value: "),
        "{refused}"
    );
    assert!(refused.contains("must be no more than 58 characters"), "{refused}");
}

#[rstest]
#[case("up-1", true)]
#[case("hvst-upgrade-x8222", true)]
#[case("1.8-upgrade", false)]
#[case("2026-upgrade", false)]
#[case("to-v1.8.0", false)]
fn create_with_a_name_that_no_service_could_be_named_after_is_refused(#[case] name: &str, #[case] allowed: bool) {
    let mut plan = plan();
    plan.metadata.name = Some(name.to_owned());
    let errors = create(&plan, &healthy(1));
    assert_eq!(errors.is_empty(), allowed, "{errors:?}");
    assert_eq!(errors.concat().contains("is named after the plan"), !allowed);
}

#[test]
fn s07_create_without_a_checksum_of_the_iso_is_answered_with_a_warning_and_not_refused() {
    let mut cluster = healthy(1);
    let version = |checksum: &str| {
        let spec = json!({"isoURL": "http://x/y.iso", "isoChecksum": checksum});
        Ok(vec![named("harvester-system", support::VERSION, json!({"spec": spec}))])
    };
    cluster.versions = version("");
    assert!(create(&plan(), &cluster).is_empty());
    let warned = admission::warnings(&plan(), &cluster);
    assert!(
        warned[0].starts_with("spec.isoChecksum of Version v1.8.0 is not set"),
        "{warned:?}"
    );
    cluster.versions = version("ab12");
    assert!(admission::warnings(&plan(), &cluster).is_empty());
    cluster.images = Ok(vec![support::upgrade_image("iso")]);
    let own = plan_with(json!({"image": "iso"}));
    let warned = admission::warnings(&own, &cluster);
    assert!(
        warned[0].starts_with("spec.checksum of VirtualMachineImage iso is not set"),
        "{warned:?}"
    );
}
