//! What is seen of nodes and their Jobs, and what each node has reached by it.

use api::{JobType, NodeState, annotations, names, reasons};
use plan::{Action, Child, observed::JobOutcome};
use rstest::rstest;

use crate::{
    model::{Model, OS},
    small::{add_job, failed, pause, pod, reached, set_state, status, upgrading, waits, waits_for},
};

#[rstest]
#[case(3, JobType::PreDrain, JobOutcome::Running, NodeState::PreDraining)]
#[case(3, JobType::PreDrain, JobOutcome::Complete, NodeState::PreDrained)]
#[case(3, JobType::PreDrain, failed(), NodeState::PreDrainFailed)]
#[case(3, JobType::PostDrain, JobOutcome::Running, NodeState::PostDraining)]
#[case(3, JobType::PostDrain, JobOutcome::Complete, NodeState::WaitingReboot)]
#[case(3, JobType::PostDrain, failed(), NodeState::PostDrainFailed)]
#[case(1, JobType::SingleNodeUpgrade, JobOutcome::Running, NodeState::SingleNodeUpgrading)]
#[case(1, JobType::SingleNodeUpgrade, JobOutcome::Complete, NodeState::WaitingReboot)]
#[case(1, JobType::SingleNodeUpgrade, failed(), NodeState::SingleNodeUpgradeFailed)]
#[case(3, JobType::RestoreVm, failed(), NodeState::ImagePreloaded)]
fn a_job_says_how_far_its_node_is(
    #[case] nodes: usize,
    #[case] step: JobType,
    #[case] outcome: JobOutcome,
    #[case] expected: NodeState,
) {
    let mut model = upgrading(nodes);
    add_job(&mut model, step, "node-1", outcome);
    assert_eq!(reached(&model.decide(), "node-1").0, Some(expected));
    for spoil in [
        (|job| job.namespace = "default".to_owned()) as fn(&mut plan::observed::ObservedJob),
        |job| job.component = api::Component::ClusterUpgrade,
        |job| job.node = None,
    ] {
        let mut foreign = model.clone();
        foreign.observed.jobs.values_mut().for_each(spoil);
        assert_eq!(reached(&foreign.decide(), "node-1").0, Some(NodeState::ImagePreloaded));
    }
}

#[rstest]
#[case::paused(true, Some(NodeState::UpgradePaused), Some(reasons::ADMINISTRATIVELY_PAUSED))]
#[case::resumed(false, Some(NodeState::UpgradePaused), Some(reasons::RELEASED))]
fn a_suspended_job_shows_whether_its_node_is_still_paused(
    #[case] paused: bool,
    #[case] state: Option<NodeState>,
    #[case] reason: Option<&str>,
) {
    let mut model = upgrading(3);
    add_job(&mut model, JobType::PreDrain, "node-1", JobOutcome::Running);
    model.observed.jobs.values_mut().for_each(|job| job.suspended = true);
    if paused {
        pause(&mut model, &["node-1"]);
    }
    assert_eq!(reached(&model.decide(), "node-1"), (state, reason));
}

#[rstest]
#[case::from_the_start(
    NodeState::ImagePreloaded,
    true,
    NodeState::UpgradePaused,
    Some(reasons::ADMINISTRATIVELY_PAUSED)
)]
#[case::not_paused(NodeState::ImagePreloaded, false, NodeState::ImagePreloaded, None)]
#[case::resumed(NodeState::UpgradePaused, false, NodeState::UpgradePaused, Some(reasons::RELEASED))]
#[case::still_paused(
    NodeState::UpgradePaused,
    true,
    NodeState::UpgradePaused,
    Some(reasons::ADMINISTRATIVELY_PAUSED)
)]
#[case::too_late(NodeState::PreDraining, true, NodeState::PreDraining, None)]
#[case::images_failed(NodeState::ImagePreloadFailed, true, NodeState::ImagePreloadFailed, None)]
fn a_paused_node_is_shown_as_paused_before_its_turn(
    #[case] before: NodeState,
    #[case] paused: bool,
    #[case] after: NodeState,
    #[case] reason: Option<&str>,
) {
    for nodes in [1, 3] {
        let mut model = upgrading(nodes);
        set_state(&mut model, "node-1", before);
        if paused {
            pause(&mut model, &["node-1"]);
        }
        assert_eq!(
            reached(&model.decide(), "node-1"),
            (Some(after), reason),
            "{nodes} nodes"
        );
        // Its state follows from its Job.
        let step = if nodes == 1 {
            JobType::SingleNodeUpgrade
        } else {
            JobType::PreDrain
        };
        add_job(&mut model, step, "node-1", JobOutcome::Running);
        let state = reached(&model.decide(), "node-1").0;
        assert_ne!(
            state,
            Some(NodeState::UpgradePaused).filter(|_| before != NodeState::UpgradePaused),
            "{nodes} nodes"
        );
    }
}

