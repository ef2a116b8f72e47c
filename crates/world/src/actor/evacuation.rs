//! KubeVirt's evacuation controller: instances leave a node that carries the drain taint, or when a client tries to evict
//! their pod. Only so many migrations run at a time, in the cluster and off one node; while the node carries the taint, the
//! controller looks every few seconds whether there is room for the next ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::foreign::{
    condition_is,
    kubevirt::{VirtualMachineInstance, VirtualMachineInstanceMigration},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use node::drain_steps::DRAIN_TAINT;
use serde_json::{Value, json};

use crate::{
    context::{Context, after, annotation, controlled_by},
    error::Result,
    inbox::{Inbox, Key, Kind},
    index,
    watched::key_of,
};

use super::migrations::{ended, migrations_of};

/// On an instance: how many migrations it has had, so that each gets a name of its own.
const NUMBER: &str = "world.upgrade-toolkit/migrations";
/// On a migration: the node that is evacuated.
const EVACUATED_NODE: &str = "kubevirt.io/evacuationMigration";
/// How soon the controller looks again when there was no room.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(5);
/// The pause after an instance's first failed migration; doubles with each further one.
const BACKOFF: Duration = Duration::from_secs(20);
/// KubeVirt's defaults, which are also those of Harvester's setting `kubevirt-migration`.
const PER_CLUSTER: u64 = 5;
const OUTBOUND_PER_NODE: u64 = 2;

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.nodes.subscribe(&inbox);
    world.vmis.subscribe(&inbox);
    world.migrations.subscribe(&inbox);
    loop {
        let (kind, key) = inbox.next().await;
        let outcome = match kind {
            Kind::Node => sync(&world, &inbox, &key.1).await,
            Kind::VirtualMachineInstance => {
                if let Some(node) = world.vmis.at(&key).and_then(|vmi| vmi.status.node_name.clone()) {
                    inbox.now(Kind::Node, (String::new(), node));
                }
                Ok(())
            }
            _ => {
                match world.migrations.at(&key) {
                    Some(migration) => {
                        if let Some(node) = evacuated(&migration) {
                            inbox.now(Kind::Node, (String::new(), node.to_owned()));
                        }
                    }
                    // It was cancelled: whichever node it was for may need another one.
                    None => {
                        for node in world.nodes.select(has_drain_taint) {
                            inbox.now(Kind::Node, key_of(node.as_ref()));
                        }
                    }
                }
                Ok(())
            }
        };
        inbox.settle("evacuation", (kind, key), outcome);
    }
}

fn evacuated(migration: &VirtualMachineInstanceMigration) -> Option<&str> {
    annotation(&migration.metadata, EVACUATED_NODE)
}

fn has_drain_taint(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let mut taints = taints.unwrap_or_default().iter();
    taints.any(|taint| taint.key == DRAIN_TAINT && taint.effect == "NoSchedule")
}

/// Starts as many migrations off a node as there is room for.
async fn sync(world: &Context, inbox: &Inbox, name: &str) -> Result<()> {
    let Some(node) = world.nodes.get("", name) else {
        return Ok(());
    };
    let drained = has_drain_taint(&node);
    let mut leaving = world.vmis.found(&index::on(name));
    leaving.retain(|vmi| leaves(vmi, name, drained));
    if leaving.is_empty() {
        return Ok(());
    }
    let active = world.migrations.found(index::ACTIVE);
    let moving: BTreeSet<Key> = active.iter().map(|migration| vmi_of(migration)).collect();
    let (mut candidates, now) = (Vec::new(), world.clock.now());
    // Of hundreds of instances few have failed, so these are looked up once and not once per instance.
    let rests = rests(world);
    for vmi in leaving.iter().filter(|vmi| !moving.contains(&key_of(vmi.as_ref()))) {
        match rests.get(&key_of(vmi.as_ref())) {
            Some(due) if now < *due => inbox.no_later_than(Kind::Node, (String::new(), name.to_owned()), *due),
            _ => candidates.push(vmi),
        }
    }
    // One that has found no target yet takes no room.
    let running: Vec<_> = active
        .iter()
        .filter(|migration| migration.status.phase.as_deref() != Some("Pending"))
        .collect();
    let outbound = running
        .iter()
        .filter(|migration| evacuated(migration) == Some(name))
        .count();
    let (per_cluster, per_node) = limits(world);
    let room = per_cluster
        .saturating_sub(running.len())
        .min(per_node.saturating_sub(outbound));
    for vmi in candidates.iter().take(room) {
        create(world, name, vmi).await?;
    }
    if candidates.len() > room {
        inbox.no_later_than(Kind::Node, (String::new(), name.to_owned()), after(now, NO_ROOM_PAUSE));
    }
    Ok(())
}

