//! Rancher's hooks and their answers, node by node.

use api::{JobType, NodeState, annotations, names};
use plan::{Action, observed::JobOutcome};
use rstest::rstest;

use crate::{
    model::Model,
    small::{add_job, answers, created_jobs, pause, set_retrying, set_state, upgrading, waits, waits_for},
};

/// The pre-drain hook of node-1, which has this state, is open.
fn asked_before(state: NodeState) -> Model {
    let mut model = upgrading(3);
    set_state(&mut model, "node-1", state);
    model.observed.machine_plans[0].pre_drain = Some("before".to_owned());
    model
}

/// The post-drain hook of node-1, which has this state, is open; the pre-drain hook is answered.
fn asked_after(state: NodeState) -> Model {
    let mut model = asked_before(state);
    let plan = &mut model.observed.machine_plans[0];
    plan.pre_hook = Some("before".to_owned());
    plan.post_drain = Some("after".to_owned());
    model
}

#[rstest]
#[case(NodeState::ImagePreloaded, &["pre-drain node-1"], &[])]
#[case(NodeState::UpgradePaused, &["pre-drain node-1"], &[])]
#[case(NodeState::PreDraining, &["pre-drain node-1"], &[])]
#[case(NodeState::PreDrained, &[], &["node-1-plan before"])]
#[case(NodeState::PostDrained, &[], &["node-1-plan before"])]
#[case(NodeState::PreDrainFailed, &[], &[])]
fn before_a_drain_a_job_evacuates_the_node_and_then_the_hook_is_answered(
    #[case] state: NodeState,
    #[case] jobs: &[&str],
    #[case] answered: &[&str],
) {
    let decision = asked_before(state).decide();
    assert_eq!(created_jobs(&decision), jobs);
    assert_eq!(answers(&decision), answered);
    let hooks = decision.actions.iter().filter_map(|action| match action {
        Action::AnswerHook { hook, .. } => Some(hook.as_str()),
        _ => None,
    });
    assert!(hooks.into_iter().all(|hook| hook == annotations::PRE_HOOK));
}

#[rstest]
#[case(NodeState::ImagePreloaded, &["post-drain node-1"], &[])]
#[case(NodeState::PreDrained, &["post-drain node-1"], &[])]
#[case(NodeState::PostDraining, &["post-drain node-1"], &[])]
#[case(NodeState::WaitingReboot, &[], &[])]
#[case(NodeState::PostDrainFailed, &[], &[])]
#[case(NodeState::PostDrained, &[], &["node-1-plan after"])]
fn after_a_drain_a_job_installs_the_system_and_then_the_hook_is_answered(
    #[case] state: NodeState,
    #[case] jobs: &[&str],
    #[case] answered: &[&str],
) {
    let decision = asked_after(state).decide();
    assert_eq!(created_jobs(&decision), jobs);
    assert_eq!(answers(&decision), answered);
}

#[test]
fn what_is_answered_or_empty_is_not_answered_again() {
    let mut model = asked_after(NodeState::PostDrained);
    model.observed.machine_plans[0].post_hook = Some("after".to_owned());
    assert_eq!(answers(&model.decide()), [""; 0]);
    model.observed.machine_plans[0].post_hook = Some("an older token".to_owned());
    assert_eq!(answers(&model.decide()), ["node-1-plan after"]);
    model.observed.machine_plans[0].post_drain = Some(String::new());
    assert_eq!(answers(&model.decide()), [""; 0]);
    let mut unknown = asked_before(NodeState::PreDrained);
    unknown.observed.machine_plans[0].node = None;
    assert_eq!(answers(&unknown.decide()), [""; 0]);
}

