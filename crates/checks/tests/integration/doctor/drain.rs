//! Budgets, cordons and what a drain leaves behind.

use serde_json::{Value, json};

use super::{
    Case,
    cluster::{Cluster, JUST_NOW, NEW, machine_plan, node_info, pod},
};

fn instance_manager() -> Value {
    pod(
        "longhorn-system",
        "instance-manager-a",
        "node-1",
        json!({}),
        json!({"phase": "Running"}),
    )
}

fn budget(namespace: &str, name: &str, allowed: u32) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    })
}

fn blocked_by_longhorn(cluster: Cluster, allowed: u32) -> Cluster {
    cluster
        .with("pods", instance_manager())
        .with("budgets", budget("longhorn-system", "instance-manager-a", allowed))
        .with("instance_managers", json!({
            "metadata": {"name": "instance-manager-a", "namespace": "longhorn-system"}, "spec": {"nodeID": "node-1"},
            "status": {"instanceEngines": {"pvc-1-e-0": {"status": {"state": "running"}}}},
        }))
}

fn blocked(cluster: Cluster, labels: Value, allowed: u32) -> Cluster {
    cluster
        .with(
            "pods",
            pod("default", "db-0", "node-1", labels, json!({"phase": "Running"})),
        )
        .with("budgets", budget("default", "db", allowed))
}

fn cordoned(cluster: Cluster, nodes: &[&str]) -> Cluster {
    nodes.iter().fold(cluster, |cluster, node| {
        cluster.patched("nodes", node, json!({"spec": {"unschedulable": true}}))
    })
}

fn upgraded(cluster: Cluster) -> Cluster {
    cluster.patched(
        "nodes",
        "node-1",
        json!({"status": {"nodeInfo": node_info(NEW, "boot-2")}}),
    )
}

pub(super) fn cases() -> Vec<Case> {
    let db = || json!({"app": "db"});
    vec![
        Case {
            id: "D01",
            object: "PodDisruptionBudget longhorn-system/instance-manager-a",
            found: blocked_by_longhorn(Cluster::node_in("PreDrained"), 0),
            near: vec![
                (
                    "the budget allows it",
                    blocked_by_longhorn(Cluster::node_in("PreDrained"), 1),
                ),
                (
                    "the drain has just begun",
                    blocked_by_longhorn(Cluster::node_since("PreDrained", JUST_NOW), 0),
                ),
                (
                    "VMs are still moved",
                    blocked_by_longhorn(Cluster::node_in("PreDraining"), 0),
                ),
                (
                    "the node is drained",
                    upgraded(blocked_by_longhorn(Cluster::node_in("PreDrained"), 0)),
                ),
            ],
        },
        Case {
            id: "D02",
            object: "PodDisruptionBudget default/db",
            found: blocked(Cluster::node_in("PreDrained"), db(), 0),
            near: vec![
                ("the budget allows it", blocked(Cluster::node_in("PreDrained"), db(), 1)),
                (
                    "the budget is of other pods",
                    blocked(Cluster::node_in("PreDrained"), json!({"app": "web"}), 0),
                ),
                (
                    "the drain has just begun",
                    blocked(Cluster::node_since("PreDrained", JUST_NOW), db(), 0),
                ),
                ("no upgrade runs", blocked(Cluster::idle(), db(), 0)),
            ],
        },
        Case {
            id: "D27",
            object: "Node node-2",
            found: cordoned(Cluster::node_in("PreDrained"), &["node-1", "node-2"])
                .patched(
                    "nodes",
                    "node-2",
                    json!({"metadata": {"annotations": {"cluster.x-k8s.io/machine": "machine-9"}}}),
                )
                .with("machines", super::cluster::machine(9))
                .with(
                    "machine_plans",
                    machine_plan(9, json!({"rke.cattle.io/drain-options": "{}"}), json!({})),
                ),
            near: vec![
                (
                    "only one is cordoned",
                    cordoned(Cluster::node_in("PreDrained"), &["node-1"]),
                ),
                (
                    "the other is paused, which cordons it",
                    cordoned(Cluster::node_in("PreDrained"), &["node-1", "node-2"])
                        .plan_with(json!({"status": {"nodeUpgradeStatuses": {"node-2": {"state": "UpgradePaused"}}}})),
                ),
                ("no upgrade runs", cordoned(Cluster::idle(), &["node-1", "node-2"])),
            ],
        },
        Case {
            id: "D39",
            object: "Node node-1",
            found: cordoned(upgraded(Cluster::node_in("PostDrained")), &["node-1"]),
            near: vec![
                ("it is uncordoned", upgraded(Cluster::node_in("PostDrained"))),
                (
                    "it was done just now",
                    cordoned(upgraded(Cluster::node_since("PostDrained", JUST_NOW)), &["node-1"]),
                ),
                (
                    "it is being upgraded",
                    cordoned(Cluster::node_in("PostDraining"), &["node-1"]),
                ),
            ],
        },
        Case {
            id: "D39",
            object: "Node node-1",
            found: upgraded(Cluster::node_in("PostDrained")).patched(
                "nodes",
                "node-1",
                json!({"spec": {"taints": [{"key": "kubevirt.io/drain", "effect": "NoSchedule"}]}}),
            ),
            near: vec![(
                "the taint is another one",
                upgraded(Cluster::node_in("PostDrained")).patched(
                    "nodes",
                    "node-1",
                    json!({"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}}),
                ),
            )],
        },
    ]
}