/// The instance is to leave the node, and can.
fn leaves(vmi: &VirtualMachineInstance, node: &str, drained: bool) -> bool {
    let conditions = vmi.status.conditions.as_deref().unwrap_or_default();
    vmi.status.node_name.as_deref() == Some(node)
        && vmi.status.phase.as_deref() == Some("Running")
        && vmi.metadata.deletion_timestamp.is_none()
        && (drained || vmi.status.evacuation_node_name.as_deref() == Some(node))
        && condition_is(conditions, "LiveMigratable") == Some(true)
}

fn vmi_of(migration: &VirtualMachineInstanceMigration) -> Key {
    let namespace = migration.metadata.namespace.clone().unwrap_or_default();
    (namespace, migration.spec.vmi_name.clone().unwrap_or_default())
}

/// Until when each instance is left alone whose migrations failed.
fn rests(world: &Context) -> BTreeMap<Key, Timestamp> {
    let mut failures: BTreeMap<Key, Vec<Timestamp>> = BTreeMap::new();
    for past in world.migrations.found(index::FAILED) {
        failures.entry(vmi_of(&past)).or_default().extend(ended(&past));
    }
    let rest = |(key, ended): (Key, Vec<Timestamp>)| {
        let doublings = u32::try_from(ended.len().checked_sub(1)?).unwrap_or(u32::MAX).min(10);
        let until = after(ended.into_iter().max()?, BACKOFF * 2_u32.pow(doublings));
        Some((key, until))
    };
    failures.into_iter().filter_map(rest).collect()
}

/// How many migrations run at a time: in the cluster, and off one node.
fn limits(world: &Context) -> (usize, usize) {
    let kubevirts = world.kubevirts.list();
    let configured = |name: &str| -> Option<u64> {
        let configuration = kubevirts.first()?.spec.other.get("configuration")?;
        configuration.get("migrations")?.get(name)?.as_u64()
    };
    let limit = |name: &str, default: u64| usize::try_from(configured(name).unwrap_or(default)).unwrap_or(usize::MAX);
    (
        limit("parallelMigrationsPerCluster", PER_CLUSTER),
        limit("parallelOutboundMigrationsPerNode", OUTBOUND_PER_NODE),
    )
}

async fn create(world: &Context, node: &str, vmi: &VirtualMachineInstance) -> Result<()> {
    let key = key_of(vmi);
    let number: u64 = annotation(&vmi.metadata, NUMBER)
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    let past = migrations_of(world, &key);
    let migration: Value = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {
            "name": format!("kubevirt-evacuation-{}-{number}", key.1), "namespace": key.0,
            "labels": {"kubevirt.io/vmi-name": key.1},
            "annotations": {EVACUATED_NODE: node},
            "ownerReferences": controlled_by(vmi),
        },
        "spec": {"vmiName": key.1},
    });
    world.migrations.create(&migration).await?;
    let counted = json!({"metadata": {"annotations": {NUMBER: (number + 1).to_string()}}});
    world.vmis.patch(&key, &counted).await?;
    // KubeVirt keeps a few; here the ones that failed are kept, since their number is what a trouble counts.
    let done = past
        .iter()
        .filter(|past| past.status.phase.as_deref() == Some("Succeeded"));
    for old in done {
        world.migrations.delete(&key_of(old.as_ref()), false).await?;
    }
    Ok(())
}