#[test]
fn one_node_has_its_turn_and_the_others_wait_by_name() {
    let mut model = asked_before(NodeState::ImagePreloaded);
    model.observed.machine_plans[1].pre_drain = Some("t".to_owned());
    let decision = model.decide();
    assert_eq!(created_jobs(&decision), ["pre-drain node-1"]);
    let turn = "Turn Node node-2: node node-2 waits for its turn: node-1 is in progress, and at most 1 node is upgraded at a time";
    assert!(
        waits(&decision).iter().any(|wait| wait == turn),
        "{:?}",
        waits(&decision)
    );
    // A node in flight continues, whichever hook is opened first.
    set_state(&mut model, "node-2", NodeState::PreDraining);
    assert_eq!(created_jobs(&model.decide()), ["pre-drain node-2"]);
    // Of two in flight, the one that is further.
    set_state(&mut model, "node-1", NodeState::PreDraining);
    set_state(&mut model, "node-2", NodeState::PostDraining);
    assert_eq!(created_jobs(&model.decide()), [""; 0]);
}

#[rstest]
#[case::not_asked(None, None, None, None, true)]
#[case::pre_drain_is_open(Some("t"), None, None, None, true)]
#[case::being_drained(Some("t"), Some("t"), None, None, false)]
#[case::post_drain_is_open(Some("t"), Some("t"), Some("u"), None, false)]
#[case::released(Some("t"), Some("t"), Some("u"), Some("u"), true)]
fn a_node_that_is_done_is_in_flight_between_the_first_answer_and_the_last(
    #[case] pre_drain: Option<&str>,
    #[case] pre_hook: Option<&str>,
    #[case] post_drain: Option<&str>,
    #[case] post_hook: Option<&str>,
    #[case] is_free: bool,
) {
    let mut model = upgrading(3);
    set_state(&mut model, "node-1", NodeState::PostDrained);
    let plan = &mut model.observed.machine_plans[0];
    plan.pre_drain = pre_drain.map(str::to_owned);
    plan.pre_hook = pre_hook.map(str::to_owned);
    plan.post_drain = post_drain.map(str::to_owned);
    plan.post_hook = post_hook.map(str::to_owned);
    model.observed.machine_plans[1].pre_drain = Some("t".to_owned());
    let decision = model.decide();
    let first_is_asked = pre_drain.is_some() && pre_hook.is_none();
    let expected = if is_free && !first_is_asked {
        vec!["pre-drain node-2"]
    } else {
        vec![]
    };
    assert_eq!(created_jobs(&decision), expected);
    if first_is_asked {
        assert_eq!(
            answers(&decision),
            ["node-1-plan t"],
            "it is asked for first, so it has its turn"
        );
    }
}

#[test]
fn a_node_that_is_done_is_drained_once_more_only_alone_and_without_vms_that_would_die() {
    let mut model = asked_before(NodeState::PostDrained);
    assert_eq!(answers(&model.decide()), ["node-1-plan before"]);
    model.observed.immovable_vms.insert("node-1".to_owned(), Vec::new());
    assert_eq!(answers(&model.decide()), ["node-1-plan before"]);
    model
        .observed
        .immovable_vms
        .insert("node-1".to_owned(), vec!["default/a".to_owned()]);
    let one = model.decide();
    assert_eq!(
        (answers(&one).len(), waits_for(&one).contains(&"ImmovableVMs")),
        (0, true)
    );
    let said = waits(&one).join("\n");
    assert!(
        said.contains("would kill a VM that cannot move: default/a; stop or move it, then"),
        "{said}"
    );
    let many = ["a", "b", "c", "d"].map(|name| format!("default/{name}"));
    model.observed.immovable_vms.insert("node-1".to_owned(), many.to_vec());
    let said = waits(&model.decide()).join("\n");
    let words = "would kill VMs that cannot move: default/a, default/b, default/c, …; stop or move them, then";
    assert!(said.contains(words), "{said}");
    model.observed.immovable_vms = Default::default();
    set_state(&mut model, "node-2", NodeState::PreDraining);
    let behind = model.decide();
    assert_eq!(
        (answers(&behind).len(), waits_for(&behind).contains(&"Turn")),
        (0, true)
    );
}