/// A node whose system is installed and that is expected back from its reboot.
fn rebooting(nodes: usize) -> Model {
    let mut model = upgrading(nodes);
    set_state(&mut model, "node-1", NodeState::WaitingReboot);
    let step = if nodes == 1 {
        JobType::SingleNodeUpgrade
    } else {
        JobType::PostDrain
    };
    add_job(&mut model, step, "node-1", JobOutcome::Complete);
    let node = model.observed.nodes.get_mut("node-1").unwrap();
    node.boot_id_before_upgrade = Some("node-1-first".to_owned());
    node.pending_os_image = Some(OS.to_owned());
    node.os_image = OS.to_owned();
    node.boot_id = "node-1-second".to_owned();
    if nodes > 1 {
        let plan = &mut model.observed.machine_plans[0];
        (plan.pre_drain, plan.pre_hook) = (Some("t".to_owned()), Some("t".to_owned()));
        plan.post_drain = Some("u".to_owned());
    }
    model
}

#[test]
fn a_node_is_back_when_it_is_ready_in_another_boot_with_the_new_system() {
    let state = |model: &Model| reached(&model.decide(), "node-1").0;
    assert_eq!(state(&rebooting(3)), Some(NodeState::PostDrained));
    assert_eq!(state(&rebooting(1)), Some(NodeState::SingleNodeUpgraded));
    for spoil in [
        (|node| node.ready = false) as fn(&mut plan::observed::ObservedNode),
        |node| node.boot_id = "node-1-first".to_owned(),
    ] {
        let mut model = rebooting(3);
        spoil(model.observed.nodes.get_mut("node-1").unwrap());
        assert_eq!(state(&model), Some(NodeState::WaitingReboot));
    }
    let mut unnoted = rebooting(3);
    unnoted.observed.nodes.get_mut("node-1").unwrap().boot_id_before_upgrade = None;
    assert_eq!(state(&unnoted), Some(NodeState::PostDrained));
    let mut elsewhere = rebooting(3);
    set_state(&mut elsewhere, "node-1", NodeState::PreDrained);
    elsewhere.observed.jobs = Default::default();
    elsewhere.observed.machine_plans[0].post_drain = None;
    assert_eq!(state(&elsewhere), Some(NodeState::PreDrained), "it waits for no reboot");
}

#[test]
fn a_node_that_comes_back_with_the_old_system_has_failed_once_its_job_has_reported_everything() {
    for nodes in [1, 3] {
        let (step, failed) = match nodes {
            1 => (JobType::SingleNodeUpgrade, NodeState::SingleNodeUpgradeFailed),
            _ => (JobType::PostDrain, NodeState::PostDrainFailed),
        };
        let mut model = rebooting(nodes);
        model.observed.nodes.get_mut("node-1").unwrap().os_image = "Harvester v1.7.1".to_owned();
        assert_eq!(
            reached(&model.decide(), "node-1"),
            (Some(failed), Some(reasons::OLD_OS_IMAGE))
        );
        let mut telling = model.clone();
        let mut working = pod(step, "node-1");
        working.works = true;
        telling.observed.pods.insert("p".to_owned(), working.clone());
        assert_eq!(reached(&telling.decide(), "node-1").0, Some(NodeState::WaitingReboot));
        // A pod of another Job, node or step does not count.
        let spoils: [fn(&mut plan::observed::ObservedPod); 3] = [
            |pod| pod.owner = Some("other".to_owned()),
            |pod| pod.node = Some("node-2".to_owned()),
            |pod| pod.job_type = Some(JobType::PreDrain),
        ];
        for spoil in spoils {
            let mut pod = working.clone();
            spoil(&mut pod);
            telling.observed.pods.insert("p".to_owned(), pod);
            assert_eq!(reached(&telling.decide(), "node-1").0, Some(failed));
        }
        let mut down = model.clone();
        down.observed.nodes.get_mut("node-1").unwrap().ready = false;
        assert_eq!(reached(&down.decide(), "node-1").0, Some(NodeState::WaitingReboot));
        let mut unnoted = model.clone();
        unnoted.observed.nodes.get_mut("node-1").unwrap().boot_id_before_upgrade = None;
        assert_eq!(reached(&unnoted.decide(), "node-1").0, Some(NodeState::WaitingReboot));
    }
}

#[test]
fn what_the_job_says_of_the_reboot_counts() {
    let state = |model: &Model| reached(&model.decide(), "node-1").0;
    let mut same_boot = rebooting(3);
    same_boot.observed.nodes.get_mut("node-1").unwrap().boot_id = "node-1-first".to_owned();
    let mut no_reboot = pod(JobType::PostDrain, "node-1");
    no_reboot.no_reboot = true;
    same_boot.observed.pods.insert("p".to_owned(), no_reboot);
    assert_eq!(state(&same_boot), Some(NodeState::PostDrained), "it never left");
    let mut armed_later = rebooting(3);
    let mut armed = pod(JobType::PostDrain, "node-1");
    armed.armed_in = Some("node-1-second".to_owned());
    armed_later.observed.pods.insert("p".to_owned(), armed);
    assert_eq!(
        state(&armed_later),
        Some(NodeState::WaitingReboot),
        "the reboot is still to come"
    );
}

