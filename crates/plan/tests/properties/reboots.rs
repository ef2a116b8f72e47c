//! When a node has been rebooted, and when it has not.

use api::{Component, JobType, NodeState};
use plan::observed::{JobOutcome, ObservedPod};

use crate::{
    model::{Model, OS},
    walk::{decide_and_apply, is_at, job, state, until},
};

/// A pod of the post-drain Job of node-1 that has ended, with or without a word about the reboot.
fn pod(no_reboot: bool) -> ObservedPod {
    ObservedPod {
        name: "harvester-system/p".into(),
        component: Component::NodeUpgrade,
        job_type: Some(JobType::PostDrain),
        node: Some("node-1".into()),
        no_reboot,
        ..ObservedPod::of(Component::NodeUpgrade)
    }
}

#[test]
fn r06_a_node_that_says_it_armed_no_reboot_is_done_without_one() {
    let mut model = Model::new(3);
    until(&mut model, is_at("node-1", NodeState::WaitingReboot));
    model.observed.nodes.get_mut("node-1").unwrap().os_image = OS.into();
    model.observed.pods.insert("p".into(), pod(false));
    decide_and_apply(&mut model);
    assert_eq!(
        state(&model, "node-1"),
        Some(NodeState::WaitingReboot),
        "the name of the system proves nothing"
    );
    // The word of a Job that is gone proves nothing about this one.
    let mut stale = model.clone();
    let of_another = ObservedPod {
        owner: Some("another".into()),
        ..pod(true)
    };
    stale.observed.pods.insert("p".into(), of_another);
    decide_and_apply(&mut stale);
    assert_eq!(state(&stale, "node-1"), Some(NodeState::WaitingReboot));
    model.observed.pods.insert("p".into(), pod(true));
    model.observed.nodes.get_mut("node-1").unwrap().ready = false;
    decide_and_apply(&mut model);
    assert_eq!(
        state(&model, "node-1"),
        Some(NodeState::WaitingReboot),
        "it must be ready"
    );
    model.observed.nodes.get_mut("node-1").unwrap().ready = true;
    decide_and_apply(&mut model);
    assert_eq!(state(&model, "node-1"), Some(NodeState::PostDrained));
}

/// A pod of the post-drain Job of node-1 that has armed the reboot in a boot.
fn armed_in(boot: &str) -> ObservedPod {
    ObservedPod {
        armed_in: Some(boot.into()),
        ..pod(false)
    }
}

#[test]
fn a_node_that_lost_its_power_while_its_system_was_installed_has_not_come_back_old() {
    let mut model = Model::new(3);
    let job = job(JobType::PostDrain, "node-1");
    until(&mut model, |model| model.observed.jobs.contains_key(&job));
    decide_and_apply(&mut model);
    // It goes down and comes back as it was; the Job's next pod installs and arms the reboot. The Job's end may be seen before
    // that of its pod.
    model.observed.nodes.get_mut("node-1").unwrap().boot_id = "by-accident".into();
    let works = ObservedPod {
        works: true,
        ..pod(false)
    };
    model.observed.pods.insert("p".into(), works);
    model.observed.jobs.get_mut(&job).unwrap().outcome = JobOutcome::Complete;
    decide_and_apply(&mut model);
    assert_eq!(state(&model, "node-1"), Some(NodeState::WaitingReboot));
    model.observed.pods.insert("p".into(), armed_in("by-accident"));
    decide_and_apply(&mut model);
    assert_eq!(state(&model, "node-1"), Some(NodeState::WaitingReboot));
    // The name of the system proves nothing before the reboot.
    let mut renamed = model.clone();
    renamed.observed.nodes.get_mut("node-1").unwrap().os_image = OS.into();
    decide_and_apply(&mut renamed);
    assert_eq!(state(&renamed, "node-1"), Some(NodeState::WaitingReboot));
    // What a pod of another Job has armed says nothing.
    let mut of_another = model.clone();
    let another = ObservedPod {
        owner: Some("another".into()),
        ..armed_in("by-accident")
    };
    of_another.observed.pods.insert("p".into(), another);
    decide_and_apply(&mut of_another);
    assert_eq!(state(&of_another, "node-1"), Some(NodeState::PostDrainFailed));
    // One that really came back old has failed, and one that came back new is done.
    model.observed.nodes.get_mut("node-1").unwrap().boot_id = "at-last".into();
    let mut old = model.clone();
    decide_and_apply(&mut old);
    assert_eq!(state(&old, "node-1"), Some(NodeState::PostDrainFailed));
    model.observed.nodes.get_mut("node-1").unwrap().os_image = OS.into();
    decide_and_apply(&mut model);
    assert_eq!(state(&model, "node-1"), Some(NodeState::PostDrained));
}
