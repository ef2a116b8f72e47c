//! Waits for nodes that are being upgraded, paused or done, and the end of the phase.

use api::{Component, JobType, NodeState, Phase, WaitingFor, names, reasons};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plan::observed::JobOutcome;
use rstest::rstest;

use crate::{
    model::Model,
    small::{
        add_job, created_jobs, pause, pod, progressing, set_retrying, set_state, status, upgrading, waits, waits_for,
    },
};

fn all_done(nodes: usize) -> Model {
    let mut model = upgrading(nodes);
    let state = if nodes == 1 {
        NodeState::SingleNodeUpgraded
    } else {
        NodeState::PostDrained
    };
    for node in 1..=nodes {
        set_state(&mut model, &format!("node-{node}"), state);
    }
    model
}

fn is_done(model: &Model) -> bool {
    model.decide().status.current_phase.as_deref() == Some("NodeUpgraded")
}

#[test]
fn the_phase_is_over_when_all_nodes_are_done_and_rancher_asks_for_none() {
    assert!(is_done(&all_done(3)) && is_done(&all_done(1)));
    let mut behind = all_done(3);
    set_state(&mut behind, "node-2", NodeState::WaitingReboot);
    assert!(!is_done(&behind));
    let mut gone = behind.clone();
    gone.observed.nodes.remove("node-2");
    assert!(is_done(&gone), "a node that left does not count");
    let mut asked = all_done(3);
    asked.observed.machine_plans[2].pre_drain = Some("t".to_owned());
    assert!(!is_done(&asked));
    asked.observed.machine_plans[2].node = None;
    assert!(is_done(&asked), "its node is unknown");
    let mut single = all_done(1);
    single.observed.machine_plans[0].pre_drain = Some("t".to_owned());
    assert!(is_done(&single), "a cluster of one node does without Rancher");
    let mut none = upgrading(3);
    status(&mut none).node_upgrade_statuses = Default::default();
    assert!(!is_done(&none));
}

#[test]
fn a_node_that_failed_ends_the_plan_unless_it_is_retried() {
    let mut model = upgrading(3);
    set_state(&mut model, "node-2", NodeState::PreDrainFailed);
    let nodes = &mut status(&mut model).node_upgrade_statuses;
    nodes.set_reason("node-2", None, Some("it broke"));
    let decision = model.decide();
    assert_eq!(decision.status.current_phase.as_deref(), Some("Failed"));
    assert_eq!(progressing(&decision), "node node-2 upgrade failed: it broke");
    set_retrying(&mut model, "node-2", NodeState::PreDrainFailed);
    assert_eq!(model.decide().status.current_phase.as_deref(), Some("NodeUpgrading"));
}

#[rstest]
#[case(
    3,
    NodeState::PreDraining,
    "PreDrainJob Job harvester-system/JOB: node node-1: VMs are being moved away",
    JobType::PreDrain
)]
#[case(
    3,
    NodeState::PreDrained,
    "RancherUpdate Node node-1: node node-1: Rancher drains it and updates RKE2",
    JobType::PreDrain
)]
#[case(
    3,
    NodeState::PostDraining,
    "PostDrainJob Job harvester-system/JOB: node node-1: the operating system is being installed",
    JobType::PostDrain
)]
#[case(
    3,
    NodeState::WaitingReboot,
    "Reboot Node node-1: node node-1: it reboots into the new operating system",
    JobType::PostDrain
)]
#[case(
    1,
    NodeState::SingleNodeUpgrading,
    "SingleNodeJob Job harvester-system/JOB: node node-1: RKE2 and the operating system are being upgraded",
    JobType::SingleNodeUpgrade
)]
fn the_wait_for_a_node_names_what_it_does(
    #[case] nodes: usize,
    #[case] state: NodeState,
    #[case] expected: &str,
    #[case] step: JobType,
) {
    let mut model = upgrading(nodes);
    set_state(&mut model, "node-1", state);
    let job = names::node_job("up", step, "node-1");
    assert_eq!(waits(&model.decide()), [expected.replace("JOB", &job)]);
}

