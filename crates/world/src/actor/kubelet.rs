//! The kubelets: a pod that names a node starts there, and a pod of one of our Jobs runs its program and ends.
//!
//! Nodes that are down run nothing; what ran on them when they went down has failed. Where real kubelets start and remove
//! pods, only the programs are left to do here, and the reboots.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{
    Component, JobType,
    pod::{has_ended, is_ready},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};

use crate::{
    context::{Context, after, annotation, digest, node_of, owner, phase},
    error::Result,
    inbox::{Inbox, Key, Kind},
    index,
    programs::{self, Ended, repository},
    troubles::{JobFailure, RepositoryTrouble},
    watched::key_of,
};

use super::{jobs, reboot, restart};

/// How often a kubelet tries again what does not work: its longest pause between two pulls of an image.
const PULL_PAUSE: Duration = Duration::from_mins(5);

/// How soon a kubelet tries again to mount what is not there.
const MOUNT_PAUSE: Duration = Duration::from_secs(1);

/// The programs that run, by pod.
struct Running {
    /// Whether pods are started and removed here.
    starts_pods: bool,
    tasks: JoinSet<()>,
    handles: BTreeMap<Key, (String, AbortHandle)>,
}

pub(crate) async fn run(world: Arc<Context>, starts_pods: bool) {
    let inbox = world.inbox();
    world.pods.subscribe(&inbox);
    world.nodes.subscribe(&inbox);
    let mut running = Running {
        starts_pods,
        tasks: JoinSet::new(),
        handles: BTreeMap::new(),
    };
    // Which nodes were up when we last looked.
    let mut up = BTreeMap::new();
    loop {
        let (kind, key) = inbox.next().await;
        // Ended programs have written how they ended; only their handles are left.
        while running.tasks.try_join_next().is_some() {}
        let outcome = match kind {
            Kind::Pod => sync_pod(&world, &inbox, &mut running, &key).await,
            Kind::Node => sync_node(&world, &inbox, &mut up, &key, starts_pods).await,
            _ => Ok(()),
        };
        inbox.settle("kubelet", (kind, key), outcome);
    }
}

async fn sync_node(
    world: &Context,
    inbox: &Inbox,
    up: &mut BTreeMap<String, bool>,
    key: &Key,
    starts_pods: bool,
) -> Result<()> {
    let Some(node) = world.nodes.at(key) else {
        up.remove(&key.1);
        // Pods of a node that is removed go with it, and their owners make others.
        if starts_pods {
            for pod in world.pods.found(&index::on(&key.1)) {
                world.pods.delete(&key_of(pod.as_ref()), true).await?;
            }
        }
        return Ok(());
    };
    let is_up = world.is_up(&key.1);
    if up.insert(key.1.clone(), is_up) != Some(is_up) {
        for pod in world.pods.found(&index::on(&key.1)) {
            inbox.now(Kind::Pod, key_of(pod.as_ref()));
        }
    }
    reboot::sync(world, inbox, &node).await
}

async fn sync_pod(world: &Arc<Context>, inbox: &Inbox, running: &mut Running, key: &Key) -> Result<()> {
    let pod = world.pods.at(key);
    let uid = pod
        .as_ref()
        .and_then(|pod| pod.metadata.uid.clone())
        .unwrap_or_default();
    // A pod that is deleted runs until its kubelet has ended it.
    let is_removed = |pod: &Pod| pod.metadata.deletion_timestamp.is_some() && !running.starts_pods;
    let ends = |pod: &Pod| is_removed(pod) || has_ended(pod);
    let stale = running.handles.get(key).is_some_and(|(of, _)| *of != uid);
    if (stale || pod.as_ref().is_none_or(|pod| ends(pod)))
        && let Some((_, handle)) = running.handles.remove(key)
    {
        handle.abort();
    }
    let Some(pod) = pod.filter(|pod| !node_of(pod).is_empty()) else {
        return Ok(());
    };
    if let Some(ended_by) = &pod.metadata.deletion_timestamp {
        return match running.starts_pods {
            true => terminate(world, inbox, running, key, &pod, ended_by.0).await,
            false => Ok(()),
        };
    }
    let is_job = owner(&pod.metadata, "Job").is_some();
    if !world.is_up(node_of(&pod)) {
        if is_job && phase(&pod) == "Running" {
            return end(world, key, &pod, false, "the node went down").await;
        }
        return Ok(());
    }
    match phase(&pod) {
        "" | "Pending" if running.starts_pods => start(world, inbox, key, &pod).await,
        "Running" if is_job => {
            if !running.handles.contains_key(key) {
                let handle = running.tasks.spawn(execute(world.clone(), pod));
                running.handles.insert(key.clone(), (uid, handle));
            }
            Ok(())
        }
        "Running" if running.starts_pods && restart::is_due(world, &pod) => restart::restart(world, key, &pod).await,
        "Running" if running.starts_pods => become_ready(world, inbox, key, &pod).await,
        "Succeeded" if is_job => reboot::after_pod(world, inbox, key, &pod).await,
        _ => Ok(()),
    }
}

