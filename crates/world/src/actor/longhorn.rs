//! Longhorn: a volume is attached where its VM runs, degraded while a node that holds one of its replicas is down, and
//! healthy again when that replica is rebuilt, some time after the node is back.

use std::{collections::BTreeMap, sync::Arc};

use api::{foreign::longhorn::Volume, names};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    cluster::vms,
    context::{Context, after, ready_condition},
    error::Result,
    inbox::{Inbox, Key, Kind},
    watched::key_of,
};

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.nodes.subscribe(&inbox);
    world.replicas.subscribe(&inbox);
    world.volumes.subscribe(&inbox);
    world.vmis.subscribe(&inbox);
    let mut up = BTreeMap::new();
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = match kind {
            Kind::Node => {
                let is_up = world.is_up(&key.1);
                // Looks at a node's replicas only when it went down or came back.
                if up.insert(key.1.clone(), is_up) != Some(is_up) {
                    for replica in world
                        .replicas
                        .select(|replica| replica.spec.node_id.as_ref() == Some(&key.1))
                    {
                        inbox.now(Kind::Replica, key_of(replica.as_ref()));
                    }
                }
                Ok(())
            }
            Kind::Replica => sync_replica(&world, &inbox, &key).await,
            Kind::VirtualMachineInstance => {
                inbox.now(
                    Kind::Volume,
                    (names::LONGHORN_NAMESPACE.to_owned(), vms::volume_name(&key.0, &key.1)),
                );
                Ok(())
            }
            _ => sync_volume(&world, &key).await,
        };
        inbox.settle("longhorn", (kind, key), outcome);
    }
}

async fn sync_replica(world: &Context, inbox: &Inbox, key: &Key) -> Result<()> {
    let Some(replica) = world.replicas.at(key) else {
        return Ok(());
    };
    let node = world.nodes.get("", replica.spec.node_id.as_deref().unwrap_or_default());
    let ready = node.as_deref().and_then(ready_condition);
    let is_up = ready.is_some_and(|ready| ready.status == "True");
    let since = ready
        .and_then(|ready| ready.last_transition_time.as_ref())
        .map_or(Timestamp::MIN, |time| time.0);
    let runs = replica.status.current_state.as_deref() == Some("running");
    let state = match (is_up, runs) {
        (false, true) => "error",
        (true, false) => {
            let due = after(since, world.durations.rebuild);
            if world.clock.now() < due {
                inbox.later(Kind::Replica, key.clone(), due);
                return Ok(());
            }
            "running"
        }
        _ => return Ok(()),
    };
    world
        .replicas
        .patch_status(key, &json!({"currentState": state}))
        .await?;
    let volume = replica.spec.volume_name.clone().unwrap_or_default();
    inbox.now(Kind::Volume, (key.0.clone(), volume));
    Ok(())
}

async fn sync_volume(world: &Context, key: &Key) -> Result<()> {
    let Some(volume) = world.volumes.at(key) else {
        return Ok(());
    };
    let Some(vmi_key) = vms::vm_of(&volume) else {
        return Ok(());
    };
    let node = world.vmis.at(&vmi_key).and_then(|vmi| vmi.status.node_name.clone());
    let wanted = volume.spec.number_of_replicas.unwrap_or(0);
    // What the engine says of each copy.
    let mut modes = BTreeMap::new();
    for name in (0..wanted).map(|number| vms::replica_name(&key.1, number)) {
        if let Some(replica) = world.replicas.get(&key.0, &name) {
            let runs = replica.status.current_state.as_deref() == Some("running");
            modes.insert(name, if runs { "RW" } else { "ERR" }.to_owned());
        }
    }
    let whole = i64::try_from(modes.values().filter(|mode| *mode == "RW").count()).unwrap_or_default();
    let (state, robustness) = match (&node, whole) {
        (None, _) => ("detached", "unknown"),
        (Some(_), whole) if whole == wanted => ("attached", "healthy"),
        (Some(_), 0) => ("attached", "faulted"),
        (Some(_), _) => ("attached", "degraded"),
    };
    let node = node.unwrap_or_default();
    if !is(&volume, state, robustness, &node) {
        if volume.spec.node_id.as_deref().unwrap_or_default() != node {
            world.volumes.patch(key, &json!({"spec": {"nodeID": node}})).await?;
        }
        let status = json!({"state": state, "robustness": robustness, "currentNodeID": node});
        world.volumes.patch_status(key, &status).await?;
    }
    let modes = if state == "attached" { modes } else { BTreeMap::new() };
    sync_engine(world, &(key.0.clone(), vms::engine_name(&key.1)), &node, &modes).await
}

/// The engine runs where the volume is attached, and says of each copy whether it is whole.
async fn sync_engine(world: &Context, key: &Key, node: &str, modes: &BTreeMap<String, String>) -> Result<()> {
    let Some(engine) = world.engines.at(key) else {
        return Ok(());
    };
    if engine.spec.node_id.as_deref().unwrap_or_default() != node {
        world.engines.patch(key, &json!({"spec": {"nodeID": node}})).await?;
    }
    let state = if node.is_empty() { "stopped" } else { "running" };
    let known = engine.status.replica_mode_map.clone().unwrap_or_default();
    if engine.status.current_state.as_deref() == Some(state) && known == *modes {
        return Ok(());
    }
    // Copies that are gone must be said to be gone: a merge patch leaves out what it does not name.
    let mut said: serde_json::Map<String, Value> = known.keys().map(|gone| (gone.clone(), Value::Null)).collect();
    said.extend(modes.iter().map(|(replica, mode)| (replica.clone(), json!(mode))));
    let status = json!({"currentState": state, "replicaModeMap": said});
    world.engines.patch_status(key, &status).await.map(drop)
}

fn is(volume: &Volume, state: &str, robustness: &str, node: &str) -> bool {
    let status = &volume.status;
    status.state.as_deref() == Some(state)
        && status.robustness.as_deref() == Some(robustness)
        && status.current_node_id.as_deref().unwrap_or_default() == node
        && volume.spec.node_id.as_deref().unwrap_or_default() == node
}
