//! Volumes, the repository and the storage network.

use serde_json::{Value, json};

use super::{
    Case,
    cluster::{Cluster, JUST_NOW, LONG_AGO, condition, deployment, pod, replica, slice, volume},
};

fn single(cluster: Cluster, user: &str, replica_on: &str) -> Cluster {
    let mut volume = volume(json!({"currentNodeID": user}));
    volume["spec"]["numberOfReplicas"] = json!(1);
    cluster
        .with("volumes", volume)
        .with("replicas", replica(replica_on))
        .with("pods", user_pod())
}

fn user_pod() -> Value {
    let mut pod = pod("default", "p", "node-2", json!({}), json!({"phase": "Running"}));
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "disk-1"}}]);
    pod
}

fn rebuilding(cluster: Cluster, robustness: &str, rebuild: Value) -> Cluster {
    cluster
        .with(
            "volumes",
            volume(json!({"robustness": robustness, "lastDegradedAt": LONG_AGO})),
        )
        .with("pods", user_pod())
        .with(
            "engines",
            json!({
                "metadata": {"name": "pvc-1-e-0", "namespace": "longhorn-system"},
                "spec": {"volumeName": "pvc-1", "nodeID": "node-2"},
                "status": {"currentState": "running", "rebuildStatus": {"tcp://10.0.0.9:10000": rebuild}},
            }),
        )
}

fn volume_says(cluster: Cluster, type_: &str, status: &str, since: &str) -> Cluster {
    let condition = condition(type_, status, since, "insufficient storage");
    cluster
        .with(
            "volumes",
            volume(json!({"robustness": "degraded", "conditions": [condition]})),
        )
        .with("pods", user_pod())
}

fn attached(cluster: Cluster, node: &str) -> Cluster {
    cluster.with("volumes", volume(json!({"currentNodeID": node})))
}

fn repository(cluster: Cluster, replicas: Option<u32>, since: &str) -> Cluster {
    let status = if replicas.is_some() { "True" } else { "False" };
    let conditions = json!([condition(
        "Available",
        status,
        since,
        "Deployment does not have minimum availability."
    )]);
    let mut pod = pod(
        "harvester-system",
        "up-repo-x",
        "node-2",
        json!({"management.harvesterhci.io/upgrade-plan": "up", "management.harvesterhci.io/upgrade-component": "repo"}),
        json!({"phase": "Pending"}),
    );
    pod["spec"]["volumes"] = json!([{"name": "iso", "persistentVolumeClaim": {"claimName": "up-iso"}}]);
    cluster
        .with("deployments", deployment("harvester-system", "up-repo", json!({"availableReplicas": replicas, "conditions": conditions})))
        .with("pods", pod)
        .with("events", json!({
            "metadata": {"name": "e", "namespace": "harvester-system"}, "reason": "FailedAttachVolume", "message": "timed out",
            "involvedObject": {"kind": "Pod", "namespace": "harvester-system", "name": "up-repo-x"},
        }))
}

fn repo_volume(cluster: Cluster, state: &str, replica_on: &str) -> Cluster {
    let claim = json!({"namespace": "harvester-system", "pvcName": "up-iso"});
    repository(cluster, Some(1), LONG_AGO)
        .with("volumes", volume(json!({"state": state, "kubernetesStatus": claim})))
        .with("replicas", replica(replica_on))
        .with("endpoint_slices", slice("harvester-system", "up-repo", &[true]))
}

fn pool(cluster: Cluster, taken: usize) -> Cluster {
    let allocations: serde_json::Map<String, Value> =
        (1..=taken).map(|number| (number.to_string(), json!({}))).collect();
    cluster
        .with("ip_pools", json!({
            "metadata": {"name": "192.168.0.0-30", "namespace": "kube-system"},
            "spec": {"range": "192.168.0.0/30", "allocations": allocations},
        }))
        .with("share_managers", json!({
            "metadata": {"name": "pvc-1", "namespace": "longhorn-system"}, "status": {"state": "starting", "endpoint": ""},
        }))
}