/// Ends a pod that is being deleted, and removes it. Where its node is down, or the kubelet cannot end it, it stays as it is:
/// nothing else removes it.
async fn terminate(
    world: &Context,
    inbox: &Inbox,
    running: &mut Running,
    key: &Key,
    pod: &Pod,
    ended_by: Timestamp,
) -> Result<()> {
    if !world.is_up(node_of(pod)) {
        return Ok(());
    }
    let now = world.clock.now();
    if world.troubles().stuck_kubelets.contains(node_of(pod)) {
        inbox.later(Kind::Pod, key.clone(), after(now, PULL_PAUSE));
        return Ok(());
    }
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
    let asked = ended_by
        .saturating_sub(jiff::SignedDuration::from_secs(grace))
        .unwrap_or(ended_by);
    let takes = match owner(&pod.metadata, "Job") {
        Some(_) => world.durations.pod_stop,
        None => Duration::ZERO,
    };
    let due = after(asked, takes);
    if now < due {
        inbox.later(Kind::Pod, key.clone(), due);
        return Ok(());
    }
    if let Some((_, handle)) = running.handles.remove(key) {
        handle.abort();
    }
    world.pods.delete(key, true).await
}

/// The simulated failure of a pod of a Job.
fn trouble(world: &Context, pod: &Pod) -> Option<JobFailure> {
    let component = Component::of(&pod.metadata)?;
    world
        .troubles()
        .of_job(component, JobType::of(&pod.metadata), node_of(pod))
}

