//! Running VMs of a snapshot: what they ask for, what they need, and whether KubeVirt can move them.

use std::collections::BTreeMap;

use api::foreign::{condition_is, kubevirt::VirtualMachineInstance};
use rules::{
    capacity::{Room, launched, requests},
    migration,
};
use serde_json::Value;
use snapshot::Snapshot;
use world::VmLayout;

use super::{Seen, all, is_named, key, labels};

pub(super) fn running(snapshot: &Snapshot, seen: &mut Seen) -> BTreeMap<(String, String), VmLayout> {
    let needs = needs(snapshot);
    let mut left_out = 0;
    let mut found = BTreeMap::new();
    for vmi in all(&snapshot.vmis) {
        let Some(node) = vmi.status.node_name.clone().filter(|_| !migration::has_ended(vmi)) else {
            continue;
        };
        // Instances are named in labels too, which are shorter.
        if !is_named(&vmi.metadata) || vmi.metadata.name.as_ref().is_none_or(|name| name.len() > 63) {
            left_out += 1;
            continue;
        }
        let key = key(&vmi.metadata);
        let vm = VmLayout {
            labels: labels(vmi.metadata.labels.as_ref()),
            spec: spec(vmi),
            immovable: immovable(vmi),
            is_paused: condition_is(vmi.status.conditions.as_deref().unwrap_or_default(), "Paused") == Some(true),
            needs: needs
                .get(&(key.0.as_str(), key.1.as_str()))
                .copied()
                .unwrap_or_default(),
            node,
        };
        found.insert(key, vm);
    }
    if left_out > 0 {
        seen.unknown.push(format!(
            "{left_out} VMs have names that Kubernetes does not allow or that are longer than 63 characters: they are left out."
        ));
    }
    found
}

fn spec(vmi: &VirtualMachineInstance) -> Value {
    serde_json::to_value(&vmi.spec).unwrap_or_default()
}

/// What KubeVirt says against a migration: reason and message.
fn immovable(vmi: &VirtualMachineInstance) -> Option<(String, String)> {
    migration::denial(vmi)?;
    let mut conditions = vmi.status.conditions.iter().flatten();
    let condition = conditions.find(|condition| condition.type_ == "LiveMigratable")?;
    Some((
        condition.reason.clone().unwrap_or_default(),
        condition.message.clone().unwrap_or_default(),
    ))
}

/// What the pods of VMs request. Of two, while a VM moves, either will do.
fn needs(snapshot: &Snapshot) -> BTreeMap<(&str, &str), Room> {
    let pods = all(&snapshot.pods).iter().filter(|pod| !api::pod::has_ended(pod));
    pods.filter_map(|pod| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        Some(((namespace, launched(pod)?), requests(pod)))
    })
    .collect()
}
