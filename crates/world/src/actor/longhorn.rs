//! Longhorn: a volume is attached where its VM runs, degraded while a node that holds one of its replicas is down, and
//! healthy again when that replica is rebuilt, some time after the node is back.

use std::{collections::BTreeMap, sync::Arc};

use api::{foreign::longhorn::Volume, names};
use jiff::Timestamp;
use serde_json::json;

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
    let running = (0..wanted).filter(|number| {
        let replica = world.replicas.get(&key.0, &vms::replica_name(&key.1, *number));
        replica.is_some_and(|replica| replica.status.current_state.as_deref() == Some("running"))
    });
    let running = i64::try_from(running.count()).unwrap_or_default();
    let (state, robustness) = match (&node, running) {
        (None, _) => ("detached", "unknown"),
        (Some(_), running) if running == wanted => ("attached", "healthy"),
        (Some(_), 0) => ("attached", "faulted"),
        (Some(_), _) => ("attached", "degraded"),
    };
    let node = node.unwrap_or_default();
    if is(&volume, state, robustness, &node) {
        return Ok(());
    }
    if volume.spec.node_id.as_deref().unwrap_or_default() != node {
        world.volumes.patch(key, &json!({"spec": {"nodeID": node}})).await?;
    }
    let status = json!({"state": state, "robustness": robustness, "currentNodeID": node});
    world.volumes.patch_status(key, &status).await?;
    let engine = (key.0.clone(), vms::engine_name(&key.1));
    let engine_state = if state == "attached" { "running" } else { "stopped" };
    if world
        .engines
        .at(&engine)
        .is_some_and(|engine| engine.status.current_state.as_deref() != Some(engine_state))
    {
        world
            .engines
            .patch_status(&engine, &json!({"currentState": engine_state}))
            .await?;
    }
    Ok(())
}

fn is(volume: &Volume, state: &str, robustness: &str, node: &str) -> bool {
    let status = &volume.status;
    status.state.as_deref() == Some(state)
        && status.robustness.as_deref() == Some(robustness)
        && status.current_node_id.as_deref().unwrap_or_default() == node
        && volume.spec.node_id.as_deref().unwrap_or_default() == node
}
