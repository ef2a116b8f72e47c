//! Nodes that another client has upgraded: what they run and what was written to Rancher counts.

use api::{JobType, NodeState, annotations};
use plan::observed::JobOutcome;

use crate::{
    model::{Model, OS},
    small::{add_job, note, reached, set_retrying, set_state, upgrading},
};

/// Every node runs what the release has.
fn current(model: &mut Model, node: &str) {
    let node = model.observed.nodes.get_mut(node).unwrap();
    node.os_image = OS.to_owned();
    node.kubelet_version = "v1.35.2+rke2r1".to_owned();
}

#[test]
fn a_single_node_that_runs_the_release_is_done_unless_its_job_is_at_work() {
    let mut model = upgrading(1);
    let state = |model: &Model| reached(&model.decide(), "node-1").0;
    assert_eq!(state(&model), Some(NodeState::ImagePreloaded));
    current(&mut model, "node-1");
    assert_eq!(state(&model), Some(NodeState::SingleNodeUpgraded));
    for spoil in [
        (|node| node.ready = false) as fn(&mut plan::observed::ObservedNode),
        |node| node.os_image = "Harvester v1.7.1".to_owned(),
        |node| node.kubelet_version = "v1.34.0+rke2r1".to_owned(),
    ] {
        let mut old = model.clone();
        spoil(old.observed.nodes.get_mut("node-1").unwrap());
        assert_eq!(state(&old), Some(NodeState::ImagePreloaded));
    }
    set_state(&mut model, "node-1", NodeState::SingleNodeUpgrading);
    assert_eq!(state(&model), Some(NodeState::SingleNodeUpgrading));
    set_retrying(&mut model, "node-1", NodeState::SingleNodeUpgradeFailed);
    assert_eq!(state(&model), Some(NodeState::SingleNodeUpgraded));
    set_retrying(&mut model, "node-1", NodeState::SingleNodeUpgradeFailed);
    add_job(&mut model, JobType::SingleNodeUpgrade, "node-1", JobOutcome::Running);
    assert_eq!(state(&model), Some(NodeState::SingleNodeUpgradeFailed));
}

/// An upgrade that was taken over while node-1 runs the release already, and Rancher has released it.
fn taken_over() -> Model {
    let mut model = upgrading(3);
    note(&mut model, annotations::TAKEN_OVER, "true");
    current(&mut model, "node-1");
    model
}

#[test]
fn after_a_take_over_a_node_that_runs_the_release_is_through() {
    let state = |model: &Model| reached(&model.decide(), "node-1").0;
    let model = taken_over();
    assert_eq!(state(&model), Some(NodeState::PostDrained));
    assert_eq!(reached(&model.decide(), "node-2").0, Some(NodeState::ImagePreloaded));
    let spoils: [fn(&mut Model); 6] = [
        |model| note(model, annotations::TAKEN_OVER, "false"),
        |model| model.observed.nodes.get_mut("node-1").unwrap().ready = false,
        |model| model.observed.nodes.get_mut("node-1").unwrap().managed = false,
        |model| model.observed.machine_plans[0].pre_drain = Some("t".to_owned()),
        |model| drop(model.observed.machine_plans.remove(0)),
        // From a version to itself all nodes are current from the beginning.
        |model| ["node-2", "node-3"].into_iter().for_each(|node| current(model, node)),
    ];
    for (number, spoil) in spoils.into_iter().enumerate() {
        let mut spoilt = model.clone();
        spoil(&mut spoilt);
        assert_ne!(state(&spoilt), Some(NodeState::PostDrained), "{number}");
    }
    let mut all_current = model.clone();
    ["node-2", "node-3"]
        .into_iter()
        .for_each(|node| current(&mut all_current, node));
    all_current.observed.cluster.as_mut().unwrap().ready = true;
    assert_eq!(
        state(&all_current),
        Some(NodeState::PostDrained),
        "Rancher has nothing left to do"
    );
    let mut begun = model.clone();
    set_state(&mut begun, "node-1", NodeState::PreDraining);
    assert_eq!(
        state(&begun),
        Some(NodeState::PreDraining),
        "what this plan has begun it ends itself"
    );
    let mut again = model;
    set_retrying(&mut again, "node-1", NodeState::PostDrainFailed);
    assert_eq!(state(&again), Some(NodeState::PostDrained));
    add_job(&mut again, JobType::PostDrain, "node-1", JobOutcome::Running);
    assert_eq!(state(&again), Some(NodeState::PostDrainFailed));
}

#[test]
fn a_node_whose_hook_is_answered_is_past_it_whichever_client_answered() {
    let mut model = upgrading(3);
    let plan = &mut model.observed.machine_plans[0];
    plan.pre_drain = Some("t".to_owned());
    let state = |model: &Model| reached(&model.decide(), "node-1").0;
    assert_eq!(state(&model), Some(NodeState::ImagePreloaded));
    model.observed.machine_plans[0].pre_hook = Some("t".to_owned());
    assert_eq!(state(&model), Some(NodeState::PreDrained));
    model.observed.machine_plans[0].post_drain = Some("u".to_owned());
    assert_eq!(state(&model), Some(NodeState::PreDrained));
    current(&mut model, "node-1");
    assert_eq!(
        state(&model),
        Some(NodeState::PostDrained),
        "another plan has brought it through"
    );
    let mut tainted = model.clone();
    tainted.observed.nodes.get_mut("node-1").unwrap().drain_taint = true;
    assert_eq!(state(&tainted), Some(NodeState::PreDrained));
    let mut ours = model.clone();
    add_job(&mut ours, JobType::PreDrain, "node-1", JobOutcome::Complete);
    assert_eq!(
        state(&ours),
        Some(NodeState::PreDrained),
        "what this plan has begun it ends itself"
    );
    let mut unmanaged = model.clone();
    unmanaged.observed.nodes.get_mut("node-1").unwrap().managed = false;
    assert_eq!(state(&unmanaged), Some(NodeState::ImagePreloaded));
}

#[test]
fn an_answered_hook_says_nothing_of_a_single_node_or_of_one_that_is_past_its_first_job() {
    let answered = |nodes: usize, state: NodeState| {
        let mut model = upgrading(nodes);
        set_state(&mut model, "node-1", state);
        let plan = &mut model.observed.machine_plans[0];
        (plan.pre_drain, plan.pre_hook) = (Some("t".to_owned()), Some("t".to_owned()));
        model
    };
    let state = |model: &Model| reached(&model.decide(), "node-1").0;
    assert_eq!(
        state(&answered(1, NodeState::ImagePreloaded)),
        Some(NodeState::ImagePreloaded)
    );
    assert_eq!(
        state(&answered(3, NodeState::ImagePreloaded)),
        Some(NodeState::PreDrained)
    );
    let failed = answered(3, NodeState::PreDrainFailed);
    assert_eq!(state(&failed), Some(NodeState::PreDrainFailed), "a failure stays one");
    let mut again = failed;
    set_retrying(&mut again, "node-1", NodeState::PreDrainFailed);
    assert_eq!(state(&again), Some(NodeState::PreDrained), "unless it is tried again");
}
