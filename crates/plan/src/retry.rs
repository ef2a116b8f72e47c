//! Another try of a plan that failed: from the phase that failed, keeping what was reached.
//!
//! A user asks for it with a new value of the annotation `management.harvesterhci.io/retry`.

use api::{
    NodeState, NodeUpgradeStatus, Phase, UpgradePlanStatus, annotations,
    labels::{component, job_type},
};

use crate::{
    decision::{Action, ChildKind, Decision},
    draft::Draft,
    node,
    observed::{JobOutcome, JobSeen},
    pipeline::{self, PIPELINE},
};

/// The user asks for another try.
#[must_use]
pub fn is_wanted(draft: &Draft<'_>) -> bool {
    let asked = draft.seen.plan.annotation(annotations::RETRY);
    asked.is_some() && asked != draft.seen.plan.annotation(annotations::RETRIED)
}

/// Starts another try, once what failed is out of the way.
#[must_use]
pub fn resume(mut draft: Draft<'_>) -> Decision {
    let failed = draft.seen.jobs.iter().filter(|(_, job)| is_in_the_way(&draft, job));
    let failed: Vec<Action> = failed
        .map(|(name, job)| Action::DeleteJob {
            namespace: job.namespace.clone(),
            name: name.clone(),
        })
        .collect();
    if !failed.is_empty() {
        failed.into_iter().for_each(|action| draft.act(action));
        return draft.unchanged();
    }
    // An image that could not be imported is imported anew; nobody would try it again by itself.
    let image = draft.seen.iso_image.as_ref();
    if image.is_some_and(|image| image.ours && image.imported == Some(false)) {
        draft.act(Action::Delete {
            kind: ChildKind::Image,
            component: component::ISO.to_owned(),
            job_type: None,
        });
        return draft.unchanged();
    }
    draft.set_finalizer(true);
    let phase = resumed_phase(draft.status());
    let single = draft.status().single_node.is_some();
    for entry in draft.status_mut().node_upgrade_statuses.values_mut() {
        reset(entry, single);
    }
    draft.enter(phase);
    draft.finish((true, api::reasons::EXECUTABLE, ""), true, None)
}

/// A Job that failed, or that ended well on a node which then failed its step: one that came back with the old system has
/// had its installation, and needs another one. VMs that were started again after the failure are stopped again for a node
/// that is not done, so the Job that started them must make room for another one.
fn is_in_the_way(draft: &Draft<'_>, job: &JobSeen) -> bool {
    let state = job.node.as_deref().and_then(|node| draft.progress(node).state());
    let step = match state {
        Some(NodeState::PreDrainFailed) => Some(job_type::PRE_DRAIN),
        Some(NodeState::PostDrainFailed) => Some(job_type::POST_DRAIN),
        Some(NodeState::SingleNodeUpgradeFailed) => Some(job_type::SINGLE_NODE_UPGRADE),
        _ => None,
    };
    let repeated = step.is_some() && job.job_type.as_deref() == step;
    let is_done = state.is_some_and(node::is_upgraded);
    let starts_vms = job.job_type.as_deref() == Some(job_type::RESTORE_VM) && !is_done;
    // The Plan that made it is gone. Another one of its name would take it for its own.
    let is_left_over = job.owner.is_some() && !draft.seen.suc_plans.contains_key(&job.component);
    repeated || starts_vms || is_left_over || matches!(job.outcome, JobOutcome::Failed { .. })
}

/// Notes which wish the running try is for. Only once the try has begun: metadata is written before status, and a wish
/// noted while the plan still says Failed would be lost with the status.
pub fn note(draft: &mut Draft<'_>) {
    let asked = draft.seen.plan.annotation(annotations::RETRY).map(str::to_owned);
    if asked.is_some() {
        draft.annotate(annotations::RETRIED, asked);
    }
}

/// What the plan had completed before it failed: everything that the failed phase needs is made sure of again.
fn resumed_phase(status: &UpgradePlanStatus) -> Phase {
    let history = status.phase_transition_timestamps.iter().rev();
    let last = history
        .filter_map(|change| change.phase.parse::<Phase>().ok())
        .find(|phase| *phase != Phase::Failed);
    let Some((entry, _)) = last.and_then(pipeline::find) else {
        return Phase::Initializing;
    };
    if last == Some(entry.completed) {
        return entry.completed;
    }
    let at = PIPELINE
        .iter()
        .position(|other| other.active == entry.active)
        .unwrap_or_default();
    at.checked_sub(1)
        .map_or(Phase::Initializing, |before| PIPELINE[before].completed)
}

/// A state that says what could not be reached becomes the one that had been reached.
fn reset(entry: &mut NodeUpgradeStatus, single: bool) {
    let reached = match entry.state.as_deref().and_then(NodeState::parse) {
        Some(NodeState::ImagePreloadFailed) => Some(NodeState::ImagePreloading),
        Some(NodeState::PreDrainFailed | NodeState::SingleNodeUpgradeFailed) => Some(NodeState::ImagePreloaded),
        Some(NodeState::PostDrainFailed) => Some(NodeState::PreDrained),
        Some(NodeState::ImageCleanFailed) if single => Some(NodeState::SingleNodeUpgraded),
        Some(NodeState::ImageCleanFailed) => Some(NodeState::PostDrained),
        _ => return,
    };
    entry.state = reached.map(|state| state.to_string());
    entry.reason = None;
    entry.message = None;
}
