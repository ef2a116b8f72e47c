//! Nodes, their Cluster API machines and Rancher's plan Secrets.

use api::{annotations, labels, names};
use serde_json::{Map, Value, json};

use crate::{
    actor::machine_plan::{CONTROL_PLANE_ROLE, ETCD_ROLE, INIT_NODE, REACHED, WORKER_ROLE},
    context::digest,
};

use super::Shape;

/// When the cluster was installed, for everything that has happened before the simulation.
pub(super) const INSTALLED: &str = "2026-01-15T08:00:00Z";

pub(super) fn address(index: usize) -> String {
    format!("192.168.{}.{}", index / 200, 10 + index % 200)
}

/// Rancher names a machine that joins by a digest of its machine id: the order of machines is not that of nodes.
fn machine_name(shape: &Shape, node: &str) -> String {
    format!("custom-{}", digest(&format!("{}/{node}/machine-id", shape.seed), 12))
}

/// What Rancher labels a machine-plan Secret with: whose it is, and what the machine is for. The first node is the one
/// that the cluster began with.
fn machine_labels(shape: &Shape, index: usize, machine: &str) -> Value {
    let mut all = json!({labels::MACHINE_NAME: machine, "cluster.x-k8s.io/cluster-name": names::LOCAL_CLUSTER});
    let mut label = |key: &str| all[key] = json!("true");
    if shape.is_witness(index) {
        label(ETCD_ROLE);
        return all;
    }
    label(WORKER_ROLE);
    if shape.is_control_plane(index) {
        label(CONTROL_PLANE_ROLE);
        label(ETCD_ROLE);
    }
    if index == 0 {
        label(INIT_NODE);
    }
    all
}

pub(super) fn objects(shape: &Shape) -> Vec<Value> {
    let mut objects = Vec::new();
    for (index, name) in shape.node_names().iter().enumerate() {
        let machine = machine_name(shape, name);
        objects.push(node(shape, index, name, &machine));
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
                "labels": machine_labels(shape, index, &machine),
                "annotations": {REACHED: format!("0/{}", shape.installed().kubernetes)},
            },
            // Rancher's, and secret: it has the token that nodes join with. Hexadecimal is valid base64.
            "data": {"plan": names::digest(&format!("{machine}/{}", shape.seed))},
        }));
    }
    objects
}

fn node(shape: &Shape, index: usize, name: &str, machine: &str) -> Value {
    let kubernetes = shape.installed().kubernetes;
    let mut labels = Map::new();
    let mut label = |key: &str, value: &str| labels.insert(key.to_owned(), json!(value));
    label("kubernetes.io/hostname", name);
    label("kubernetes.io/arch", "amd64");
    label("kubernetes.io/os", "linux");
    label(labels::MANAGED, "true");
    let mut taints = Value::Null;
    if shape.is_witness(index) {
        label(labels::ETCD, "true");
        label(labels::WITNESS, "true");
        taints = json!([{"key": labels::ETCD, "value": "true", "effect": "NoExecute"}]);
    } else {
        label("node-role.kubernetes.io/worker", "true");
        label("kubevirt.io/schedulable", "true");
        if shape.is_control_plane(index) {
            label(labels::CONTROL_PLANE, "true");
            label(labels::ETCD, "true");
        }
    }
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
    if !taints.is_null() {
        spec["taints"] = taints;
    }
    let size = json!({"cpu": "16", "memory": "65536000Ki", "pods": "200", "ephemeral-storage": "206289024Ki"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "labels": labels,
            "annotations": {
                annotations::MACHINE: machine,
                "cluster.x-k8s.io/cluster-name": names::LOCAL_CLUSTER,
                "rke2.io/internal-ip": address(index), "rke2.io/hostname": name,
            },
        },
        "spec": spec,
        "status": {
            "capacity": size, "allocatable": size,
            "addresses": [{"type": "InternalIP", "address": address(index)}, {"type": "Hostname", "address": name}],
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
