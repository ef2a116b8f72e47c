//! Before a node is drained: wait until Longhorn is healthy, stop the VMs that cannot migrate, make KubeVirt move the
//! others, and wait until all have left.

use serde_json::json;

use crate::{
    context::{Context, label},
    error::Result,
};

use super::{Call, DRAIN_TAINT, NODE_LABEL, detector};

pub(super) async fn run(call: &Call<'_>) -> Result<()> {
    let inbox = call.world.inbox();
    call.world.volumes.subscribe(&inbox);
    call.world.until(&inbox, all_volumes_are_healthy).await;
    drop(inbox);
    detector::run(call).await?;
    taint(call).await?;
    wait_until_empty(call).await;
    call.take(call.world.durations.pre_drain).await;
    Ok(())
}

fn all_volumes_are_healthy(world: &Context) -> bool {
    let attached = |state: Option<&str>| state == Some("attached");
    let sick = world.volumes.select(|volume| {
        attached(volume.status.state.as_deref()) && volume.status.robustness.as_deref() != Some("healthy")
    });
    sick.is_empty()
}

async fn taint(call: &Call<'_>) -> Result<()> {
    let key = (String::new(), call.node.to_owned());
    let Some(node) = call.world.nodes.at(&key) else {
        return Ok(());
    };
    let mut taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    if taints.iter().any(|taint| taint.key == DRAIN_TAINT) {
        return Ok(());
    }
    taints.push(k8s_openapi::api::core::v1::Taint {
        key: DRAIN_TAINT.to_owned(),
        value: Some("draining".to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    });
    call.world
        .nodes
        .patch(&key, &json!({"spec": {"taints": taints}}))
        .await
        .map(drop)
}

/// Waits until no instance is left on the node.
pub(super) async fn wait_until_empty(call: &Call<'_>) {
    let inbox = call.world.inbox();
    call.world.vmis.subscribe(&inbox);
    let empty = |world: &Context| {
        let left = world.vmis.select(|vmi| {
            label(&vmi.metadata, NODE_LABEL) == Some(call.node) && vmi.status.phase.as_deref() != Some("Succeeded")
        });
        left.is_empty()
    };
    call.world.until(&inbox, empty).await;
}
