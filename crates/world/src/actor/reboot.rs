//! Reboots: a node whose new operating system is installed goes down once the Job that installed it has ended, and
//! comes back with another bootID and the system that is on its disk.
//!
//! What is on a node's disk is an annotation of the Node, so that the simulation survives being stopped in between.

use std::time::Duration;

use api::{JobType, node::is_ready, pod::finished_at};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use crate::{
    context::{Context, after, annotation, digest, node_of},
    error::Result,
    inbox::{Inbox, Key, Kind},
    troubles::RebootTrouble,
    watched::key_of,
};

/// On a Node: the operating system that its next boot starts, and the boot that installed it: `system@bootID`. Nothing
/// is pending once the node runs another boot.
pub(crate) const ON_DISK: &str = "world.upgrade-toolkit/os-on-disk";

/// The value of [`ON_DISK`] for a system that the present boot of a node installed.
pub(crate) fn installed_by(node: &Node, system: &str) -> String {
    format!("{system}@{}", boot_id(node))
}

/// The system that the next boot of a node starts, if the present boot installed one.
fn pending_system(node: &Node) -> Option<&str> {
    let (system, boot) = annotation(&node.metadata, ON_DISK)?.split_once('@')?;
    (boot == boot_id(node)).then_some(system)
}

/// The boot that a node runs.
pub(crate) fn boot_id(node: &Node) -> &str {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map(|info| info.boot_id.as_str()).unwrap_or_default()
}

/// How often a node that stays away is looked at.
const REPAIR_PAUSE: Duration = Duration::from_mins(5);
/// Reason of a node's Ready condition while it is down.
const REBOOTING: &str = "NodeStatusUnknown";

fn os_image(node: &Node) -> &str {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map(|info| info.os_image.as_str()).unwrap_or_default()
}

/// A pod has succeeded: when it installed an operating system, its node goes down soon.
pub(crate) async fn after_pod(world: &Context, inbox: &Inbox, key: &Key, pod: &Pod) -> Result<()> {
    let installs = matches!(
        JobType::of(&pod.metadata),
        Some(JobType::PostDrain | JobType::SingleNodeUpgrade)
    );
    let Some(node) = world.nodes.get("", node_of(pod)).filter(|_| installs) else {
        return Ok(());
    };
    if pending_system(&node).is_none() || !is_ready(&node) {
        return Ok(());
    }
    let due = after(finished_at(pod).unwrap_or(Timestamp::MIN), world.durations.reboot_delay);
    if world.clock.now() < due {
        inbox.later(Kind::Pod, key.clone(), due);
        return Ok(());
    }
    go_down(world, &node).await
}

/// A node goes down.
pub(crate) async fn go_down(world: &Context, node: &Node) -> Result<()> {
    let status = json!({"conditions": conditions(world, node, false)});
    world.nodes.patch_status(&key_of(node), &status).await.map(drop)
}

/// A node that is down comes back when it is time.
pub(crate) async fn sync(world: &Context, inbox: &Inbox, node: &Node) -> Result<()> {
    let Some(ready) = api::node::ready_condition(node).filter(|ready| ready.status != "True") else {
        return Ok(());
    };
    let key = key_of(node);
    let troubles = world.troubles();
    let trouble = troubles.reboots.get(&key.1);
    if ready.reason.as_deref() != Some(REBOOTING) {
        return Ok(());
    }
    if trouble == Some(&RebootTrouble::NeverReturns) {
        // An administrator may repair it.
        inbox.later(Kind::Node, key, after(world.clock.now(), REPAIR_PAUSE));
        return Ok(());
    }
    let since = ready
        .last_transition_time
        .as_ref()
        .map_or(Timestamp::MIN, |time| time.0);
    let due = after(since, world.durations.reboot);
    if world.clock.now() < due {
        inbox.later(Kind::Node, key, due);
        return Ok(());
    }
    let on_disk = pending_system(node).unwrap_or(os_image(node));
    let system = if trouble == Some(&RebootTrouble::OldSystem) {
        // The boot loader fell back to the other partition; nothing is pending any more.
        world
            .nodes
            .patch(&key, &json!({"metadata": {"annotations": {ON_DISK: null}}}))
            .await?;
        os_image(node)
    } else {
        on_disk
    };
    let boot = next_boot_id(boot_id(node));
    let status = json!({
        "nodeInfo": {"bootID": boot, "osImage": system},
        "conditions": conditions(world, node, true),
    });
    world.nodes.patch_status(&key, &status).await.map(drop)
}

/// Every boot has an id of its own, which follows from the one before.
fn next_boot_id(before: &str) -> String {
    let hex = digest(before, 32);
    format!(
        "{}-{}-4{}-8{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..32]
    )
}

fn conditions(world: &Context, node: &Node, ready: bool) -> Value {
    let now = world.stamp();
    let (status, reason, message) = if ready {
        ("True", "KubeletReady", "kubelet is posting ready status")
    } else {
        ("Unknown", REBOOTING, "Kubelet stopped posting node status.")
    };
    let others = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    let mut conditions: Vec<Value> = others
        .iter()
        .filter(|condition| condition.type_ != "Ready")
        .map(|condition| serde_json::to_value(condition).unwrap_or_default())
        .collect();
    conditions.push(json!({
        "type": "Ready", "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }));
    json!(conditions)
}
