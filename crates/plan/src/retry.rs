//! A retry of a failed plan: from the failed phase, keeping completed work.
//!
//! A user requests it with a new value of the annotation `management.harvesterhci.io/retry`.

use api::{Component, JobType, NodeState, Phase, UpgradePlan, UpgradePlanStatus, Wait, annotations, reasons};

use jiff::Timestamp;

use crate::{
    decision::{Action, ChildKind, Decision},
    draft::Draft,
    node,
    observed::{JobOutcome, ObservedJob, name_of},
    phase::node_upgrade,
    pipeline::{self, PIPELINE},
};
use rules::version;

/// What the message of a node that is tried again begins with.
const BEFORE: &str = "tried again after: ";

/// A user requests a retry of the plan that has not begun.
#[must_use]
pub fn is_asked_for(plan: &UpgradePlan) -> bool {
    let asked = plan.annotation(annotations::RETRY);
    asked.is_some() && asked != plan.note(annotations::RETRIED)
}

/// Starts a retry, once failed objects are removed.
#[must_use]
pub fn resume(mut draft: Draft<'_>) -> Decision {
    if let Some(why) = overtaken(&draft).or_else(|| node_upgrade::is_gated_for_another(&draft)) {
        return refused(draft, &why);
    }
    let jobs = draft.observed.jobs.iter();
    let in_the_way: Vec<(&String, &ObservedJob)> = jobs
        .filter(|(_, job)| job.deleting || is_in_the_way(&draft, job))
        .collect();
    if !in_the_way.is_empty() {
        return make_room(draft, &in_the_way);
    }
    // An image that could not be imported is imported again; nothing else would retry it.
    let image = draft.observed.iso_image.as_ref();
    if image.is_some_and(|image| image.ours && image.imported == Some(false)) {
        draft.act(Action::Delete {
            kind: ChildKind::Image,
            component: Component::Iso,
            job_type: None,
        });
        return draft.unchanged();
    }
    draft.set_finalizer(true);
    // From another version than the plan began with, everything is looked at again.
    let phase = match has_moved(&draft) {
        true => Phase::Initializing,
        false => resumed_phase(draft.status()),
    };
    // Nodes load their images again, so they can as well load those of another manager.
    if phase < Phase::ImagePreloading {
        draft.note(annotations::TOOLKIT_IMAGE, None);
        // No node has read from the repository, so it may as well have another certificate: the Secret may be gone.
        *draft.record().repository = None;
    }
    if phase <= Phase::Initialized {
        *draft.record().preflight = None;
    }
    // What is worse than before is looked for at the end of this try. The record stays: it is of before the first one.
    *draft.record().postflight = None;
    try_again(&mut draft);
    node_upgrade::take_over_again(&mut draft);
    draft.enter(phase);
    draft.finish((true, api::reasons::EXECUTABLE, ""), true, None)
}

/// The cluster runs neither the version that the plan began with nor its release: another plan has upgraded it since.
fn has_moved(draft: &Draft<'_>) -> bool {
    let status = draft.status();
    let release = status.release_metadata.as_ref();
    let target = release.and_then(|release| release.harvester.as_deref());
    let running = draft.observed.server_version.as_deref().filter(|text| !text.is_empty());
    let began = status.previous_version.as_deref();
    running.is_some() && began.is_some() && running != began && running != target
}

/// Why a retry would downgrade the cluster: another plan has upgraded it further since, or has begun to. What a plan was
/// forced to do when it began it is not forced to do with another cluster.
fn overtaken(draft: &Draft<'_>) -> Option<String> {
    let status = draft.status();
    let target = status.release_metadata.as_ref()?.harvester.as_deref()?;
    let running = draft.observed.server_version.as_deref().unwrap_or_default();
    if has_moved(draft) && version::is_beyond(running, target) {
        return Some(format!(
            "the cluster runs {running} by now (Setting server-version), and a retry would downgrade it to {target}: \
             create an UpgradePlan for a release that {running} can be upgraded to, or delete this one"
        ));
    }
    let failed_at = failed_at(status)?;
    let mut others = draft.observed.other_plans.iter().rev();
    others.find_map(|other| {
        let begun = other.begun.as_ref().filter(|begun| begun.at > failed_at)?;
        version::is_beyond(&begun.harvester, target).then(|| {
            format!(
                "UpgradePlan {} has begun to upgrade the cluster to {} since this plan failed, and a retry would \
                 downgrade components to {target}: retry that plan (annotation {}), or create another one for {}",
                other.name,
                begun.harvester,
                annotations::RETRY,
                begun.harvester
            )
        })
    })
}

