//! Nodes, their Cluster API machines and Rancher's plan Secrets.

use std::collections::BTreeMap;

use api::{annotations, labels, names};
use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};

use crate::{
    actor::machine_plan::{CONTROL_PLANE_ROLE, ETCD_ROLE, INIT_NODE, REACHED, WORKER_ROLE},
    context::digest,
};

use super::{Shape, layout::NodeLayout};

/// When the cluster was installed, for everything that has happened before the simulation.
pub(super) const INSTALLED: &str = "2026-01-15T08:00:00Z";

fn address(index: usize) -> String {
    format!("192.168.{}.{}", index / 200, 10 + index % 200)
}

/// Rancher names a machine that joins by a digest of its machine id: the order of machines is not that of nodes.
fn machine_name(shape: &Shape, node: &str) -> String {
    format!("custom-{}", digest(&format!("{}/{node}/machine-id", shape.seed), 12))
}

/// The nodes of a generated cluster.
pub(super) fn generated(shape: &Shape) -> Vec<NodeLayout> {
    let names = shape.node_names().into_iter().enumerate();
    names.map(|(index, name)| generated_node(shape, index, name)).collect()
}

fn generated_node(shape: &Shape, index: usize, name: String) -> NodeLayout {
    let mut labels = BTreeMap::new();
    let mut label = |key: &str, value: &str| labels.insert(key.to_owned(), value.to_owned());
    label("kubernetes.io/hostname", &name);
    label("kubernetes.io/arch", "amd64");
    label("kubernetes.io/os", "linux");
    label(labels::MANAGED, "true");
    let mut taints = Vec::new();
    if shape.is_witness(index) {
        label(labels::ETCD, "true");
        label(labels::WITNESS, "true");
        taints.push(Taint {
            key: labels::ETCD.to_owned(),
            value: Some("true".to_owned()),
            effect: "NoExecute".to_owned(),
            ..Taint::default()
        });
    } else {
        label("node-role.kubernetes.io/worker", "true");
        label("kubevirt.io/schedulable", "true");
        if shape.is_control_plane(index) {
            label(labels::CONTROL_PLANE, "true");
            label(labels::ETCD, "true");
        }
    }
    let size = [
        ("cpu", "16"),
        ("memory", "65536000Ki"),
        ("pods", "200"),
        ("ephemeral-storage", "206289024Ki"),
    ];
    let size: BTreeMap<String, String> = size.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    NodeLayout {
        machine: machine_name(shape, &name),
        is_first: index == 0,
        labels,
        taints,
        address: address(index),
        capacity: size.clone(),
        allocatable: size,
        name,
        ..NodeLayout::default()
    }
}

/// What Rancher labels a machine-plan Secret with: whose it is, and what the machine is for. The first node is the one
/// that the cluster began with.
fn machine_labels(node: &NodeLayout) -> Value {
    let mut all = json!({labels::MACHINE_NAME: node.machine, "cluster.x-k8s.io/cluster-name": names::LOCAL_CLUSTER});
    for (is_so, key) in [
        (node.is_etcd(), ETCD_ROLE),
        (node.is_control_plane() && !node.is_witness(), CONTROL_PLANE_ROLE),
        (!node.is_witness(), WORKER_ROLE),
        (node.is_first, INIT_NODE),
    ] {
        if is_so {
            all[key] = json!("true");
        }
    }
    all
}

pub(super) fn objects(shape: &Shape) -> Vec<Value> {
    let mut objects = Vec::new();
    for layout in shape.node_layouts() {
        let NodeLayout { name, machine, .. } = &layout;
        let plan = names::digest(&format!("{machine}/{}", shape.seed));
        objects.push(node(shape, &layout));
        objects.push(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": machine, "namespace": names::FLEET_NAMESPACE,
                "labels": {"cluster.x-k8s.io/cluster-name": names::LOCAL_CLUSTER}},
            "spec": {
                "clusterName": names::LOCAL_CLUSTER,
                "bootstrap": {"configRef": {"apiGroup": "rke.cattle.io", "kind": "RKEBootstrap", "name": machine}},
                "infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "CustomMachine", "name": machine},
            },
            "status": {"phase": "Running", "nodeRef": {"name": name}},
        }));
        objects.push(json!({
            "apiVersion": "v1", "kind": "Secret", "type": annotations::MACHINE_PLAN_SECRET_TYPE,
            "metadata": {
                "name": format!("{machine}-machine-plan"), "namespace": names::FLEET_NAMESPACE,
                "labels": machine_labels(&layout),
                "annotations": {REACHED: format!("0/{}", shape.installed().kubernetes)},
            },
            // Rancher's, and secret: it has the token that nodes join with. Hexadecimal is valid base64.
            "data": {"plan": plan, "appliedPlan": plan},
        }));
    }
    objects
}

fn node(shape: &Shape, layout: &NodeLayout) -> Value {
    let kubernetes = shape.installed().kubernetes;
    let NodeLayout {
        name,
        machine,
        labels,
        taints,
        address,
        capacity,
        allocatable,
        ..
    } = layout;
    let id = digest(&format!("{}/{name}/boot", shape.seed), 32);
    let boot = format!(
        "{}-{}-4{}-8{}-{}",
        &id[..8],
        &id[8..12],
        &id[13..16],
        &id[17..20],
        &id[20..32]
    );
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": INSTALLED, "lastTransitionTime": INSTALLED,
        })
    };
    let mut spec = json!({"providerID": format!("rke2://{name}")});
    if !taints.is_empty() {
        spec["taints"] = json!(taints);
    }
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "labels": labels,
            "annotations": {
                annotations::MACHINE: machine,
                "cluster.x-k8s.io/cluster-name": names::LOCAL_CLUSTER,
                "rke2.io/internal-ip": address, "rke2.io/hostname": name,
            },
        },
        "spec": spec,
        "status": {
            "capacity": capacity, "allocatable": allocatable,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux",
                "osImage": format!("Harvester {}", shape.from),
                "kernelVersion": "6.4.0-150700.53.22-default", "containerRuntimeVersion": "containerd://2.1.5-k3s1",
                "kubeletVersion": kubernetes, "kubeProxyVersion": kubernetes,
                "bootID": boot, "machineID": digest(&format!("{}/{name}/machine", shape.seed), 32),
                "systemUUID": digest(&format!("{}/{name}/system", shape.seed), 32),
            },
        },
    })
}
