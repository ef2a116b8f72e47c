//! What [`super::decide`] and [`super::budgets()`] make of what KubeVirt reports.

use serde_json::{Value, json};

use super::{budgets::MIGRATION_NAME_LABEL, *};

const NOW: &str = "2026-03-13T04:30:00Z";

fn objects<K: serde::de::DeserializeOwned>(values: &[Value]) -> Vec<Arc<K>> {
    values
        .iter()
        .map(|value| Arc::new(serde_json::from_value(value.clone()).unwrap()))
        .collect()
}

fn instance(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": {labels::VMI_NODE: "node-1"}},
        "status": {"phase": "Running", "nodeName": "node-1"},
    })
}

fn migration(number: u32, phase: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("kubevirt-evacuation-{number}"), "namespace": "default", "uid": format!("u{number}"),
            "creationTimestamp": format!("2026-03-13T04:0{number}:00Z"),
        },
        "spec": {"vmiName": "web"},
        "status": {"phase": phase},
    })
}

fn failed(number: u32) -> Value {
    let mut migration = migration(number, "Failed");
    migration["status"]["migrationState"] =
        json!({"failureReason": "guest does not converge", "endTimestamp": "2026-03-13T04:29:45Z"});
    migration
}

struct Seen {
    policy: OnMigrationFailure,
    instances: Vec<Value>,
    migrations: Vec<Value>,
    pods: Vec<Value>,
    began: Option<&'static str>,
    tainted: bool,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            policy: OnMigrationFailure::Block,
            instances: vec![instance("web")],
            migrations: Vec::new(),
            pods: Vec::new(),
            began: None,
            tainted: true,
        }
    }
}

impl Seen {
    fn decide(&self) -> Decision {
        decide(&Evacuation {
            now: NOW.parse().unwrap(),
            plan: "up",
            node: "node-1",
            policy: self.policy,
            began: self.began.map(|text| text.parse().unwrap()),
            instances: &objects(&self.instances),
            migrations: &objects(&self.migrations),
            target_pods: &objects(&self.pods),
            tainted: self.tainted,
        })
    }

    fn message(&self) -> String {
        let decision = self.decide();
        assert_eq!(decision.waiting.len(), 1, "{decision:?}");
        decision.waiting[0].message.clone()
    }
}

/// All VMs have left.
fn no_vm_left() -> Decision {
    Decision {
        left: Some(0),
        ..Decision::default()
    }
}

#[test]
fn vms_of_other_nodes_and_those_that_have_ended_are_not_waited_for() {
    let mut elsewhere = instance("a");
    elsewhere["metadata"]["labels"][labels::VMI_NODE] = json!("node-2");
    let mut zombie = instance("b");
    zombie["status"]["phase"] = json!("Failed");
    let mut done = instance("c");
    done["status"]["phase"] = json!("Succeeded");
    let observed = Seen {
        instances: vec![elsewhere, zombie, done],
        ..Seen::default()
    };
    assert_eq!(observed.decide(), no_vm_left());
}

#[test]
fn a_vm_is_waited_for_with_the_phase_of_its_migration_and_the_reason() {
    let mut observed = Seen {
        migrations: vec![migration(1, "Scheduling")],
        ..Seen::default()
    };
    observed.pods = vec![json!({
        "metadata": {"name": "virt-launcher-web-x", "namespace": "default", "labels": {MIGRATION_JOB_LABEL: "u1"}},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]},
    })];
    assert_eq!(
        observed.message(),
        "VM default/web is being moved: migration kubevirt-evacuation-1 is Scheduling, no node takes it: 0/3 nodes are \
         available"
    );
    assert_eq!(Seen::default().message(), "VM default/web has not begun to move");
    let mut stuck = instance("web");
    stuck["status"]["conditions"] =
        json!([{"type": "LiveMigratable", "status": "False", "message": "cannot migrate VMI: host device"}]);
    let stuck = Seen {
        instances: vec![stuck],
        ..Seen::default()
    };
    let said = "VM default/web cannot be moved, KubeVirt says: cannot migrate VMI: host device. It stays until";
    assert!(stuck.message().starts_with(said), "{}", stuck.message());
}

#[test]
fn block_names_the_vm_and_the_error_and_does_nothing() {
    let observed = Seen {
        migrations: vec![failed(1)],
        ..Seen::default()
    };
    assert!(observed.decide().acts.is_empty());
    let message = observed.message();
    assert!(
        message.starts_with(
            "VM default/web could not be moved: migration kubevirt-evacuation-1 failed: guest does not converge."
        ),
        "{message}"
    );
}

#[test]
fn a_migration_that_kubevirt_tries_again_by_itself_is_waited_for_with_what_came_before() {
    let observed = Seen {
        migrations: vec![failed(1), failed(2), migration(3, "Running")],
        ..Seen::default()
    };
    assert_eq!(
        observed.message(),
        "VM default/web could not be moved 2 times: migration kubevirt-evacuation-2 failed: guest does not converge; \
         now is being moved: migration kubevirt-evacuation-3 is Running"
    );
}

