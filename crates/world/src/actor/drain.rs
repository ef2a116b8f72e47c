//! Draining a node: every pod that is not a DaemonSet's is evicted; an eviction that a PodDisruptionBudget forbids (429)
//! is tried again until it is allowed.

use std::time::Duration;

use api::{foreign::kubevirt::VirtualMachineInstance, pod::has_ended};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Resource,
    api::{PostParams, Request},
};
use serde_json::{Value, json};

use crate::{
    cluster::vms,
    context::{Context, annotation, label, owner},
    error::{Error, Result},
    index,
    watched::key_of,
};

/// First pause after a refused eviction; doubles up to [`LONGEST_PAUSE`], so that a drain that is blocked for hours
/// does not shout.
const SHORTEST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Evicts all pods of a node and waits until they are gone.
pub(crate) async fn drain(world: &Context, node: &str) -> Result<()> {
    let inbox = world.inbox();
    world.pods.subscribe(&inbox);
    let mut pause = SHORTEST_PAUSE;
    loop {
        let mut pods = world.pods.found(&index::on(node));
        pods.retain(|pod| is_evictable(pod));
        if pods.is_empty() {
            return Ok(());
        }
        for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            evict(world, pod, node).await?;
        }
        tokio::select! {
            biased;
            () = inbox.changed() => {}
            () = world.clock.sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
        }
    }
}

fn is_evictable(pod: &Pod) -> bool {
    let stays = owner(&pod.metadata, "DaemonSet").is_some()
        || owner(&pod.metadata, "Node").is_some()
        || annotation(&pod.metadata, "kubernetes.io/config.mirror").is_some();
    !stays && !has_ended(pod)
}

async fn evict(world: &Context, pod: &Pod, node: &str) -> Result<()> {
    let key = key_of(pod);
    let what = format!("evict pod {}/{}", key.0, key.1);
    // kube's own request says `delete_options`, which a strict API server refuses and others drop.
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": key.1, "namespace": key.0},
    });
    let request = Request::new(Pod::url_path(&(), Some(&key.0)))
        .create_subresource(
            "eviction",
            &key.1,
            &PostParams::default(),
            serde_json::to_vec(&eviction)?,
        )
        .map_err(|error| Error::api(what.clone(), kube::Error::BuildRequest(error)))?;
    match world.client.request::<Value>(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 429 => ask_to_leave(world, pod, node).await,
        // Gone already: the caller looks again.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(Error::api(what, error)),
    }
}

/// KubeVirt's webhook: a VM whose pod is to be evicted migrates.
async fn ask_to_leave(world: &Context, pod: &Pod, node: &str) -> Result<()> {
    let Some(vm) = label(&pod.metadata, vms::VM_LABEL) else {
        return Ok(());
    };
    let key = (pod.metadata.namespace.clone().unwrap_or_default(), vm.to_owned());
    let asked = |vmi: &VirtualMachineInstance| {
        vmi.status.node_name.as_deref() != Some(node) || vmi.status.evacuation_node_name.as_deref() == Some(node)
    };
    if world.vmis.at(&key).is_none_or(|vmi| asked(&vmi)) {
        return Ok(());
    }
    world
        .vmis
        .patch_status(&key, &json!({"evacuationNodeName": node}))
        .await
        .map(drop)
}