#[test]
fn a_paused_node_gets_a_suspended_job_and_no_turn() {
    let mut model = asked_before(NodeState::ImagePreloaded);
    pause(&mut model, &["node-1"]);
    model.observed.machine_plans[1].pre_drain = Some("t".to_owned());
    let decision = model.decide();
    assert_eq!(
        created_jobs(&decision),
        ["pre-drain node-1 suspended", "pre-drain node-2"]
    );
    pause(&mut model, &["node-3"]);
    assert_eq!(created_jobs(&model.decide()), ["pre-drain node-1"]);
    let mut installing = asked_after(NodeState::PreDrained);
    pause(&mut installing, &["node-1"]);
    assert_eq!(
        created_jobs(&installing.decide()),
        ["post-drain node-1"],
        "what has begun is never suspended"
    );
}

#[rstest]
#[case::paused(true, false, true, false)]
#[case::resumed(true, false, false, true)]
#[case::runs(false, false, false, false)]
#[case::being_deleted(true, true, false, false)]
fn a_suspended_job_is_resumed_when_its_node_is_not_paused(
    #[case] suspended: bool,
    #[case] deleting: bool,
    #[case] paused: bool,
    #[case] resumed: bool,
) {
    let mut model = asked_before(NodeState::UpgradePaused);
    add_job(&mut model, JobType::PreDrain, "node-1", JobOutcome::Running);
    let name = names::node_job("up", JobType::PreDrain, "node-1");
    let job = model.observed.jobs.get_mut(&name).unwrap();
    (job.suspended, job.deleting) = (suspended, deleting);
    if paused {
        pause(&mut model, &["node-1"]);
    }
    let decision = model.decide();
    let resume = Action::ResumeJob { name };
    assert_eq!(decision.actions.contains(&resume), resumed);
    assert_eq!(created_jobs(&decision), [""; 0]);
}

#[rstest]
#[case(None, true)]
#[case(Some("node-1-first"), false)]
#[case(Some("an older boot"), true)]
fn the_boot_of_a_node_is_recorded_before_the_job_that_reboots_it(#[case] noted: Option<&str>, #[case] expected: bool) {
    let mut model = asked_after(NodeState::PreDrained);
    model.observed.nodes.get_mut("node-1").unwrap().boot_id_before_upgrade = noted.map(str::to_owned);
    let decision = model.decide();
    let boot = Some("node-1-first".to_owned());
    let annotate = Action::AnnotateNode {
        node: "node-1".to_owned(),
        annotations: [(annotations::BOOT_ID_BEFORE_UPGRADE.to_owned(), boot)].into(),
    };
    assert_eq!(
        decision.actions.first() == Some(&annotate),
        expected,
        "{:?}",
        decision.actions
    );
    assert_eq!(created_jobs(&decision), ["post-drain node-1"]);
    let emptying = asked_before(NodeState::ImagePreloaded).decide();
    assert!(
        !emptying
            .actions
            .iter()
            .any(|action| matches!(action, Action::AnnotateNode { .. }))
    );
}

#[rstest]
#[case(NodeState::PreDrainFailed, &["pre-drain node-1"])]
#[case(NodeState::PostDrainFailed, &["post-drain node-1"])]
fn a_step_that_is_retried_gets_its_job_again(#[case] state: NodeState, #[case] jobs: &[&str]) {
    let mut model = match state {
        NodeState::PreDrainFailed => asked_before(state),
        _ => asked_after(state),
    };
    set_retrying(&mut model, "node-1", state);
    assert_eq!(created_jobs(&model.decide()), jobs);
}

#[rstest]
#[case(NodeState::PreDrainFailed)]
#[case(NodeState::PostDrainFailed)]
fn no_node_begins_while_one_has_failed(#[case] state: NodeState) {
    let mut model = upgrading(3);
    set_state(&mut model, "node-1", state);
    model.observed.machine_plans[1].pre_drain = Some("t".to_owned());
    let decision = model.decide();
    assert_eq!(created_jobs(&decision), [""; 0]);
    assert_eq!(decision.status.current_phase.as_deref(), Some("Failed"));
}
