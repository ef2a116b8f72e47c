//! The Job controller: one pod at a time per Job, replaced when it fails, until it succeeds or the backoff limit is
//! reached. Respects `suspend`, `parallelism: 0`, `activeDeadlineSeconds` and `ttlSecondsAfterFinished`.
//!
//! The n-th pod of a Job is named after it, so that a controller that restarts finds its pods and counts them.

use std::{sync::Arc, time::Duration};

use api::pod::{finished_at, has_ended};
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use serde_json::{Value, json};

use crate::{
    context::{Context, after, controlled_by, digest, owner, phase},
    error::Result,
    inbox::{Inbox, Key, Kind},
    schedule,
    watched::key_of,
};

/// On a pod: how many pods its Job had before.
pub(crate) const ATTEMPT: &str = "world.upgrade-toolkit/attempt";

const DEFAULT_BACKOFF_LIMIT: i32 = 6;
const LONGEST_BACKOFF: Duration = Duration::from_mins(10);
/// How soon a pod that fits on no node is tried again.
const UNSCHEDULABLE_PAUSE: Duration = Duration::from_secs(5);

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.jobs.subscribe(&inbox);
    world.pods.subscribe(&inbox);
    loop {
        let (kind, key) = inbox.next().await;
        if kind == Kind::Pod {
            let job = world
                .pods
                .at(&key)
                .and_then(|pod| owner(&pod.metadata, "Job").map(|owner| owner.name.clone()));
            let job = job.or_else(|| job_of_name(&key.1).map(str::to_owned));
            if let Some(job) = job {
                inbox.now(Kind::Job, (key.0, job));
            }
            continue;
        }
        let outcome = sync(&world, &inbox, &key).await;
        inbox.settle("jobs", (kind, key), outcome);
    }
}

/// A condition of a Job is True.
pub(crate) fn has_condition(job: &Job, type_: &str) -> bool {
    condition_time(job, type_).is_some()
}

fn condition_time(job: &Job, type_: &str) -> Option<Timestamp> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions
        .iter()
        .find(|condition| condition.type_ == type_ && condition.status == "True")?;
    Some(
        condition
            .last_transition_time
            .as_ref()
            .map_or(Timestamp::MIN, |time| time.0),
    )
}

async fn sync(world: &Context, inbox: &Inbox, key: &Key) -> Result<()> {
    let Some(job) = world.jobs.at(key) else {
        return Ok(());
    };
    let Some(spec) = job.spec.as_ref().filter(|_| job.metadata.deletion_timestamp.is_none()) else {
        return Ok(());
    };
    let now = world.clock.now();
    if let Some(finished) = condition_time(&job, "Complete").or_else(|| condition_time(&job, "Failed")) {
        if let Some(ttl) = spec.ttl_seconds_after_finished {
            let due = after(finished, Duration::from_secs(u64::try_from(ttl).unwrap_or_default()));
            if now >= due {
                // As the real TTL controller does.
                return world.jobs.delete_in_foreground(key).await;
            }
            inbox.later(Kind::Job, key.clone(), due);
        }
        return Ok(());
    }
    let pods = pods_of(world, &job, key);
    if spec.suspend == Some(true) {
        return suspend(world, &job, key, &pods).await;
    }
    if spec.parallelism == Some(0) {
        return remove_active(world, &pods).await;
    }
    if pods.iter().any(|pod| phase(pod) == "Succeeded") {
        return finish(
            world,
            &job,
            key,
            &pods,
            "Complete",
            "CompletionsReached",
            "Reached expected number of succeeded pods",
        )
        .await;
    }
    let failed = pods.iter().filter(|pod| phase(pod) == "Failed").count();
    let limit = usize::try_from(spec.backoff_limit.unwrap_or(DEFAULT_BACKOFF_LIMIT)).unwrap_or_default();
    if failed > limit {
        let message = "Job has reached the specified backoff limit";
        return finish(world, &job, key, &pods, "Failed", "BackoffLimitExceeded", message).await;
    }
    let started = job
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref())
        .map(|time| time.0);
    if let (Some(deadline), Some(started)) = (spec.active_deadline_seconds, started) {
        let due = after(
            started,
            Duration::from_secs(u64::try_from(deadline).unwrap_or_default()),
        );
        if now >= due {
            remove_active(world, &pods).await?;
            let message = "Job was active longer than specified deadline";
            return finish(world, &job, key, &pods, "Failed", "DeadlineExceeded", message).await;
        }
        inbox.later(Kind::Job, key.clone(), due);
    }
    let mut active = pods.len() > failed;
    if !active {
        let due = pods.last().map_or(now, |pod| {
            after(finished_at(pod).unwrap_or(Timestamp::MIN), backoff(world, failed))
        });
        if now >= due {
            active = create_pod(world, inbox, &job, key, failed).await?;
        } else {
            inbox.later(Kind::Job, key.clone(), due);
        }
    }
    let mut status = json!({"failed": count(failed), "active": count(usize::from(active))});
    if started.is_none() {
        status["startTime"] = json!(world.stamp());
    }
    if has_condition(&job, "Suspended") {
        status["conditions"] = json!([condition(world, "Suspended", "False", "JobResumed", "Job resumed")]);
    }
    write(world, &job, key, status).await
}