#[test]
fn what_is_expected_of_a_reboot_is_noted_on_the_node_and_removed_when_it_is_back() {
    let pending = |value: Option<&str>| Action::AnnotateNode {
        node: "node-1".to_owned(),
        annotations: [(annotations::PENDING_OS_IMAGE.to_owned(), value.map(str::to_owned))].into(),
    };
    let mut away = rebooting(3);
    let node = away.observed.nodes.get_mut("node-1").unwrap();
    (node.ready, node.pending_os_image) = (false, None);
    assert_eq!(away.decide().actions, [pending(Some(OS))]);
    away.observed.nodes.get_mut("node-1").unwrap().pending_os_image = Some(OS.to_owned());
    assert_eq!(away.decide().actions, []);
    let forget = Action::AnnotateNode {
        node: "node-1".to_owned(),
        annotations: [annotations::PENDING_OS_IMAGE, annotations::BOOT_ID_BEFORE_UPGRADE]
            .map(|key| (key.to_owned(), None))
            .into(),
    };
    assert!(rebooting(3).decide().actions.contains(&forget));
    let mut bare = rebooting(3);
    bare.observed.nodes.get_mut("node-1").unwrap().pending_os_image = None;
    assert!(!bare.decide().actions.contains(&forget));
}

#[test]
fn nodes_that_left_are_named_once_and_continue_where_they_were_when_they_return() {
    let mut model = upgrading(3);
    model.observed.nodes.remove("node-3");
    let decision = model.decide();
    assert_eq!(reached(&decision, "node-3").1, Some(reasons::NODE_REMOVED));
    assert_eq!(decision.events.len(), 1);
    model.apply(&decision);
    assert_eq!(model.decide().events, []);
    let back = upgrading(3).observed.nodes["node-3"].clone();
    model.observed.nodes.insert("node-3".to_owned(), back);
    assert_eq!(reached(&model.decide(), "node-3").1, None);
    set_state(&mut model, "node-3", NodeState::PreDrainFailed);
    let nodes = &mut status(&mut model).node_upgrade_statuses;
    nodes.set_reason("node-3", Some(reasons::NODE_REMOVED), None);
    assert_eq!(reached(&model.decide(), "node-3").1, Some(reasons::RETRYING));
}

#[rstest]
#[case::with_the_old_system("Harvester v1.7.1", true, true)]
#[case::with_the_new_system(OS, true, false)]
#[case::unmanaged("Harvester v1.7.1", false, false)]
fn a_node_that_joined_is_named(#[case] os: &str, #[case] managed: bool, #[case] named: bool) {
    let mut model = upgrading(3);
    let mut node = model.observed.nodes["node-1"].clone();
    (node.os_image, node.managed) = (os.to_owned(), managed);
    model.observed.nodes.insert("node-4".to_owned(), node);
    let events = model.decide().events;
    assert_eq!(events.iter().any(|event| event.reason == reasons::NODE_JOINED), named);
    assert_eq!(events.len(), usize::from(named));
}

#[test]
fn vms_of_upgraded_nodes_are_started_again_and_a_failure_is_reported() {
    let mut model = upgrading(3);
    set_state(&mut model, "node-1", NodeState::PostDrained);
    model.observed.restore_list = [("node-1".to_owned(), "default/web".to_owned())].into();
    let create = Action::Create(Child::RestoreJob {
        node: "node-1".to_owned(),
    });
    let decision = model.decide();
    assert!(decision.actions.contains(&create));
    assert_eq!(decision.events[0].reason, reasons::RESTORE_VM_JOB_DISPATCHED);
    add_job(&mut model, JobType::RestoreVm, "node-1", JobOutcome::Running);
    let decision = model.decide();
    assert!(!decision.actions.contains(&create) && decision.events.is_empty());
    add_job(&mut model, JobType::RestoreVm, "node-1", failed());
    let events = model.decide().events;
    assert_eq!(events.len(), 1);
    let job = names::node_job("up", JobType::RestoreVm, "node-1");
    assert!(
        events[0].message.contains(&job) && events[0].message.contains("it broke"),
        "{}",
        events[0].message
    );
    set_state(&mut model, "node-1", NodeState::PreDrained);
    assert_eq!(model.decide().events, [], "it is not back yet");
    assert!(
        waits_for(&model.decide()).contains(&"RancherUpdate"),
        "{:?}",
        waits(&model.decide())
    );
}
