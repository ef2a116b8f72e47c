//! Stops the programs of the upgrade before anything is restored: one that still runs would change it again.
//!
//! A Job that is gone says nothing about its pod: where Jobs are deleted by others, or by system-upgrade-controller, pods
//! outlive them. So what counts is the pods.

use std::collections::{BTreeMap, BTreeSet};

use api::{Component, JobType, Wait};

use super::Ending;
use crate::{
    draft::Draft,
    observed::{JobOutcome, ObservedJob, ObservedPod, name_of},
};

/// How many of those that still run are named; the others are counted.
const NAMED: usize = 5;

/// The programs of an upgrade that change the cluster. Those that put something back are none of them, nor are those that
/// start VMs again and those that serve.
fn changes(component: Component, step: Option<JobType>) -> bool {
    match component {
        Component::NodeUpgrade => step != Some(JobType::RestoreVm),
        Component::ClusterUpgrade
        | Component::SuspendAgent
        | Component::ImagePreload
        | Component::ImageCleanup
        | Component::SkipManifestsApply => true,
        Component::Iso | Component::Repo | Component::ImageCheck | Component::SkipManifestsRemove => false,
    }
}

/// A Job that is stopped though the upgrade has failed and Jobs are kept for their logs: what it changes is restored. That
/// of another node which installs its system is let end.
pub(super) fn is_stopped_on_failure(job: &ObservedJob) -> bool {
    let touches = job.component == Component::ClusterUpgrade || job.job_type == Some(JobType::PreDrain);
    touches && job.outcome == JobOutcome::Running && !job.suspended
}

/// Stops what must not run on and has not been stopped with everything else.
pub(super) fn stop(draft: &mut Draft<'_>, ending: Ending) {
    let observed = draft.observed;
    if ending != Ending::Failure {
        return;
    }
    let running = observed.jobs.iter().filter(|(_, job)| is_stopped_on_failure(job));
    for (key, job) in running.filter(|(_, job)| !job.deleting) {
        draft.delete_job(key, job);
    }
}

/// Waits until nothing runs that could change restored settings again; returns whether to continue. A pod on a node that is down
/// does not end before the node is back or an administrator deletes the pod: the plan waits at most until the deadline.
pub(super) fn are_gone(draft: &mut Draft<'_>, ending: Ending) -> Gone {
    let running = running(draft, ending);
    if running.is_empty() {
        return Gone::Yes;
    }
    let mut names: Vec<String> = running.iter().take(NAMED).cloned().collect();
    if running.len() > NAMED {
        names.push(format!("{} more", running.len() - NAMED));
    }
    let message = format!(
        "programs of the upgrade still run, and no setting is restored before they have ended: {}; a pod whose node is down \
         ends when the node is back, or with kubectl delete pod --force --grace-period=0",
        names.join(", ")
    );
    let object = Some(format!("UpgradePlan {}", draft.plan_name()));
    if draft.wait_at_most(Wait::StillRunning, object, message) {
        Gone::GivenUp
    } else {
        Gone::No
    }
}

/// Whether all programs have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// They have.
    Yes,
    /// Not yet.
    No,
    /// Not all, and the plan no longer waits for the others.
    GivenUp,
}

/// What runs and is to end, as users see it.
fn running(draft: &Draft<'_>, ending: Ending) -> BTreeSet<String> {
    let observed = draft.observed;
    let is_to_end = |job: &ObservedJob| {
        let is_kept = ending == Ending::Failure && job.owner.is_none() && !is_stopped_on_failure(job);
        job.deleting || !is_kept
    };
    let works = |job: &ObservedJob| {
        changes(job.component, job.job_type) && job.outcome == JobOutcome::Running && !job.suspended
    };
    let jobs = observed.jobs.iter().filter(|(_, job)| works(job) && is_to_end(job));
    let by_uid: BTreeMap<&String, &ObservedJob> = observed
        .jobs
        .values()
        .filter_map(|job| Some((job.uid.as_ref()?, job)))
        .collect();
    // The pod of a Job that runs on is that Job's affair.
    let is_left = |pod: &ObservedPod| {
        let job = pod.owner.as_ref().and_then(|uid| by_uid.get(uid));
        !job.is_some_and(|job| works(job) && !is_to_end(job))
    };
    let pods = observed
        .pods
        .values()
        .filter(|pod| pod.works && changes(pod.component, pod.job_type) && is_left(pod));
    let owners: BTreeSet<&String> = pods.clone().filter_map(|pod| pod.owner.as_ref()).collect();
    // Where the pod is known, it says more than its Job.
    let jobs = jobs.filter(|(_, job)| !job.uid.as_ref().is_some_and(|uid| owners.contains(uid)));
    let jobs = jobs.map(|(key, job)| format!("Job {}/{}", job.namespace, name_of(key)));
    let pods = pods.map(|pod| match &pod.node {
        Some(node) => format!("Pod {} on node {node}", pod.name),
        None => format!("Pod {}", pod.name),
    });
    pods.chain(jobs).collect()
}
