//! Longhorn: a volume is attached where its VM runs, degraded while a node that holds one of its replicas is down, and
//! healthy again when that replica is rebuilt, some time after the node is back, a few of a node at a time. A new Longhorn
//! starts an instance manager of its own on each node.

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
use serde_json::{Value, json};

use crate::{
    cluster::{
        management::{self, INSTANCE_MANAGER_IMAGE, LONGHORN_MANAGER},
        vms,
    },
    context::{Context, after},
    error::{Error, Result},
    inbox::{Inbox, Key, Kind},
    index,
    release::LONGHORN,
    watched::key_of,
};

use super::{instance_managers, volume_users::Users};

/// Longhorn's `concurrent-replica-rebuild-per-node-limit`.
const REBUILDS_PER_NODE: usize = 5;

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.nodes.subscribe(&inbox);
    world.replicas.subscribe(&inbox);
    world.volumes.subscribe(&inbox);
    world.vmis.subscribe(&inbox);
    world.instance_managers.subscribe(&inbox);
    world.pods.subscribe(&inbox);
    let mut up = BTreeMap::new();
    let mut rebuilds = Rebuilds::default();
    let mut users = Users::of(&world);
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = match kind {
            Kind::Node => {
                let is_up = world.is_up(&key.1);
                // Looks at a node's replicas only when it went down or came back.
                if up.insert(key.1.clone(), is_up) != Some(is_up) {
                    for replica in world.replicas.found(&index::on(&key.1)) {
                        inbox.now(Kind::Replica, key_of(replica.as_ref()));
                    }
                }
                inbox.now(Kind::InstanceManager, instance_managers::all());
                Ok(())
            }
            Kind::Replica => sync_replica(&world, &inbox, &mut rebuilds, &key).await,
            Kind::InstanceManager if key == instance_managers::all() => {
                instance_managers::look_at_all(&world, &inbox);
                Ok(())
            }
            Kind::InstanceManager => instance_managers::sync(&world, &inbox, &key).await,
            Kind::Pod => {
                if key.0 == names::LONGHORN_NAMESPACE {
                    inbox.now(Kind::InstanceManager, key.clone());
                }
                for volume in users.learn_pod(&key, world.pods.at(&key).as_deref()) {
                    inbox.now(Kind::Volume, volume);
                }
                Ok(())
            }
            Kind::VirtualMachineInstance => {
                for volume in users.learn_vm(&key, world.vmis.at(&key).as_deref()) {
                    inbox.now(Kind::Volume, volume);
                }
                Ok(())
            }
            _ => {
                // What is attached where, and which copies are whole, decides about budgets.
                inbox.now(Kind::InstanceManager, instance_managers::all());
                if let Some(volume) = world.volumes.at(&key) {
                    users.learn_volume(&volume);
                }
                sync_volume(&world, &users, &key).await
            }
        };
        inbox.settle("longhorn", (kind, key), outcome);
    }
}

/// The copies that are being rebuilt, by node: since when each.
#[derive(Default)]
struct Rebuilds(BTreeMap<String, BTreeMap<Key, Timestamp>>);

impl Rebuilds {
    /// When the rebuild of a copy began, or begins now; nothing while the node is busy with others.
    fn begun(&mut self, node: &str, key: &Key, now: Timestamp) -> Option<Timestamp> {
        let here = self.0.entry(node.to_owned()).or_default();
        if here.len() < REBUILDS_PER_NODE {
            here.entry(key.clone()).or_insert(now);
        }
        here.get(key).copied()
    }

    fn is_under_way(&self, node: &str, key: &Key) -> bool {
        self.0.get(node).is_some_and(|here| here.contains_key(key))
    }

    fn room(&self, node: &str) -> usize {
        REBUILDS_PER_NODE.saturating_sub(self.0.get(node).map_or(0, BTreeMap::len))
    }

    fn end(&mut self, node: &str, key: &Key) {
        self.0.entry(node.to_owned()).or_default().remove(key);
    }
}

async fn sync_replica(world: &Context, inbox: &Inbox, rebuilds: &mut Rebuilds, key: &Key) -> Result<()> {
    let Some(replica) = world.replicas.at(key) else {
        return Ok(());
    };
    let name = replica.spec.node_id.clone().unwrap_or_default();
    let runs = replica.status.current_state.as_deref() == Some("running");
    let state = match (world.is_up(&name), runs) {
        (false, true) => "error",
        (true, false) => {
            let now = world.clock.now();
            let Some(began) = rebuilds.begun(&name, key, now) else {
                return Ok(());
            };
            let due = after(began, world.durations.rebuild);
            if now < due {
                inbox.later(Kind::Replica, key.clone(), due);
                return Ok(());
            }
            "running"
        }
        (false, false) => {
            // What was copied so far is lost.
            rebuilds.end(&name, key);
            return Ok(());
        }
        (true, true) => return Ok(()),
    };
    world
        .replicas
        .patch_status(key, &json!({"currentState": state}))
        .await?;
    if state == "running" {
        rebuilds.end(&name, key);
        // There is room for the next ones.
        let lost = world
            .replicas
            .first_found(&index::lost_on(&name), REBUILDS_PER_NODE * 2);
        let lost = lost.iter().map(|other| key_of(other.as_ref()));
        let waiting = lost.filter(|other| other != key && !rebuilds.is_under_way(&name, other));
        for next in waiting.take(rebuilds.room(&name)) {
            inbox.now(Kind::Replica, next);
        }
    }
    let volume = replica.spec.volume_name.clone().unwrap_or_default();
    inbox.now(Kind::Volume, (key.0.clone(), volume));
    Ok(())
}

async fn sync_volume(world: &Context, users: &Users, key: &Key) -> Result<()> {
    let Some(volume) = world.volumes.at(key) else {
        return Ok(());
    };
    let Some(node) = users.node_of(world, &volume) else {
        return Ok(());
    };
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
        let users = vms::workloads(vms::claim_of(&volume).filter(|_| state == "attached"));
        let status = json!({
            "state": state, "robustness": robustness, "currentNodeID": node, "kubernetesStatus": {"workloadsStatus": users},
        });
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
        world
            .instance_managers
            .create(&instance_managers::object(&node, &image))
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