#[rstest]
#[case(NodeState::PreDrainFailed, JobType::PreDrain, JobOutcome::Running, "PreDrainJob")]
#[case(NodeState::PostDrainFailed, JobType::PostDrain, JobOutcome::Running, "PostDrainJob")]
#[case(NodeState::PostDrainFailed, JobType::PostDrain, JobOutcome::Complete, "Reboot")]
#[case(
    NodeState::SingleNodeUpgradeFailed,
    JobType::SingleNodeUpgrade,
    JobOutcome::Running,
    "SingleNodeJob"
)]
#[case(
    NodeState::SingleNodeUpgradeFailed,
    JobType::SingleNodeUpgrade,
    JobOutcome::Complete,
    "Reboot"
)]
fn the_wait_for_a_retried_step_is_the_same_as_the_first_time(
    #[case] state: NodeState,
    #[case] step: JobType,
    #[case] outcome: JobOutcome,
    #[case] expected: &str,
) {
    let nodes = if step == JobType::SingleNodeUpgrade { 1 } else { 3 };
    let mut model = upgrading(nodes);
    set_retrying(&mut model, "node-1", state);
    add_job(&mut model, step, "node-1", outcome);
    assert_eq!(waits_for(&model.decide()), [expected]);
}

#[rstest]
#[case::paused_and_no_job(true, None, true)]
#[case::paused_and_its_job_too(true, Some(true), true)]
#[case::paused_but_its_job_runs(true, Some(false), false)]
#[case::not_paused(false, Some(true), false)]
fn a_step_that_is_retried_is_paused_until_it_has_begun(
    #[case] paused: bool,
    #[case] suspended: Option<bool>,
    #[case] expected: bool,
) {
    for (nodes, state, step) in [
        (3, NodeState::PreDrainFailed, JobType::PreDrain),
        (1, NodeState::SingleNodeUpgradeFailed, JobType::SingleNodeUpgrade),
    ] {
        let mut model = upgrading(nodes);
        set_retrying(&mut model, "node-1", state);
        if let Some(suspended) = suspended {
            add_job(&mut model, step, "node-1", JobOutcome::Running);
            model
                .observed
                .jobs
                .values_mut()
                .for_each(|job| job.suspended = suspended);
        }
        if paused {
            pause(&mut model, &["node-1"]);
        }
        let decision = model.decide();
        assert_eq!(
            waits_for(&decision).contains(&"Paused"),
            expected,
            "{state}: {:?}",
            waits(&decision)
        );
    }
}

#[test]
fn the_wait_for_rancher_quotes_its_message_unless_it_is_about_an_upgraded_node() {
    let mut model = upgrading(3);
    set_state(&mut model, "node-1", NodeState::PostDrained);
    let next =
        "RancherNextNode Cluster fleet-local/local: waiting for Rancher to continue with the next node (1 of 3 done)";
    assert_eq!(waits(&model.decide()), [next]);
    let says = |model: &mut Model, words: &str| {
        model.observed.cluster.as_mut().unwrap().message = Some(words.to_owned());
        waits(&model.decide()).remove(0)
    };
    assert_eq!(says(&mut model, ""), next);
    assert_eq!(
        says(&mut model, "draining machine-2"),
        format!("{next}; Rancher says: \"draining machine-2\"")
    );
    model.observed.machine_plans[0].secret = "custom-1-machine-plan".to_owned();
    assert_eq!(says(&mut model, "waiting for custom-1"), next, "that node is done");
    let other = says(&mut model, "waiting for custom-2");
    assert_eq!(other, format!("{next}; Rancher says: \"waiting for custom-2\""));
    set_state(&mut model, "node-2", NodeState::PreDrained);
    assert!(says(&mut model, "draining").ends_with("Rancher drains it and updates RKE2; Rancher says: \"draining\""));
}

#[test]
fn paused_nodes_are_named_and_so_are_nodes_that_wait_behind_them() {
    let mut model = upgrading(3);
    pause(&mut model, &["node-1", "node-2"]);
    let paused = "Paused Node node-1, node-2: node upgrade paused: node-1, node-2";
    let next =
        "RancherNextNode Cluster fleet-local/local: waiting for Rancher to continue with the next node (0 of 3 done)";
    assert_eq!(waits(&model.decide()), [paused, next]);
    // Rancher has opened the hook of node-1, and opens no other before it is answered.
    add_job(&mut model, JobType::PreDrain, "node-1", JobOutcome::Running);
    model.observed.jobs.values_mut().for_each(|job| job.suspended = true);
    let behind =
        "BehindPaused Cluster fleet-local/local: 2 more wait behind node-1: Rancher upgrades one node after the other";
    assert_eq!(waits(&model.decide()), [paused, behind]);
    set_state(&mut model, "node-3", NodeState::PostDrained);
    assert!(waits(&model.decide())[1].contains(": 1 more wait behind node-1"));
    set_state(&mut model, "node-2", NodeState::PostDrained);
    assert_eq!(
        waits(&model.decide()),
        ["Paused Node node-1: node upgrade paused: node-1"]
    );
    model.observed.plan.spec.node_upgrade_option = None;
    assert!(!waits_for(&model.decide()).contains(&"Paused"));
    let nodes = &mut status(&mut model).node_upgrade_statuses;
    nodes.set_reason("node-1", Some(reasons::RELEASED), None);
    assert!(!waits_for(&model.decide()).contains(&"Paused"));
}