/// The pods that a Job has had, in order.
fn pods_of(world: &Context, job: &Job, key: &Key) -> Vec<Arc<Pod>> {
    (0..)
        .map_while(|attempt| world.pods.get(&key.0, &pod_name(job, attempt)))
        .collect()
}

/// A Job that is created again under its old name must not take the pods of the old one for its own.
fn pod_name(job: &Job, attempt: usize) -> String {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    format!("{name}-{}-{attempt}", digest(uid, 5))
}

/// The Job that a pod belonged to, for a pod that is gone.
fn job_of_name(pod: &str) -> Option<&str> {
    pod.rsplitn(3, '-').nth(2)
}

fn count(number: usize) -> Value {
    if number == 0 { Value::Null } else { json!(number) }
}

fn backoff(world: &Context, failed: usize) -> Duration {
    let doublings = u32::try_from(failed.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    (world.durations.job_backoff * 2_u32.pow(doublings)).min(LONGEST_BACKOFF)
}

fn condition(world: &Context, type_: &str, status: &str, reason: &str, message: &str) -> Value {
    let now = world.stamp();
    json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastProbeTime": now, "lastTransitionTime": now,
    })
}

async fn suspend(world: &Context, job: &Job, key: &Key, pods: &[Arc<Pod>]) -> Result<()> {
    remove_active(world, pods).await?;
    if has_condition(job, "Suspended") {
        return Ok(());
    }
    let suspended = condition(world, "Suspended", "True", "JobSuspended", "Job suspended");
    let status = json!({"startTime": null, "active": null, "conditions": [suspended]});
    world.jobs.patch_status(key, &status).await.map(drop)
}

async fn remove_active(world: &Context, pods: &[Arc<Pod>]) -> Result<()> {
    for pod in pods.iter().filter(|pod| !has_ended(pod)) {
        world.pods.delete(&key_of(pod.as_ref()), false).await?;
    }
    Ok(())
}

async fn finish(
    world: &Context,
    job: &Job,
    key: &Key,
    pods: &[Arc<Pod>],
    type_: &str,
    reason: &str,
    message: &str,
) -> Result<()> {
    let failed = pods.iter().filter(|pod| phase(pod) == "Failed").count();
    let mut conditions = vec![condition(world, type_, "True", reason, message)];
    let mut status = json!({"active": null, "failed": count(failed)});
    if type_ == "Complete" {
        conditions.insert(0, condition(world, "SuccessCriteriaMet", "True", reason, message));
        status["succeeded"] = json!(1);
        status["completionTime"] = json!(world.stamp());
    } else {
        conditions.insert(0, condition(world, "FailureTarget", "True", reason, message));
    }
    if job
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref())
        .is_none()
    {
        status["startTime"] = json!(world.stamp());
    }
    status["conditions"] = json!(conditions);
    world.jobs.patch_status(key, &status).await.map(drop)
}

/// Creates the next pod; false when it fits on no node.
async fn create_pod(world: &Context, inbox: &Inbox, job: &Job, key: &Key, attempt: usize) -> Result<bool> {
    let Some(template) = job.spec.as_ref().map(|spec| &spec.template) else {
        return Ok(false);
    };
    let template_spec = template.spec.clone().unwrap_or_default();
    let Some(node) = schedule::pick(world, &template_spec, |_| 0) else {
        inbox.later(Kind::Job, key.clone(), after(world.clock.now(), UNSCHEDULABLE_PAUSE));
        return Ok(false);
    };
    let meta = template.metadata.clone().unwrap_or_default();
    let mut labels = meta.labels.unwrap_or_default();
    for name in ["job-name", "batch.kubernetes.io/job-name"] {
        labels.insert(name.to_owned(), key.1.clone());
    }
    let uid = job.metadata.uid.clone().unwrap_or_default();
    labels.insert("batch.kubernetes.io/controller-uid".to_owned(), uid);
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(ATTEMPT.to_owned(), attempt.to_string());
    let mut spec = serde_json::to_value(&template_spec)?;
    spec["nodeName"] = json!(node);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod_name(job, attempt), "namespace": key.0,
            "labels": labels, "annotations": annotations, "ownerReferences": controlled_by(job),
        },
        "spec": spec,
    });
    world.pods.create(&pod).await.map(|_| true)
}

/// Writes what differs.
async fn write(world: &Context, job: &Job, key: &Key, status: Value) -> Result<()> {
    let current = serde_json::to_value(&job.status)?;
    let differs = status.as_object().is_some_and(|fields| {
        fields
            .iter()
            .any(|(field, value)| current.get(field).unwrap_or(&Value::Null) != value)
    });
    if differs {
        world.jobs.patch_status(key, &status).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_of_a_pod_that_is_gone_is_known_by_its_name() {
        let mut job = Job::default();
        job.metadata.name = Some("apply-up-on-node-3".to_owned());
        job.metadata.uid = Some("some-uid".to_owned());
        assert_eq!(job_of_name(&pod_name(&job, 12)), Some("apply-up-on-node-3"));
        assert_eq!(job_of_name("alone"), None);
    }
}
