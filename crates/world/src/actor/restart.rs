//! Containers of Deployments that a kubelet starts again after its node has booted: the pod stays, its container has another
//! instance, and the log of the one before is that of the previous container.

use std::sync::Arc;

use api::node::ready_condition;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::json;

use crate::{
    context::{Context, node_of, owner},
    error::Result,
    inbox::Key,
    programs::repository,
};

fn statuses(pod: &Pod) -> &[ContainerStatus] {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_deref());
    statuses.unwrap_or_default()
}

fn started(status: &ContainerStatus) -> Option<Timestamp> {
    let running = status.state.as_ref()?.running.as_ref()?;
    running.started_at.as_ref().map(|time| time.0)
}

/// The node of a pod has come back since its containers were started.
pub(crate) fn is_due(world: &Context, pod: &Pod) -> bool {
    if owner(&pod.metadata, "ReplicaSet").is_none() {
        return false;
    }
    let node = world.nodes.get("", node_of(pod));
    let ready = node
        .as_ref()
        .and_then(|node| ready_condition(node)?.last_transition_time.as_ref());
    ready.is_some_and(|ready| {
        statuses(pod)
            .iter()
            .filter_map(started)
            .any(|started| started < ready.0)
    })
}

/// Starts the containers of a pod again. How ready the pod is does not change: how long that takes is not simulated here.
pub(crate) async fn restart(world: &Arc<Context>, key: &Key, pod: &Pod) -> Result<()> {
    let now = world.stamp();
    let again = |status: &ContainerStatus| {
        json!({
            "name": status.name, "image": status.image, "imageID": status.image_id, "ready": status.ready,
            "started": true, "restartCount": status.restart_count + 1, "state": {"running": {"startedAt": now}},
            "lastState": {"terminated": {
                "exitCode": 255, "reason": "Unknown", "startedAt": started(status).map(|at| at.to_string()),
                "finishedAt": now,
            }},
        })
    };
    let status = json!({"containerStatuses": statuses(pod).iter().map(again).collect::<Vec<_>>()});
    if let Some(pod) = world.pods.patch_status(key, &status).await? {
        repository::starts(world, &pod);
        repository::is_ready(world, &pod);
    }
    Ok(())
}
