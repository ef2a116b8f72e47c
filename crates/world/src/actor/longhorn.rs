//! Longhorn: a volume is attached where its VM runs, degraded while a node that holds one of its replicas is down, and
//! healthy again when that replica is rebuilt, some time after the node is back. A new Longhorn starts an instance manager
//! of its own on each node.

use std::{collections::BTreeMap, sync::Arc};

use api::{
    foreign::longhorn::{self, Setting, Volume},
    names,
};
use jiff::Timestamp;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use node::cluster::longhorn::image_label;
use serde_json::{Value, json};

use crate::{
    cluster::{
        management::{self, INSTANCE_MANAGER_IMAGE, LONGHORN_MANAGER},
        vms,
    },
    context::{Context, after, digest, ready_condition},
    error::{Error, Result},
    inbox::{Inbox, Key, Kind},
    release::LONGHORN,
    watched::key_of,
};

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.nodes.subscribe(&inbox);
    world.replicas.subscribe(&inbox);
    world.volumes.subscribe(&inbox);
    world.vmis.subscribe(&inbox);
    world.instance_managers.subscribe(&inbox);
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
            Kind::InstanceManager => sync_instance_manager(&world, &inbox, &key).await,
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

/// An instance manager runs some time after it was created.
async fn sync_instance_manager(world: &Context, inbox: &Inbox, key: &Key) -> Result<()> {
    let Some(manager) = world.instance_managers.at(key) else {
        return Ok(());
    };
    if manager.status.current_state.as_deref() == Some("running") {
        return Ok(());
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

/// What comes with a new Longhorn: its manager on all nodes, and instance managers of its own. What is there already is
/// left.
pub(crate) async fn renew(world: &Context) -> Result<()> {
    let key = (names::LONGHORN_NAMESPACE.to_owned(), LONGHORN_MANAGER.to_owned());
    let set = world.daemon_sets.at(&key).map(|set| serde_json::to_value(&set.spec));
    let Some(mut spec) = set.transpose()? else {
        return Ok(());
    };
    let containers = &mut spec["template"]["spec"]["containers"];
    let image = management::manager_image(LONGHORN);
    if containers[0]["image"] != image {
        containers[0]["image"] = json!(image);
        let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        world.daemon_sets.patch(&key, &patch).await?;
    }
    let image = management::instance_manager_image(LONGHORN);
    let settings: Api<Setting> = Api::namespaced(world.client.clone(), names::LONGHORN_NAMESPACE);
    let change = json!({ "value": image });
    let changed = settings
        .patch(INSTANCE_MANAGER_IMAGE, &PatchParams::default(), &Patch::Merge(&change))
        .await;
    changed.map_err(|error| Error::api("set the image of instance managers", error))?;
    let nodes: Api<longhorn::Node> = Api::namespaced(world.client.clone(), names::LONGHORN_NAMESPACE);
    let nodes = nodes.list(&ListParams::default()).await;
    for node in nodes.map_err(|error| Error::api("list Longhorn's nodes", error))? {
        let node = node.metadata.name.unwrap_or_default();
        world.instance_managers.create(&instance_manager(&node, &image)).await?;
    }
    Ok(())
}

fn instance_manager(node: &str, image: &str) -> Value {
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

fn is(volume: &Volume, state: &str, robustness: &str, node: &str) -> bool {
    let status = &volume.status;
    status.state.as_deref() == Some(state)
        && status.robustness.as_deref() == Some(robustness)
        && status.current_node_id.as_deref().unwrap_or_default() == node
        && volume.spec.node_id.as_deref().unwrap_or_default() == node
}
