//! Pods: those that should be ready and are not.

use api::pod;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{Found, Question, found::together};
use crate::finding::{Missing, needed};

/// Pods that start need some time.
const STARTING: SignedDuration = SignedDuration::from_mins(10);
/// A container that was restarted so often is in a loop.
const RESTARTS: i32 = 20;

/// A pod that has ended well, or says that it is ready.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Succeeded") || pod::is_ready(pod)
}

/// Since when a pod is as it is.
fn since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_deref().unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    let changed = ready.and_then(|condition| condition.last_transition_time.as_ref());
    changed.or(pod.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

pub(super) fn are_ready(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let pods = needed(&question.snapshot.pods, "pods")?;
    let now = question.snapshot.taken_at;
    let is_late = |pod: &&Pod| since(pod).is_none_or(|since| now.duration_since(since) > STARTING);
    let unready: Vec<&Pod> = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        // A Job creates another pod for one that failed.
        .filter(|pod| {
            !pod.metadata
                .owner_references
                .iter()
                .flatten()
                .any(|owner| owner.kind == "Job")
        })
        .filter(|pod| !is_ready(pod))
        .filter(is_late)
        .collect();
    Ok(together("pods are not ready", &unready))
}

pub(super) fn do_not_crash(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let pods = needed(&question.snapshot.pods, "pods")?;
    let crashing: Vec<&Pod> = pods
        .iter()
        .filter(|pod| {
            let statuses = pod
                .status
                .iter()
                .flat_map(|status| status.container_statuses.iter().flatten());
            let mut waiting = statuses.filter_map(|status| {
                let reason = status.state.as_ref()?.waiting.as_ref()?.reason.as_deref()?;
                Some((status.restart_count, reason))
            });
            waiting.any(|(restarts, reason)| {
                matches!(reason, "ImagePullBackOff" | "ErrImagePull")
                    || (reason == "CrashLoopBackOff" && restarts >= RESTARTS)
            })
        })
        .collect();
    Ok(together(
        "containers crash again and again, or their images cannot be pulled",
        &crashing,
    ))
}

/// A pod that is being deleted for long keeps a drain from ending.
pub(super) fn end_in_time(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let pods = needed(&question.snapshot.pods, "pods")?;
    let now = question.snapshot.taken_at;
    let stuck: Vec<&Pod> = pods
        .iter()
        .filter(|pod| {
            let deleted = pod.metadata.deletion_timestamp.as_ref();
            deleted.is_some_and(|deleted| now.duration_since(deleted.0) > STARTING)
        })
        .collect();
    let found = together("pods have been terminating for more than ten minutes", &stuck).into_iter();
    let commands: Vec<String> = stuck
        .iter()
        .take(3)
        .map(|pod| {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            format!("kubectl describe pod {} -n {namespace}", pod.name_any())
        })
        .collect();
    Ok(found
        .map(|found| Found {
            commands: commands.clone(),
            ..found
        })
        .collect())
}
