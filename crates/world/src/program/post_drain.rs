//! After a node was drained and RKE2 upgraded: take the drain taint away and install the operating system. The node
//! reboots once the pod has ended.

use serde_json::{Value, json};

use crate::{
    actor::reboot::{ON_DISK, installed_by},
    context::{Context, annotation},
    error::Result,
};

use super::{Call, DRAIN_TAINT};

pub(super) async fn run(call: &Call<'_>) -> Result<()> {
    wait_for_rke2(call).await;
    untaint(call).await?;
    call.take(call.world.durations.post_drain).await;
    install(call).await?;
    Ok(())
}

/// Waits until the node runs the kubelet of the new release.
pub(super) async fn wait_for_rke2(call: &Call<'_>) {
    let inbox = call.world.inbox();
    call.world.nodes.subscribe(&inbox);
    let wanted = call.world.shape.release().kubernetes;
    let upgraded = |world: &Context| {
        let node = world.nodes.get("", call.node);
        let info = node.as_ref().and_then(|node| node.status.as_ref()?.node_info.as_ref());
        info.is_none_or(|info| info.kubelet_version == wanted)
    };
    call.world.until(&inbox, upgraded).await;
}

async fn untaint(call: &Call<'_>) -> Result<()> {
    let key = (String::new(), call.node.to_owned());
    let Some(node) = call.world.nodes.at(&key) else {
        return Ok(());
    };
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    let rest: Vec<_> = taints.iter().filter(|taint| taint.key != DRAIN_TAINT).collect();
    if rest.len() == taints.len() {
        return Ok(());
    }
    let rest = if rest.is_empty() { Value::Null } else { json!(rest) };
    call.world
        .nodes
        .patch(&key, &json!({"spec": {"taints": rest}}))
        .await
        .map(drop)
}

/// Puts the new operating system on the node's disk.
pub(super) async fn install(call: &Call<'_>) -> Result<()> {
    let key = (String::new(), call.node.to_owned());
    let system = call.world.shape.release().os;
    let Some(node) = call.world.nodes.at(&key) else {
        return Ok(());
    };
    let wanted = installed_by(&node, &system);
    if annotation(&node.metadata, ON_DISK) == Some(&wanted) {
        return Ok(());
    }
    let patch = json!({"metadata": {"annotations": {ON_DISK: wanted}}});
    call.world.nodes.patch(&key, &patch).await.map(drop)
}
