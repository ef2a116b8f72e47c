//! Plans that a user deletes while they run: in each phase, and in each state of each node.

use api::{NodeState, Phase};

use super::failure::{Cluster, Failure, Stop};

/// Whether a node of a plan that runs can be in a state. In a state of failure the plan fails with it: that is what Jobs
/// are for that go wrong.
pub(super) const fn is_reached(state: NodeState, on: Cluster) -> bool {
    let is_single = on.is_single();
    match state {
        NodeState::ImagePreloading
        | NodeState::ImagePreloaded
        | NodeState::UpgradePaused
        | NodeState::WaitingReboot
        | NodeState::ImageCleaning
        | NodeState::ImageCleaned => true,
        NodeState::PreDraining | NodeState::PreDrained | NodeState::PostDraining | NodeState::PostDrained => !is_single,
        NodeState::SingleNodeUpgrading | NodeState::SingleNodeUpgraded => is_single,
        NodeState::ImagePreloadFailed
        | NodeState::PreDrainFailed
        | NodeState::PostDrainFailed
        | NodeState::SingleNodeUpgradeFailed
        | NodeState::ImageCleanFailed => false,
    }
}

/// All of them.
pub(super) fn all() -> Vec<Failure> {
    let phases = Phase::ALL.into_iter().filter(|phase| !phase.is_terminal());
    let mut failures: Vec<Failure> = phases
        .map(|phase| Failure {
            name: format!("deleted in {phase}"),
            cluster: Cluster::Three,
            stop: Stop::DeletedAt(phase),
        })
        .collect();
    for on in [Cluster::Three, Cluster::One] {
        for node in on.nodes() {
            let states = NodeState::ALL.into_iter().filter(|state| is_reached(*state, on));
            failures.extend(states.map(|state| at_node(on, node, state)));
        }
    }
    failures
}

/// A plan that is deleted while a node is in a state.
pub(super) fn at_node(on: Cluster, node: &str, state: NodeState) -> Failure {
    Failure {
        name: format!("deleted while {node} is {state}"),
        cluster: on,
        stop: Stop::DeletedAtNode(node.to_owned(), state),
    }
}
