//! Longhorn volumes of a snapshot that are in use, and where their whole replicas are.

use std::collections::{BTreeMap, BTreeSet};

use api::foreign::longhorn::{Engine, Replica, Volume};
use serde_json::Value;
use snapshot::Snapshot;
use world::{Layout, VolumeLayout};

use super::{all, is_named, key, listed};

/// More copies than any storage class asks for; a file may say anything.
const MOST_COPIES: usize = 20;

/// The volumes that VMs and pods of the layout use. Those that nothing uses keep no node.
pub(super) fn volumes(
    snapshot: &Snapshot,
    nodes: &BTreeSet<String>,
    layout: &Layout,
    unknown: &mut Vec<String>,
) -> Vec<VolumeLayout> {
    if snapshot.replicas.is_err() {
        return Vec::new();
    }
    let users = users(layout);
    let mut replicas: BTreeMap<&str, Vec<&Replica>> = BTreeMap::new();
    for replica in all(&snapshot.replicas) {
        let volume = replica.spec.volume_name.as_deref().unwrap_or_default();
        replicas.entry(volume).or_default().push(replica);
    }
    let mut engines: BTreeMap<&str, &Engine> = BTreeMap::new();
    for engine in all(&snapshot.engines) {
        if engine.status.current_state.as_deref() == Some("running") {
            engines.insert(engine.spec.volume_name.as_deref().unwrap_or_default(), engine);
        }
    }
    let (mut found, mut unused) = (Vec::new(), Vec::new());
    for volume in all(&snapshot.volumes)
        .iter()
        .filter(|volume| is_named(&volume.metadata))
    {
        let name = key(&volume.metadata).1;
        let claim = claim(volume);
        let Some(node) = claim.as_ref().and_then(|claim| users.get(claim)) else {
            if volume.status.state.as_deref() == Some("attached") {
                unused.push(name);
            }
            continue;
        };
        let own = replicas.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let wanted = usize::try_from(volume.spec.number_of_replicas.unwrap_or(1)).unwrap_or(1);
        let wanted = wanted.clamp(1, MOST_COPIES);
        let mut copies: Vec<String> = own
            .iter()
            .filter(|replica| is_whole(replica, engines.get(name.as_str()).copied()))
            .filter_map(|replica| replica.spec.node_id.clone())
            .filter(|node| nodes.contains(node))
            .collect();
        copies.truncate(wanted);
        found.push(VolumeLayout {
            bytes: volume
                .spec
                .size
                .as_deref()
                .and_then(|size| size.parse().ok())
                .unwrap_or_default(),
            wanted,
            copies,
            attached: Some(node.clone()),
            claim,
            name,
        });
    }
    if !unused.is_empty() {
        let names: Vec<&str> = unused.iter().map(String::as_str).collect();
        unknown.push(format!(
            "Volumes {} are attached, and the snapshot does not show a VM or pod that uses them: they are not part of the forecast.",
            listed(&names)
        ));
    }
    found
}

/// The engine says that the copy is whole; without an engine, Longhorn has not given it up.
fn is_whole(replica: &Replica, engine: Option<&Engine>) -> bool {
    let name = replica.metadata.name.as_deref().unwrap_or_default();
    let modes = engine.and_then(|engine| engine.status.replica_mode_map.as_ref());
    match modes {
        Some(modes) => modes.get(name).is_some_and(|mode| mode == "RW"),
        None => replica.spec.failed_at.as_deref().unwrap_or_default().is_empty(),
    }
}

fn claim(volume: &Volume) -> Option<(String, String)> {
    let status = volume.status.kubernetes_status.as_ref()?;
    let (namespace, name) = (status.namespace.clone()?, status.pvc_name.clone()?);
    (super::is_name(&namespace) && super::is_name(&name)).then_some((namespace, name))
}

/// The node on which each claim is used.
fn users(layout: &Layout) -> BTreeMap<(String, String), String> {
    let mut users = BTreeMap::new();
    for ((namespace, _), vm) in &layout.vms {
        let disks = vm.spec["volumes"].as_array().into_iter().flatten();
        for claim in disks.filter_map(claim_of_disk) {
            users.insert((namespace.clone(), claim.to_owned()), vm.node.clone());
        }
    }
    for pod in &layout.pods {
        for claim in &pod.claims {
            let claim = (pod.namespace.clone(), claim.clone());
            users.entry(claim).or_insert_with(|| pod.node.clone());
        }
    }
    users
}

fn claim_of_disk(disk: &Value) -> Option<&str> {
    let claim = disk["persistentVolumeClaim"]["claimName"].as_str();
    claim.or_else(|| disk["dataVolume"]["name"].as_str())
}