pub(super) fn cases() -> Vec<Case> {
    let draining = || Cluster::node_in("PreDraining");
    let creating = || Cluster::in_phase("RepoCreating", json!({}));
    let progress = || json!({"isRebuilding": true, "progress": 43, "state": "in_progress"});
    vec![
        Case {
            id: "D03",
            object: "Volume longhorn-system/pvc-1",
            found: single(draining(), "node-2", "node-1"),
            near: vec![
                ("its replica is elsewhere", single(draining(), "node-2", "node-3")),
                ("the node has just begun", single(Cluster::node_since("PreDraining", JUST_NOW), "node-2", "node-1")),
                (
                    "Longhorn lets all nodes be drained",
                    single(draining(), "node-2", "node-1").with("longhorn_settings", json!({
                        "metadata": {"name": "node-drain-policy", "namespace": "longhorn-system"}, "value": "always-allow",
                    })),
                ),
                (
                    "an administrator left the volume out",
                    single(draining(), "node-2", "node-1").plan_with(
                        json!({"metadata": {"annotations": {"management.harvesterhci.io/skip-volumes": "pvc-1"}}}),
                    ),
                ),
            ],
        },
        Case {
            id: "D04",
            object: "Volume longhorn-system/pvc-1",
            found: rebuilding(draining(), "degraded", progress()),
            near: vec![
                ("the volume is healthy", rebuilding(draining(), "healthy", progress())),
                ("no node is emptied", rebuilding(Cluster::in_phase("ImagePreloading", json!({})), "degraded", progress())),
            ],
        },
        Case {
            id: "D05",
            object: "Volume longhorn-system/pvc-1",
            found: volume_says(draining(), "Scheduled", "False", LONG_AGO),
            near: vec![
                ("it has a place", volume_says(draining(), "Scheduled", "True", LONG_AGO)),
                ("it has none since just now", volume_says(draining(), "Scheduled", "False", JUST_NOW)),
                ("no upgrade runs", volume_says(Cluster::idle(), "Scheduled", "False", LONG_AGO)),
            ],
        },
        Case {
            id: "D06",
            object: "Volume longhorn-system/pvc-1",
            found: volume_says(draining(), "WaitForBackingImage", "True", LONG_AGO),
            near: vec![
                ("its backing image is there", volume_says(draining(), "WaitForBackingImage", "False", LONG_AGO)),
                ("it waits since just now", volume_says(draining(), "WaitForBackingImage", "True", JUST_NOW)),
            ],
        },
        Case {
            id: "D07",
            object: "Volume longhorn-system/pvc-1",
            found: attached(draining(), "node-1"),
            near: vec![
                ("a pod uses it", attached(draining(), "node-1").with("pods", user_pod())),
                ("it is attached elsewhere", attached(draining(), "node-2")),
                ("its pods are not known", attached(draining(), "node-1").only(&["longhorn-system"])),
                ("the node has just begun", attached(Cluster::node_since("PreDraining", JUST_NOW), "node-1")),
            ],
        },
        Case {
            id: "D34",
            object: "Deployment harvester-system/up-repo",
            found: repository(creating(), None, LONG_AGO),
            near: vec![
                ("it is available", repository(creating(), Some(1), LONG_AGO)),
                (
                    "a node is down",
                    repository(Cluster::node_in("WaitingReboot"), None, LONG_AGO).patched(
                        "nodes",
                        "node-1",
                        json!({"status": {"conditions": [condition("Ready", "Unknown", JUST_NOW, "")]}}),
                    ),
                ),
                (
                    "the repository is being created since just now",
                    repository(Cluster::idle().with("plans", super::cluster::plan("RepoCreating", JUST_NOW, json!({}))), None, JUST_NOW),
                ),
            ],
        },
        Case {
            id: "D34b",
            object: "Volume longhorn-system/pvc-1",
            found: repo_volume(Cluster::node_in("PostDraining"), "attaching", "node-1"),
            near: vec![
                ("the volume is attached", repo_volume(Cluster::node_in("PostDraining"), "attached", "node-1")),
                ("its replica is elsewhere", repo_volume(Cluster::node_in("PostDraining"), "attaching", "node-3")),
                ("the installation has just begun", repo_volume(Cluster::node_since("PostDraining", JUST_NOW), "attaching", "node-1")),
            ],
        },
        Case {
            id: "D35",
            object: "Service harvester-system/up-repo",
            found: repository(creating(), Some(1), LONG_AGO)
                .with("endpoint_slices", slice("harvester-system", "up-repo", &[false])),
            near: vec![
                (
                    "one endpoint is ready",
                    repository(creating(), Some(1), LONG_AGO)
                        .with("endpoint_slices", slice("harvester-system", "up-repo", &[false, true])),
                ),
                (
                    "its pod is ready since just now",
                    repository(creating(), Some(1), JUST_NOW)
                        .with("endpoint_slices", slice("harvester-system", "up-repo", &[false])),
                ),
            ],
        },
        Case {
            id: "D36",
            object: "IPPool kube-system/192.168.0.0-30",
            found: pool(creating(), 2),
            near: vec![("an address is free", pool(creating(), 1)), ("no upgrade runs", pool(Cluster::idle(), 2))],
        },
    ]
}