#[test]
fn a_node_that_is_not_paused_is_not_named_whatever_its_earlier_message() {
    let mut model = upgrading(3);
    // The entry of a node that Harvester does not manage any more is not updated.
    model.observed.nodes.get_mut("node-1").unwrap().managed = false;
    set_state(&mut model, "node-1", NodeState::UpgradePaused);
    let nodes = &mut status(&mut model).node_upgrade_statuses;
    nodes.set_reason("node-1", Some(reasons::ADMINISTRATIVELY_PAUSED), None);
    assert!(!waits_for(&model.decide()).contains(&"Paused"));
    pause(&mut model, &["node-1"]);
    assert!(waits_for(&model.decide()).contains(&"Paused"));
}

/// A node whose VMs have been moving for so many seconds.
fn emptying(seconds: i64) -> Model {
    let mut model = upgrading(3);
    set_state(&mut model, "node-1", NodeState::PreDraining);
    add_job(&mut model, JobType::PreDrain, "node-1", JobOutcome::Running);
    let decision = model.decide();
    model.apply(&decision);
    model.now += SignedDuration::from_secs(seconds);
    model
}

fn said(model: &Model) -> String {
    let text = waits(&model.decide()).remove(0);
    text.split_once("node node-1: ")
        .map(|(_, words)| words.to_owned())
        .unwrap()
}

#[test]
fn the_manager_reports_what_keeps_vms_once_the_program_has_been_silent_for_a_minute() {
    let vms = |names: &[&str]| names.iter().map(|name| format!("default/{name}")).collect::<Vec<_>>();
    for (seconds, silent) in [(59, false), (60, true)] {
        let mut model = emptying(seconds);
        assert_eq!(said(&model), "VMs are being moved away");
        model
            .observed
            .vms_by_node
            .insert("node-1".to_owned(), vms(&["a", "b", "c"]));
        let left = ", 3 left: default/a, default/b, default/c";
        let expected = format!("VMs are being moved away{}", if silent { left } else { "" });
        assert_eq!(said(&model), expected);
    }
    let mut model = emptying(60);
    model
        .observed
        .vms_by_node
        .insert("node-1".to_owned(), vms(&["a", "b", "c", "d"]));
    assert_eq!(
        said(&model),
        "VMs are being moved away, 4 left: default/a, default/b, default/c, …"
    );
    *model.observed.unhealthy_volumes = vec!["default/disk".to_owned()];
    assert_eq!(said(&model), "volumes are being rebuilt first: default/disk");
    let mut speaking = pod(JobType::PreDrain, "node-1");
    speaking.said = vec![entry(&model, "VMEvacuation", 0)];
    model.observed.pods.insert("p".to_owned(), speaking.clone());
    assert_eq!(said(&model), "VMs are being moved away", "the program says it itself");
    for spoil in [
        (|pod| pod.node = Some("node-2".to_owned())) as fn(&mut plan::observed::ObservedPod),
        |pod| pod.job_type = Some(JobType::PostDrain),
        |pod| pod.said.clear(),
    ] {
        let mut other = speaking.clone();
        spoil(&mut other);
        model.observed.pods.insert("p".to_owned(), other);
        assert!(said(&model).starts_with("volumes are being rebuilt"));
    }
}

fn entry(model: &Model, what: &str, age: i64) -> WaitingFor {
    WaitingFor {
        what: what.to_owned(),
        object: None,
        message: None,
        since: Time(model.now - SignedDuration::from_secs(age)),
        deadline: None,
    }
}

