//! What is said of a VM that is to leave its node, word for word, and what is done about it.

use std::sync::Arc;

use api::OnMigrationFailure;
use rules::evacuation::{Act, Decision, Evacuation, decide};
use serde_json::{Value, json};

use crate::read;

/// At half past four, with one VM `default/web` on node-1.
struct World {
    policy: OnMigrationFailure,
    began: Option<&'static str>,
    instances: Vec<Value>,
    migrations: Vec<Value>,
    pods: Vec<Value>,
}

fn instance(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "labels": {"kubevirt.io/nodeName": "node-1"}},
        "status": {"phase": "Running"}})
}

/// A migration of `web`, made so many minutes after four.
fn migration(minute: u32, phase: &str) -> Value {
    json!({
        "metadata": {"name": format!("kubevirt-evacuation-{minute}"), "namespace": "default", "uid": format!("u{minute}"),
            "creationTimestamp": format!("2026-03-13T04:{minute:02}:00Z")},
        "spec": {"vmiName": "web"},
        "status": {"phase": phase},
    })
}

impl World {
    fn new(policy: OnMigrationFailure, migrations: Vec<Value>) -> Self {
        Self {
            policy,
            began: Some("2026-03-13T04:00:00Z"),
            instances: vec![instance("web")],
            migrations,
            pods: Vec::new(),
        }
    }

    fn decide(&self) -> Decision {
        fn all<K: serde::de::DeserializeOwned>(objects: &[Value]) -> Vec<Arc<K>> {
            objects.iter().map(|object| Arc::new(read(object.clone()))).collect()
        }
        decide(&Evacuation {
            now: "2026-03-13T04:30:00Z".parse().unwrap(),
            plan: "up",
            node: "node-1",
            policy: self.policy,
            began: self.began.map(|text| text.parse().unwrap()),
            instances: &all(&self.instances),
            migrations: &all(&self.migrations),
            target_pods: &all(&self.pods),
            tainted: true,
        })
    }

    fn says(&self) -> String {
        self.decide().waiting[0].message.clone()
    }
}

const FAILED: &str =
    "VM default/web could not be moved: migration kubevirt-evacuation-1 failed, KubeVirt gives no reason";

#[test]
fn stop_says_that_the_vm_is_being_stopped_and_why() {
    let world = World::new(OnMigrationFailure::Stop, vec![migration(1, "Failed")]);
    assert_eq!(
        world.says(),
        format!("{FAILED}; it is being stopped, as spec.onMigrationFailure requires")
    );
    let why = "migration kubevirt-evacuation-1 failed, KubeVirt gives no reason".to_owned();
    let stop = Act::Stop {
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        restore: true,
        why,
    };
    assert_eq!(world.decide().acts, [stop]);
}

#[test]
fn retry_says_which_try_follows_before_its_pause_is_over_and_after() {
    let due = World::new(OnMigrationFailure::Retry, vec![migration(1, "Failed")]);
    assert_eq!(due.says(), format!("{FAILED}; try 1 of 3 follows"));
    let again = Act::Retry {
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        number: 1,
        migrations: vec!["kubevirt-evacuation-1".to_owned()],
    };
    assert_eq!((due.decide().acts, due.decide().look_again), (vec![again], None));
    // When it failed is unknown, so the pause counts from when it was made.
    let mut pausing = World::new(OnMigrationFailure::Retry, vec![migration(29, "Failed")]);
    pausing.migrations[0]["metadata"]["creationTimestamp"] = json!("2026-03-13T04:29:50Z");
    pausing.migrations[0]["metadata"]["name"] = json!("kubevirt-evacuation-1");
    assert_eq!(pausing.says(), format!("{FAILED}; try 1 of 3 follows"));
    let decision = pausing.decide();
    assert_eq!(
        (decision.acts, decision.look_again),
        (vec![], Some("2026-03-13T04:30:20Z".parse().unwrap()))
    );
}

#[test]
fn a_failure_counts_from_the_moment_that_the_upgrade_of_the_node_began() {
    let mut world = World::new(OnMigrationFailure::Block, vec![migration(1, "Failed")]);
    for (began, counts) in [
        ("2026-03-13T04:00:59Z", true),
        ("2026-03-13T04:01:00Z", true),
        ("2026-03-13T04:01:01Z", false),
    ] {
        world.began = Some(began);
        let expected = match counts {
            true => format!(
                "{FAILED}. It stays until it is migrated or stopped, or until spec.onMigrationFailure of the plan is Retry or Stop"
            ),
            false => "VM default/web has not begun to move".to_owned(),
        };
        assert_eq!(world.says(), expected, "{began}");
    }
}

#[test]
fn the_newest_of_several_migrations_is_reported() {
    let world = World::new(
        OnMigrationFailure::Block,
        vec![migration(9, "Running"), migration(2, "Pending")],
    );
    assert_eq!(
        world.says(),
        "VM default/web is being moved: migration kubevirt-evacuation-9 is Running"
    );
    let failed = World::new(
        OnMigrationFailure::Block,
        vec![migration(9, "Failed"), migration(2, "Failed")],
    );
    assert!(
        failed
            .says()
            .starts_with("VM default/web could not be moved 2 times: migration kubevirt-evacuation-9 failed")
    );
}

#[test]
fn vms_with_trouble_come_before_those_that_move_and_those_that_do_not() {
    let mut world = World::new(OnMigrationFailure::Block, vec![migration(1, "Failed")]);
    let mut going = instance("going");
    going["metadata"]["deletionTimestamp"] = json!("2026-03-13T04:00:00Z");
    world.instances = vec![instance("idle"), going, instance("web")];
    let objects: Vec<String> = world
        .decide()
        .waiting
        .into_iter()
        .map(|waiting| waiting.object)
        .collect();
    let expected = ["web", "going", "idle"].map(|name| format!("VirtualMachineInstance default/{name}"));
    assert_eq!(objects, expected);
}

#[test]
fn a_target_pod_that_no_node_takes_is_reported_for_its_own_migration_only() {
    let pod = |uid: Value, type_: &str, status: &str| {
        json!({"metadata": {"name": "p", "labels": {"kubevirt.io/migrationJobUID": uid}},
            "status": {"conditions": [{"type": type_, "status": status, "message": "no cpu"}]}})
    };
    let moving = "VM default/web is being moved: migration kubevirt-evacuation-1 is Scheduling";
    let unplaced = format!("{moving}, no node takes it: no cpu");
    let mut world = World::new(OnMigrationFailure::Block, vec![migration(1, "Scheduling")]);
    for (pod, expected) in [
        (pod(json!("u1"), "PodScheduled", "False"), unplaced.as_str()),
        (pod(json!("u2"), "PodScheduled", "False"), moving),
        (pod(json!("u1"), "PodScheduled", "True"), moving),
        (pod(json!("u1"), "Ready", "False"), moving),
    ] {
        world.pods = vec![pod];
        assert_eq!(world.says(), expected);
    }
    // A migration without a uid has no pods that could be found by it.
    world.migrations[0]["metadata"]["uid"] = json!(null);
    world.pods = vec![json!({"metadata": {"name": "p"},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no cpu"}]}})];
    assert_eq!(world.says(), moving);
}