async fn start(world: &Arc<Context>, inbox: &Inbox, key: &Key, pod: &Arc<Pod>) -> Result<()> {
    let containers = containers(pod);
    if trouble(world, pod) == Some(JobFailure::ImagePullBackOff) {
        // Kubelets retry, and by then it may have been repaired.
        inbox.later(Kind::Pod, key.clone(), after(world.clock.now(), PULL_PAUSE));
        if pod
            .status
            .as_ref()
            .is_some_and(|status| status.container_statuses.is_some())
        {
            return Ok(());
        }
        let waiting = |(name, image): &(String, String)| {
            let message = format!("Back-off pulling image \"{image}\"");
            json!({
                "name": name, "image": image, "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "ImagePullBackOff", "message": message}},
            })
        };
        let status = json!({
            "phase": "Pending", "startTime": world.stamp(),
            "containerStatuses": containers.iter().map(waiting).collect::<Vec<_>>(),
        });
        return world.pods.patch_status(key, &status).await.map(drop);
    }
    let created = pod
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(Timestamp::MIN, |time| time.0);
    let due = after(created, world.durations.pod_start);
    if world.clock.now() < due {
        inbox.later(Kind::Pod, key.clone(), due);
        return Ok(());
    }
    if !has_secrets(world, pod) {
        inbox.later(Kind::Pod, key.clone(), after(world.clock.now(), MOUNT_PAUSE));
        return Ok(());
    }
    let now = world.stamp();
    let serves = owner(&pod.metadata, "ReplicaSet").is_some();
    let ready = !serves
        || (world.durations.pod_ready.is_zero() && world.troubles().repository != Some(RepositoryTrouble::NeverReady));
    let runs = |(name, image): &(String, String)| {
        json!({
            "name": name, "image": image, "imageID": image, "ready": ready, "started": true, "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        })
    };
    let status = json!({
        "phase": "Running", "startTime": now, "podIP": pod_ip(pod),
        "conditions": conditions(&now, ready),
        "containerStatuses": containers.iter().map(runs).collect::<Vec<_>>(),
    });
    world.pods.patch_status(key, &status).await?;
    repository::starts(world, pod);
    if ready {
        repository::is_ready(world, pod);
    }
    Ok(())
}

/// The Secrets that a pod of the repository mounts are there: until then its containers are not created.
fn has_secrets(world: &Context, pod: &Pod) -> bool {
    if Component::of(&pod.metadata) != Some(Component::Repo) {
        return true;
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut secrets = volumes.filter_map(|volume| volume.secret.as_ref()?.secret_name.as_deref());
    secrets.all(|name| world.repo_secrets.get(namespace, name).is_some())
}

fn conditions(now: &str, ready: bool) -> Value {
    let condition = |type_: &str, status: bool| json!({"type": type_, "status": if status { "True" } else { "False" }, "lastTransitionTime": now});
    json!([
        condition("PodScheduled", true),
        condition("Initialized", true),
        condition("ContainersReady", ready),
        condition("Ready", ready)
    ])
}

async fn become_ready(world: &Arc<Context>, inbox: &Inbox, key: &Key, pod: &Arc<Pod>) -> Result<()> {
    let serves = owner(&pod.metadata, "ReplicaSet").is_some();
    let broken = world.troubles().repository == Some(RepositoryTrouble::NeverReady)
        && Component::of(&pod.metadata) == Some(Component::Repo);
    if !serves || is_ready(pod) {
        return Ok(());
    }
    if broken {
        inbox.later(Kind::Pod, key.clone(), after(world.clock.now(), PULL_PAUSE));
        return Ok(());
    }
    let due = after(started(pod), world.durations.pod_ready);
    if world.clock.now() < due {
        inbox.later(Kind::Pod, key.clone(), due);
        return Ok(());
    }
    let mut status = json!({"conditions": conditions(&world.stamp(), true)});
    // A list is replaced whole.
    if let Some(containers) = pod.status.as_ref().and_then(|status| status.container_statuses.clone()) {
        let ready = containers.into_iter().map(|mut container| {
            container.ready = true;
            container
        });
        status["containerStatuses"] = serde_json::to_value(ready.collect::<Vec<_>>())?;
    }
    world.pods.patch_status(key, &status).await?;
    repository::is_ready(world, pod);
    Ok(())
}

/// When a pod began to run.
pub(crate) fn started(pod: &Pod) -> Timestamp {
    pod.status
        .as_ref()
        .and_then(|status| status.start_time.as_ref())
        .map_or(Timestamp::MIN, |time| time.0)
}

fn containers(pod: &Pod) -> Vec<(String, String)> {
    let containers = pod
        .spec
        .as_ref()
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    containers
        .iter()
        .map(|container| (container.name.clone(), container.image.clone().unwrap_or_default()))
        .collect()
}

fn pod_ip(pod: &Pod) -> String {
    let id = digest(pod.metadata.uid.as_deref().unwrap_or_default(), 6);
    let byte = |at: usize| u8::from_str_radix(id.get(at..at + 2).unwrap_or("1"), 16).unwrap_or(1);
    format!("10.52.{}.{}", byte(0), byte(2).max(1))
}

/// How many pods its Job had before this one. A real Job controller does not record it; the Job's status has it.
pub(crate) fn attempt(world: &Context, pod: &Pod) -> u32 {
    if let Some(attempt) = annotation(&pod.metadata, jobs::ATTEMPT) {
        return attempt.parse().unwrap_or_default();
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let job = owner(&pod.metadata, "Job").and_then(|owner| world.jobs.get(namespace, &owner.name));
    let failed = job.and_then(|job| job.status.as_ref()?.failed);
    failed.and_then(|failed| failed.try_into().ok()).unwrap_or_default()
}

/// Runs a pod's program to its end and writes how it ended.
async fn execute(world: Arc<Context>, pod: Arc<Pod>) {
    let key = key_of(pod.as_ref());
    let attempt = attempt(&world, &pod);
    let Ended { succeeded, message } = match trouble(&world, &pod) {
        Some(JobFailure::Hangs) => std::future::pending().await,
        Some(JobFailure::Fails(times)) if attempt < times => {
            let message = "simulated failure".to_owned();
            world.print(&pod, &format!("Error: {message}"));
            Ended {
                succeeded: false,
                message,
            }
        }
        Some(JobFailure::DiesAt(step)) => programs::run(&world, &pod, Some(step)).await,
        _ => programs::run(&world, &pod, None).await,
    };
    while let Err(error) = end(&world, &key, &pod, succeeded, &message).await {
        tracing::debug!(pod = key.1, %error, "failed to report the end of a pod; trying again");
        world.clock.sleep(std::time::Duration::from_secs(1)).await;
    }
}

async fn end(world: &Context, key: &Key, pod: &Pod, succeeded: bool, message: &str) -> Result<()> {
    let now = world.stamp();
    let ended = |(name, image): &(String, String)| {
        json!({
            "name": name, "image": image, "imageID": image, "ready": false, "started": false, "restartCount": 0,
            "state": {"terminated": {
                "exitCode": i32::from(!succeeded), "reason": if succeeded { "Completed" } else { "Error" },
                "message": message, "startedAt": started(pod).to_string(), "finishedAt": now,
            }},
        })
    };
    let status = json!({
        "phase": if succeeded { "Succeeded" } else { "Failed" },
        "conditions": conditions(&now, false),
        "containerStatuses": containers(pod).iter().map(ended).collect::<Vec<_>>(),
    });
    world.pods.patch_status(key, &status).await.map(drop)
}