#[rstest]
#[case("VMsLeft", "node-1", JobType::PreDrain, true)]
#[case("VolumesLeft", "node-1", JobType::PreDrain, true)]
#[case("Something", "node-1", JobType::PreDrain, false)]
#[case("VMsLeft", "node-2", JobType::PreDrain, false)]
#[case("VMsLeft", "node-1", JobType::PostDrain, false)]
fn a_drain_during_which_vms_leave_is_not_stalled(
    #[case] what: &str,
    #[case] node: &str,
    #[case] step: JobType,
    #[case] progresses: bool,
) {
    let mut model = emptying(3600);
    let mut speaking = pod(step, node);
    speaking.said = vec![entry(&model, what, 60)];
    model.observed.pods.insert("p".to_owned(), speaking);
    let decision = model.decide();
    let degraded = decision
        .status
        .conditions
        .iter()
        .find(|c| c.type_ == reasons::DEGRADED)
        .unwrap();
    assert_eq!(degraded.status == "False", progresses);
    let deadline = decision.status.waiting_for[0].deadline.clone().unwrap().0;
    let minutes = if progresses { 29 } else { -30 };
    assert_eq!(deadline, model.now + SignedDuration::from_mins(minutes));
}

#[test]
fn a_node_that_joins_a_single_one_ends_the_plan_unless_its_job_has_begun() {
    let mut model = upgrading(1);
    let mut node = model.observed.nodes["node-1"].clone();
    node.managed = false;
    assert_eq!(created_jobs(&model.decide()), ["single-node-upgrade node-1"]);
    model.observed.nodes.insert("node-2".to_owned(), node);
    assert!(progressing(&model.decide()).starts_with("Node node-2 joined after the plan began"));
    add_job(&mut model, JobType::SingleNodeUpgrade, "node-1", JobOutcome::Running);
    assert_eq!(waits_for(&model.decide()), ["SingleNodeJob"]);
    model.observed.jobs.values_mut().for_each(|job| job.suspended = true);
    assert!(
        progressing(&model.decide()).starts_with("Node node-2 joined"),
        "a suspended Job has not begun"
    );
    model.observed.jobs = Default::default();
    set_state(&mut model, "node-1", NodeState::WaitingReboot);
    assert_eq!(waits_for(&model.decide()), ["Reboot"]);
    assert_eq!(created_jobs(&model.decide()), [""; 0]);
}

#[test]
fn rancher_must_have_released_every_node_before_the_next_phase() {
    let mut model = all_done(3);
    status(&mut model).current_phase = Some(Phase::NodeUpgraded.to_string());
    assert_eq!(model.decide().status.current_phase.as_deref(), Some("CleaningUp"));
    let plan = &mut model.observed.machine_plans[1];
    (plan.pre_drain, plan.pre_hook) = (Some("t".to_owned()), Some("t".to_owned()));
    let says = |model: &Model| waits(&model.decide()).pop().unwrap();
    let secret = "RancherCompletion Secret fleet-local/node-2-plan: waiting for Rancher to complete node upgrades: secret node-2-plan still has";
    let (pre, post) = (api::annotations::RKE_PRE_DRAIN, api::annotations::RKE_POST_DRAIN);
    assert_eq!(says(&model), format!("{secret} {pre} annotation"));
    model.observed.machine_plans[1].post_drain = Some(String::new());
    assert_eq!(says(&model), format!("{secret} {pre} annotation"));
    model.observed.machine_plans[1].post_drain = Some("u".to_owned());
    assert_eq!(says(&model), format!("{secret} {post} annotation"));
    let mut single = all_done(1);
    status(&mut single).current_phase = Some(Phase::NodeUpgraded.to_string());
    single.observed.machine_plans[0].pre_drain = Some("t".to_owned());
    assert_eq!(single.decide().status.current_phase.as_deref(), Some("CleaningUp"));
}

#[test]
fn the_status_shows_how_vms_of_upgraded_nodes_start_again() {
    let mut model = upgrading(3);
    set_state(&mut model, "node-1", NodeState::PostDrained);
    let mut stuck = pod(JobType::RestoreVm, "node-1");
    stuck.problem = Some("ErrImagePull".to_owned());
    assert_eq!(stuck.component, Component::NodeUpgrade);
    model.observed.pods.insert("p".to_owned(), stuck);
    assert_eq!(waits_for(&model.decide()), ["RancherNextNode", "Pod"]);
    set_state(&mut model, "node-1", NodeState::PreDrained);
    assert_eq!(waits_for(&model.decide()), ["RancherUpdate"]);
}
