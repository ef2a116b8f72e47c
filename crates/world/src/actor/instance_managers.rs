//! Longhorn's instance managers: one pod per node, in which the engines and replicas of the node run, and a budget that keeps
//! it from being evicted. On a cordoned node Longhorn lifts the budget once nothing is attached there and every copy in use has
//! a whole one on another node that is schedulable and guarded by a budget itself; it starts no pod there before the node is
//! uncordoned.

use std::collections::BTreeSet;

use api::{
    foreign::longhorn::{InstanceManager, Replica, Volume},
    names,
    node::is_ready,
};
use cluster_upgrade::longhorn::image_label;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    cluster::vms,
    context::{Context, after, digest, label},
    error::Result,
    inbox::{Inbox, Key, Kind},
    index,
    watched::key_of,
};

/// On an instance manager: its node.
const NODE: &str = "longhorn.io/node";
/// On a pod and in the selector of its budget: its instance manager.
const INSTANCE_MANAGER: &str = "longhorn.io/instance-manager";

/// In an inbox, instead of a name: something changed that budgets depend on. Many changes make one look.
pub(super) fn all() -> Key {
    Key::default()
}

/// Looks at the budgets of nodes that are cordoned, and of those whose pod is missing.
pub(super) fn look_at_all(world: &Context, inbox: &Inbox) {
    let cordoned = cordoned(world);
    for manager in world.instance_managers.list() {
        let key = key_of(manager.as_ref());
        if cordoned.contains(node_of(&manager)) == world.budgets.at(&key).is_some() {
            inbox.now(Kind::InstanceManager, key);
        }
    }
}

/// An instance manager runs some time after it was created.
pub(super) async fn sync(world: &Context, inbox: &Inbox, key: &Key) -> Result<()> {
    let Some(manager) = world.instance_managers.at(key) else {
        return Ok(());
    };
    if manager.status.current_state.as_deref() == Some("running") {
        return guard(world, &manager).await;
    }
    let created = manager.metadata.creation_timestamp.as_ref();
    let due = after(
        created.map_or(Timestamp::MIN, |time| time.0),
        world.durations.instance_manager,
    );
    let state = if world.clock.now() < due { "starting" } else { "running" };
    if state == "starting" {
        inbox.later(Kind::InstanceManager, key.clone(), due);
    }
    if manager.status.current_state.as_deref() == Some(state) {
        return Ok(());
    }
    let status = json!({ "currentState": state });
    world.instance_managers.patch_status(key, &status).await.map(drop)
}

/// Keeps a pod and its budget on a node that takes pods; lifts the budget on one that is cordoned, when that is allowed.
async fn guard(world: &Context, manager: &InstanceManager) -> Result<()> {
    let (key, node) = (key_of(manager), node_of(manager));
    if is_cordoned(world, node) {
        if world.budgets.at(&key).is_some() && may_go(world, node) {
            world.budgets.delete(&key, false).await?;
        }
        return Ok(());
    }
    if world.pods.at(&key).is_none() && world.nodes.get("", node).is_some_and(|node| is_ready(&node)) {
        world.pods.create(&pod(&key.1, node)).await?;
    }
    if world.budgets.at(&key).is_none() && world.budgets.create(&budget(&key.1)).await? {
        let status = json!({"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1});
        world.budgets.patch_status(&key, &status).await?;
    }
    Ok(())
}

fn node_of(manager: &InstanceManager) -> &str {
    label(&manager.metadata, NODE).unwrap_or_default()
}

fn is_cordoned(world: &Context, node: &str) -> bool {
    cordoned(world).contains(node)
}

/// Longhorn's rule with the drain policy that Harvester sets, `allow-if-replica-is-stopped`: copies of unused volumes
/// do not count.
fn may_go(world: &Context, node: &str) -> bool {
    let guarded = guarded(world);
    let attached = world.volumes.select(|volume| attached_to(volume).is_some());
    if attached.iter().any(|volume| attached_to(volume) == Some(node)) {
        return false;
    }
    attached.iter().all(|volume| {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let copies = copies(world, volume, name);
        let on = |copy: &Replica| copy.spec.node_id.clone().unwrap_or_default();
        copies.iter().all(|copy| on(copy) != node)
            || copies
                .iter()
                .any(|copy| on(copy) != node && is_whole(copy) && guarded.contains(&on(copy)))
    })
}

fn attached_to(volume: &Volume) -> Option<&str> {
    let node = volume.status.current_node_id.as_deref().filter(|node| !node.is_empty());
    node.filter(|_| volume.status.state.as_deref() == Some("attached"))
}

fn copies(world: &Context, volume: &Volume, name: &str) -> Vec<std::sync::Arc<Replica>> {
    let numbers = 0..volume.spec.number_of_replicas.unwrap_or(0);
    let names = numbers.map(|number| vms::replica_name(name, number));
    names
        .filter_map(|replica| world.replicas.get(names::LONGHORN_NAMESPACE, &replica))
        .collect()
}

fn is_whole(copy: &Replica) -> bool {
    copy.status.current_state.as_deref() == Some("running")
}

/// The nodes that take pods, where the budget of an instance manager is in force.
fn guarded(world: &Context) -> BTreeSet<String> {
    let cordoned = cordoned(world);
    let managers = world.instance_managers.list();
    let guarded = managers
        .iter()
        .filter(|manager| world.budgets.at(&key_of(manager.as_ref())).is_some())
        .map(|manager| node_of(manager).to_owned());
    guarded.filter(|node| !cordoned.contains(node)).collect()
}

fn cordoned(world: &Context) -> BTreeSet<String> {
    let nodes = world.nodes.found(index::CORDONED);
    nodes.iter().filter_map(|node| node.metadata.name.clone()).collect()
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": names::LONGHORN_NAMESPACE,
            "labels": {"longhorn.io/component": "instance-manager", NODE: node, INSTANCE_MANAGER: name},
        },
        "spec": {
            "nodeName": node, "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "instance-manager", "image": "longhornio/longhorn-instance-manager"}],
        },
    })
}

fn budget(name: &str) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": names::LONGHORN_NAMESPACE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {INSTANCE_MANAGER: name}}},
    })
}

/// The instance manager of a node for an image.
pub(super) fn object(node: &str, image: &str) -> Value {
    json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "InstanceManager",
        "metadata": {
            "name": format!("instance-manager-{}", digest(&format!("{node}/{image}"), 32)),
            "namespace": names::LONGHORN_NAMESPACE,
            "labels": {
                "longhorn.io/node": node, "longhorn.io/instance-manager-type": "aio", "longhorn.io/data-engine": "v1",
                "longhorn.io/instance-manager-image": image_label(image),
            },
        },
        "spec": {"nodeID": node, "image": image},
    })
}
