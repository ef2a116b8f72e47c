//! The objects of a cluster that was seen, in addition to those that every Harvester has. Pure.

use api::names;
use serde_json::{Value, json};

use super::{
    layout::{Layout, PodLayout, VmLayout},
    nodes::INSTALLED,
    platform,
    vms::{self, Instance, vm_status},
};
use crate::{actor::workloads::CONTROLLED, release::Installed};

/// VMs, volumes, pods of users and their budgets.
pub(super) fn objects(layout: &Layout) -> Vec<Value> {
    let mut objects = Vec::new();
    for ((namespace, name), vm) in &layout.vms {
        objects.extend(vm_objects(namespace, name, vm));
    }
    for volume in &layout.volumes {
        objects.extend(vms::volume_objects(volume));
    }
    for seen in &layout.pods {
        objects.extend(seen.claims.iter().map(|claim| bound_claim(&seen.namespace, claim)));
        objects.push(pod(seen));
    }
    objects.extend(layout.budgets.iter().cloned());
    objects
}

fn vm_objects(namespace: &str, name: &str, vm: &VmLayout) -> Vec<Value> {
    let shown = if vm.is_paused { "Paused" } else { "Running" };
    let instance = Instance {
        namespace,
        name,
        node: &vm.node,
        migratable: vm.immovable.is_none(),
        paused: vm.is_paused,
        spec: vm.spec.clone(),
        vm_uid: "",
    };
    let (mut vmi, mut pod) = (instance.vmi(), instance.running_pod());
    for labelled in [&mut vmi, &mut pod] {
        for (key, value) in &vm.labels {
            // What the simulation goes by stays.
            if labelled["metadata"]["labels"].get(key).is_none() {
                labelled["metadata"]["labels"][key] = json!(value);
            }
        }
    }
    if let Some((reason, message)) = &vm.immovable {
        for condition in vmi["status"]["conditions"].as_array_mut().into_iter().flatten() {
            if condition["type"] == "LiveMigratable" {
                condition["reason"] = json!(reason);
                condition["message"] = json!(message);
            }
        }
    }
    let mut objects = vec![
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"runStrategy": "Always", "template": {"metadata": {"labels": vm.labels}, "spec": vm.spec}},
            "status": vm_status(shown),
        }),
        vmi,
        pod,
    ];
    if instance.migratable {
        objects.push(instance.budget());
    }
    objects
}

/// A claim that a pod mounts.
fn bound_claim(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound"},
    })
}

fn pod(pod: &PodLayout) -> Value {
    let claims = pod.claims.iter().enumerate().map(
        |(number, claim)| json!({"name": format!("volume-{number}"), "persistentVolumeClaim": {"claimName": claim}}),
    );
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": pod.labels, "annotations": {CONTROLLED: "true"}},
        "spec": {
            "nodeName": pod.node, "nodeSelector": pod.node_selector, "volumes": claims.collect::<Vec<_>>(),
            "containers": [{"name": "main", "image": "registry.suse.com/bci/bci-base:16.0"}],
        },
        "status": {
            "phase": "Running", "startTime": INSTALLED,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": INSTALLED}],
        },
    })
}

/// One more copy of a volume, with the number that it has among them. Longhorn fills it.
#[must_use]
pub fn added_copy(volume: &str, number: i64, node: &str) -> Value {
    json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "Replica",
        "metadata": {
            "name": vms::replica_name(volume, number), "namespace": names::LONGHORN_NAMESPACE,
            "labels": {"longhornvolume": volume},
        },
        "spec": {"volumeName": volume, "nodeID": node},
    })
}

/// Gives the addons and settings of a generated cluster the values that were seen, and adds those that it does not have.
pub(super) fn change(layout: &Layout, installed: &Installed, objects: &mut Vec<Value>) {
    let (mut addons, mut settings, mut longhorn) = (
        layout.addons.clone(),
        layout.settings.clone(),
        layout.longhorn_settings.clone(),
    );
    for object in objects.iter_mut() {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        match (
            object["apiVersion"].as_str().unwrap_or_default(),
            object["kind"].as_str().unwrap_or_default(),
        ) {
            (_, "Addon") => {
                if let Some(enabled) = addons.remove(&(namespace.clone(), name.clone())) {
                    *object = platform::addon(&namespace, &name, enabled, installed);
                }
            }
            ("harvesterhci.io/v1beta1", "Setting") => {
                let value = settings.remove(&name);
                if let Some(value) = value.filter(|_| name != names::SERVER_VERSION_SETTING) {
                    object["value"] = json!(value);
                }
            }
            ("longhorn.io/v1beta2", "Setting") => {
                if let Some(value) = longhorn.remove(&name) {
                    object["value"] = json!(value);
                }
            }
            _ => {}
        }
    }
    let addons = addons.into_iter();
    objects.extend(addons.map(|((namespace, name), enabled)| platform::addon(&namespace, &name, enabled, installed)));
    settings.remove(names::SERVER_VERSION_SETTING);
    objects.extend(settings.into_iter().map(|(name, value)| {
        json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "Setting", "metadata": {"name": name},
            "default": "", "value": value,
        })
    }));
    objects.extend(longhorn.into_iter().map(|(name, value)| {
        json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Setting",
            "metadata": {"name": name, "namespace": names::LONGHORN_NAMESPACE}, "value": value,
        })
    }));
}
