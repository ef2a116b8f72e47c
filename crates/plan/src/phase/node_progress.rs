//! The states of nodes in NodeUpgrade, and whose turn it is.

use std::cmp::Reverse;

use api::{JobType, NodeState, Wait, names};

use super::hooks;
use crate::{
    draft::Draft,
    node::{self, Stage},
    observed::{JobOutcome, ObservedMachinePlan},
};

/// How many nodes may be in flight at once. Rancher keeps to its own limit, but lets machines past it whose last plan
/// failed or that were never well since; so this is kept here.
const AT_ONCE: usize = 1;

/// What a node is at: its state; or, where what failed is tried again, the state it would be in if it had not failed.
/// The record itself never goes back.
pub(super) fn node_progress(draft: &Draft<'_>, node: &str) -> Option<NodeState> {
    let state = draft.progress(node).state()?;
    if !draft.is_tried_again(node) {
        return Some(state);
    }
    let ended = |step: JobType| {
        let name = names::node_job(draft.plan_name(), step, node);
        let job = draft.observed.jobs.get(&name);
        job.is_some_and(|job| job.outcome == JobOutcome::Complete)
    };
    let step = match state {
        NodeState::PreDrainFailed => Some(JobType::PreDrain),
        NodeState::SingleNodeUpgradeFailed => Some(JobType::SingleNodeUpgrade),
        _ => None,
    };
    // A step that has not begun again is paused as the first time; one that has begun is never paused.
    let is_paused = step.is_some_and(|step| {
        let job = draft.observed.jobs.get(&names::node_job(draft.plan_name(), step, node));
        hooks::is_paused(draft, node) && job.is_none_or(|job| job.suspended)
    });
    Some(match state {
        _ if is_paused => NodeState::UpgradePaused,
        NodeState::PreDrainFailed => NodeState::PreDraining,
        NodeState::PostDrainFailed if ended(JobType::PostDrain) => NodeState::WaitingReboot,
        NodeState::PostDrainFailed => NodeState::PostDraining,
        NodeState::SingleNodeUpgradeFailed if ended(JobType::SingleNodeUpgrade) => NodeState::WaitingReboot,
        NodeState::SingleNodeUpgradeFailed => NodeState::SingleNodeUpgrading,
        other => other,
    })
}

/// The machine-plan Secret of a node.
pub(super) fn machine_plan<'a>(draft: &Draft<'a>, node: &str) -> Option<&'a ObservedMachinePlan> {
    let mut plans = draft.observed.machine_plans.iter();
    plans.find(|plan| plan.node.as_deref() == Some(node))
}

/// The progress of a node that is being evacuated, upgraded or rebooted, or whose last hook is not answered yet;
/// nothing for all others.
fn in_flight(draft: &Draft<'_>, node: &str) -> Option<Stage> {
    let state = node_progress(draft, node).filter(|_| draft.observed.nodes.contains_key(node))?;
    let stage = Stage::of(state);
    // Rancher keeps its hooks until it has uncordoned the node: a completed node is in progress again between the first answer
    // and the last.
    let asked = machine_plan(draft, node).is_some_and(|plan| {
        let has_last_answer = plan.post_drain.is_some() && plan.pending_post_drain().is_none();
        plan.is_in_drain() && plan.pending_pre_drain().is_none() && !has_last_answer
    });
    let is_under_way = match state {
        _ if node::is_upgraded(state) => asked,
        _ if node::is_upgrade_failure(state) => true,
        _ => stage.is_in_flight(),
    };
    is_under_way.then_some(stage)
}

/// The nodes whose Jobs may run: those in progress, the furthest first, then those that Rancher requests, as many as may be
/// in flight at once. Several may be in flight where Rancher, or a plan before this one, began with several: then they
/// continue one after the other.
pub(super) fn turns(draft: &Draft<'_>) -> Vec<String> {
    let names = draft.status().node_upgrade_statuses.keys();
    let mut flying: Vec<(Reverse<Stage>, &String)> = names
        .filter_map(|name| Some((Reverse(in_flight(draft, name)?), name)))
        .collect();
    flying.sort();
    let asked = draft.observed.machine_plans.iter().filter_map(|plan| {
        let node = plan.node.as_ref().filter(|_| plan.pending_pre_drain().is_some())?;
        let is_new = in_flight(draft, node).is_none() && !hooks::is_paused(draft, node);
        is_new.then_some(node)
    });
    let flying = flying.into_iter().map(|(_, name)| name);
    flying.chain(asked).take(AT_ONCE).cloned().collect()
}

/// Notes that a node waits for those whose turn it is.
pub(super) fn wait_for_turn(draft: &mut Draft<'_>, node: &str, turns: &[String]) {
    let names = turns.join(", ");
    let message = format!(
        "node {node} waits for its turn: {names} is in progress, and at most {AT_ONCE} node is upgraded at a time"
    );
    draft.wait(Wait::Turn, Some(format!("Node {node}")), message);
}