#[test]
fn failures_from_before_the_upgrade_of_the_node_say_nothing_about_it() {
    let observed = Seen {
        policy: OnMigrationFailure::Stop,
        migrations: vec![failed(1)],
        began: Some("2026-03-13T04:10:00Z"),
        ..Seen::default()
    };
    assert_eq!(observed.message(), "VM default/web has not begun to move");
    assert!(observed.decide().acts.is_empty());
}

#[test]
fn a_migration_that_a_user_started_and_that_failed_stops_nothing() {
    let mut own = failed(1);
    own["metadata"]["name"] = json!("my-own");
    let observed = Seen {
        policy: OnMigrationFailure::Stop,
        migrations: vec![own],
        ..Seen::default()
    };
    assert!(observed.decide().acts.is_empty());
}

#[test]
fn retry_waits_longer_each_time_and_at_last_for_a_user() {
    let mut observed = Seen {
        policy: OnMigrationFailure::Retry,
        migrations: vec![failed(1)],
        ..Seen::default()
    };
    // It failed at 04:29:45, it is 04:30:00, and the first pause is 30 s.
    let decision = observed.decide();
    assert!(decision.acts.is_empty());
    assert_eq!(decision.look_again, Some("2026-03-13T04:30:15Z".parse().unwrap()));

    observed.migrations[0]["status"]["migrationState"]["endTimestamp"] = json!("2026-03-13T04:29:30Z");
    let act = Act::Retry {
        namespace: "default".into(),
        name: "web".into(),
        number: 1,
        migrations: vec!["kubevirt-evacuation-1".into()],
    };
    assert_eq!(observed.decide().acts, [act]);

    observed.instances[0]["metadata"]["annotations"] = json!({annotations::EVACUATION_RETRIES: "up=1"});
    let decision = observed.decide();
    assert_eq!(
        (decision.acts.len(), decision.look_again),
        (0, Some("2026-03-13T04:30:30Z".parse().unwrap()))
    );

    observed.instances[0]["metadata"]["annotations"] = json!({annotations::EVACUATION_RETRIES: "up=3"});
    let decision = observed.decide();
    assert!(decision.acts.is_empty() && decision.look_again.is_none());
    assert!(
        observed.message().contains("also after 3 retries"),
        "{}",
        observed.message()
    );

    // What an earlier plan tried does not count.
    observed.instances[0]["metadata"]["annotations"] = json!({annotations::EVACUATION_RETRIES: "other=3"});
    assert_eq!(observed.decide().acts.len(), 1);
}

#[test]
fn stop_asks_to_stop_the_vm_unless_it_is_being_copied_right_now() {
    let mut observed = Seen {
        policy: OnMigrationFailure::Stop,
        migrations: vec![failed(1)],
        ..Seen::default()
    };
    let act = Act::Stop {
        namespace: "default".into(),
        name: "web".into(),
        restore: true,
        why: "migration kubevirt-evacuation-1 failed: guest does not converge".into(),
    };
    assert_eq!(observed.decide().acts, std::slice::from_ref(&act));
    // KubeVirt queues the next try at once; a try that only waits does not keep the VM.
    observed.migrations.push(migration(2, "Pending"));
    assert_eq!(observed.decide().acts, [act]);
    observed.migrations[1] = migration(2, "Running");
    assert!(observed.decide().acts.is_empty());
    // It is already on its way down.
    observed.migrations.pop();
    observed.instances[0]["metadata"]["deletionTimestamp"] = json!(NOW);
    assert_eq!(observed.message(), "VM default/web is shutting down");
    assert!(observed.decide().acts.is_empty());
}

#[test]
fn the_reason_may_stand_on_the_instance_only() {
    let mut observed = Seen {
        migrations: vec![migration(1, "Failed")],
        ..Seen::default()
    };
    assert!(observed.message().contains("KubeVirt gives no reason"));
    observed.instances[0]["status"]["migrationState"] =
        json!({"failed": true, "migrationUid": "u1", "failureReason": "target pod died"});
    assert!(
        observed.message().contains("failed: target pod died"),
        "{}",
        observed.message()
    );
    observed.instances[0]["status"]["migrationState"]["migrationUid"] = json!("another");
    assert!(observed.message().contains("KubeVirt gives no reason"));
}

fn budget(name: &str, labels: &Value, least: i32) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": labels,
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "web", "uid": "w"}]},
        "spec": {"minAvailable": least},
    })
}