/// When the plan failed last.
pub(crate) fn failed_at(status: &UpgradePlanStatus) -> Option<Timestamp> {
    let mut history = status.phase_transition_timestamps.iter().rev();
    let failed = history.find(|change| change.phase == Phase::Failed.as_str())?;
    Some(failed.phase_transition_timestamp.0)
}

/// A try that ends before it begins: nothing is changed, and the plan says why.
fn refused(mut draft: Draft<'_>, why: &str) -> Decision {
    draft.set_finalizer(false);
    note(&mut draft);
    draft.fail(why);
    let ended = (false, reasons::EXECUTED, reasons::EXECUTED_MESSAGE);
    draft.finish(ended, false, Some(why.to_owned()))
}

/// Deletes what is left of the try before. A Job is there until its pods are gone, and those may be on a node that is down.
fn make_room(mut draft: Draft<'_>, jobs: &[(&String, &ObservedJob)]) -> Decision {
    for (key, job) in jobs.iter().filter(|(_, job)| !job.deleting) {
        // What a Plan has made goes with it. Of what one has left, only its name shows that it was ours: it must not be
        // delete, and goes by itself.
        if job.owner.is_none() {
            draft.delete_job(key, job);
        } else if draft
            .observed
            .suc_plans
            .get(&job.component)
            .is_some_and(|plan| !plan.deleting)
        {
            draft.act(Action::Delete {
                kind: ChildKind::SucPlan,
                component: job.component,
                job_type: None,
            });
        }
    }
    let names: Vec<String> = jobs
        .iter()
        .map(|(key, job)| format!("{}/{}", job.namespace, name_of(key)))
        .collect();
    let message = format!(
        "the retry of this plan begins when the Jobs of the previous attempt are gone with their pods: {}; a pod whose node is down \
         ends when the node is back, or with kubectl delete pod --force --grace-period=0",
        names.join(", ")
    );
    let object = format!("UpgradePlan {}", draft.plan_name());
    draft.wait(Wait::StillRunning, Some(object), message);
    draft.still_ended()
}

/// A Job that failed, or that ended well on a node which then failed its step: one that came back with the old system has
/// had its installation, and needs another one. VMs that were started again after the failure are stopped again for a node
/// that is not done, so the Job that started them must make room for another one.
fn is_in_the_way(draft: &Draft<'_>, job: &ObservedJob) -> bool {
    let state = job.node.as_deref().and_then(|node| draft.progress(node).state());
    let step = match state {
        Some(NodeState::PreDrainFailed) => Some(JobType::PreDrain),
        Some(NodeState::PostDrainFailed) => Some(JobType::PostDrain),
        Some(NodeState::SingleNodeUpgradeFailed) => Some(JobType::SingleNodeUpgrade),
        _ => None,
    };
    let repeated = step.is_some() && job.job_type == step;
    let is_done = state.is_some_and(node::is_upgraded);
    let starts_vms = job.job_type == Some(JobType::RestoreVm) && !is_done;
    // Another Plan of the name of the one that made it would take it for its own.
    repeated || job.left_over || starts_vms || matches!(job.outcome, JobOutcome::Failed { .. })
}

/// Records which request the running attempt is for. Only once it has begun: a plan that is still Failed must find its request
/// unrecorded.
pub fn note(draft: &mut Draft<'_>) {
    let asked = draft.observed.plan.annotation(annotations::RETRY).map(str::to_owned);
    if asked.is_some() {
        draft.note(annotations::RETRIED, asked);
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

/// States never go back: a node whose step failed stays where it is, and says that the step is tried again until the try
/// has its own end.
fn try_again(draft: &mut Draft<'_>) {
    let failed: Vec<(String, String)> = draft
        .status()
        .node_upgrade_statuses
        .iter()
        .filter(|(_, entry)| entry.progress().state().is_some_and(node::is_failure))
        .map(|(name, entry)| (name.clone(), entry.message.clone().unwrap_or_default()))
        .collect();
    for (name, why) in failed {
        let why = why.strip_prefix(BEFORE).unwrap_or(&why);
        draft.set_reason(&name, Some(reasons::RETRYING), Some(&format!("{BEFORE}{why}")));
    }
}