#[test]
fn only_budgets_of_migrations_off_this_node_are_waited_for() {
    let mut here = migration(1, "Succeeded");
    here["metadata"]["annotations"] = json!({EVACUATION_ANNOTATION: "node-1"});
    let mut there = migration(2, "Running");
    there["metadata"]["annotations"] = json!({EVACUATION_ANNOTATION: "node-2"});
    there["spec"]["vmiName"] = json!("other");
    let mut moved = instance("web");
    moved["metadata"]["labels"][labels::VMI_NODE] = json!("node-3");
    let mut of_other = budget("kubevirt-migration-pdb-kubevirt-evacuation-2", &json!({}), 2);
    of_other["metadata"]["ownerReferences"][0]["name"] = json!("other");
    let all = [
        budget("kubevirt-migration-pdb-kubevirt-evacuation-1", &json!({}), 2),
        of_other,
        budget("kubevirt-disruption-budget-abc", &json!({}), 1),
        budget("somebody-elses", &json!({}), 3),
    ];
    let names = |budgets_seen: &[Value], migrations: &[Value], instances: &[Value]| -> Vec<String> {
        let found = budgets(
            "node-1",
            &objects(budgets_seen),
            &objects(migrations),
            &objects(instances),
        );
        found.into_iter().map(|waiting| waiting.object).collect()
    };
    let expected = ["PodDisruptionBudget default/kubevirt-migration-pdb-kubevirt-evacuation-1"];
    assert_eq!(names(&all, &[here.clone(), there.clone()], &[moved.clone()]), expected);
    // The migration object may be gone; the VM remembers where it came from.
    moved["status"]["migrationState"] = json!({"sourceNode": "node-1"});
    assert_eq!(names(&all, &[there.clone()], &[moved.clone()]), expected);
    // Newer KubeVirt raises and labels the VM's own budget.
    let own = |least| {
        budget(
            "kubevirt-disruption-budget-abc",
            &json!({MIGRATION_NAME_LABEL: "kubevirt-evacuation-1"}),
            least,
        )
    };
    assert_eq!(names(&[own(2)], &[here.clone()], &[moved.clone()]).len(), 1);
    assert!(names(&[own(1)], &[here], &[moved]).is_empty());
}

fn denied(name: &str) -> Value {
    let mut instance = instance(name);
    instance["status"]["conditions"] =
        json!([{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}]);
    instance
}

#[test]
fn r18_a_vm_that_kubevirt_will_not_migrate_is_stopped_only_if_the_plan_says_so() {
    for policy in [OnMigrationFailure::Block, OnMigrationFailure::Retry] {
        let observed = Seen {
            policy,
            instances: vec![denied("web")],
            ..Seen::default()
        };
        assert!(observed.decide().acts.is_empty(), "{policy:?}");
        let message = observed.message();
        for part in [
            "DisksNotLiveMigratable",
            "until spec.onMigrationFailure of the plan is Stop",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
    let observed = Seen {
        policy: OnMigrationFailure::Stop,
        instances: vec![denied("web")],
        ..Seen::default()
    };
    let [
        Act::Stop {
            name,
            restore: true,
            why,
            ..
        },
    ] = &observed.decide().acts[..]
    else {
        panic!("{:?}", observed.decide());
    };
    assert_eq!((name.as_str(), why.as_str()), ("web", "DisksNotLiveMigratable"));
}

#[test]
fn r56_a_taint_that_a_controller_removed_is_set_again_while_vms_are_left() {
    let mut observed = Seen {
        tainted: false,
        ..Seen::default()
    };
    let decision = observed.decide();
    assert_eq!(decision.acts, [Act::Taint]);
    assert_eq!(
        (decision.waiting[0].what, decision.waiting[0].object.as_str()),
        (api::ProgramWait::DrainTaint, "Node node-1")
    );
    observed.instances = Vec::new();
    assert_eq!(observed.decide(), no_vm_left(), "no VM is left to be moved");
}

#[test]
fn r33_of_many_vms_those_with_errors_come_first_and_those_that_wait_are_counted() {
    let mut instances: Vec<Value> = (0..250).map(|number| instance(&format!("vm-{number:03}"))).collect();
    instances.push(instance("web"));
    instances.push(denied("zz"));
    let observed = Seen {
        instances,
        migrations: vec![migration(1, "Running")],
        ..Seen::default()
    };
    let decision = observed.decide();
    assert_eq!(decision.left, Some(252));
    let said: Vec<&str> = decision
        .waiting
        .iter()
        .map(|waiting| waiting.message.as_str())
        .collect();
    assert_eq!(said.len(), 1 + 1 + NAMED_IDLE + 1, "{said:?}");
    assert!(said[0].starts_with("VM default/zz cannot be moved"), "{said:?}");
    assert!(said[1].starts_with("VM default/web is being moved"), "{said:?}");
    assert_eq!(said[2], "VM default/vm-000 has not begun to move");
    assert!(said[22].starts_with("230 more VMs have not begun to move"), "{said:?}");
}
