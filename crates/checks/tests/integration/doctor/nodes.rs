//! Nodes: reboots, systems, etcd, removal, clocks, disks.

use serde_json::{Value, json};

use super::{
    Case,
    cluster::{Cluster, JUST_NOW, LONG_AGO, NEW, OLD, condition, node_info, pod},
};

fn ready(cluster: Cluster, status: &str, since: &str) -> Cluster {
    let conditions = json!([condition(
        "Ready",
        status,
        since,
        "Kubelet stopped posting node status."
    )]);
    cluster.patched("nodes", "node-1", json!({"status": {"conditions": conditions}}))
}

fn back_with(cluster: Cluster, release: (&str, &str), boot: &str) -> Cluster {
    cluster.patched(
        "nodes",
        "node-1",
        json!({"status": {"nodeInfo": node_info(release, boot)}}),
    )
}

fn etcd(cluster: Cluster, status: &str, since: &str) -> Cluster {
    let labels = json!({"component": "etcd", "tier": "control-plane"});
    let conditions =
        json!({"phase": "Running", "conditions": [condition("Ready", status, since, "containers not ready")]});
    back_with(cluster, NEW, "boot-2").with("pods", pod("kube-system", "etcd-node-1", "node-1", labels, conditions))
}

fn machine(node: &str, deleted: Value) -> Value {
    json!({
        "metadata": {"name": "custom-9", "namespace": "fleet-local", "deletionTimestamp": deleted, "creationTimestamp": LONG_AGO},
        "spec": {}, "status": {"phase": "Running", "nodeRef": {"name": node}},
    })
}

fn lease(cluster: Cluster, namespace: &str, name: &str, renewed: &str) -> Cluster {
    cluster.with(
        "leases",
        json!({
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"holderIdentity": "manager-1", "leaseDurationSeconds": 40, "renewTime": renewed},
        }),
    )
}

fn ntp(status: &str) -> Cluster {
    let text = json!({"ntpSyncStatus": status, "currentNtpServers": "0.suse.pool.ntp.org"}).to_string();
    let annotation = json!({"metadata": {"annotations": {"node.harvesterhci.io/ntp-service": text}}});
    Cluster::in_phase("ImagePreloading", json!({})).patched("nodes", "node-1", annotation)
}

fn pressure(status: &str) -> Value {
    json!({"status": {"conditions": [
        condition("Ready", "True", LONG_AGO, ""), condition("DiskPressure", status, LONG_AGO, "kubelet has disk pressure"),
    ]}})
}

pub(super) fn cases() -> Vec<Case> {
    let rebooting = || Cluster::node_in("WaitingReboot");
    let ahead = "2026-03-13T12:05:00.000000Z";
    let on_time = "2026-03-13T11:59:55.000000Z";
    let long_ago = "2026-03-13T09:00:00.000000Z";
    let preloading = || Cluster::in_phase("ImagePreloading", json!({}));
    vec![
        Case {
            id: "D30",
            object: "Node node-1",
            found: preloading().patched("nodes", "node-1", pressure("True")),
            near: vec![
                (
                    "its disk has room",
                    preloading().patched("nodes", "node-1", pressure("False")),
                ),
                (
                    "no upgrade runs",
                    Cluster::idle().patched("nodes", "node-1", pressure("True")),
                ),
            ],
        },
        Case {
            id: "D37",
            object: "Node node-1",
            found: ready(rebooting(), "Unknown", LONG_AGO),
            near: vec![
                ("it went down just now", ready(rebooting(), "Unknown", JUST_NOW)),
                ("it is back", back_with(rebooting(), NEW, "boot-2")),
                ("no upgrade runs", ready(Cluster::idle(), "Unknown", LONG_AGO)),
            ],
        },
        Case {
            id: "D37",
            object: "Node node-1",
            found: rebooting(),
            near: vec![(
                "it is to reboot since just now",
                Cluster::node_since("WaitingReboot", JUST_NOW),
            )],
        },
        Case {
            id: "D38",
            object: "Node node-1",
            found: back_with(rebooting(), OLD, "boot-2"),
            near: vec![
                ("it has the new system", back_with(rebooting(), NEW, "boot-2")),
                ("it has not rebooted yet", back_with(rebooting(), OLD, "boot-1")),
                (
                    "it lost its power during the installation",
                    back_with(Cluster::node_in("PostDraining"), OLD, "boot-2"),
                ),
            ],
        },
        Case {
            id: "D40",
            object: "Pod kube-system/etcd-node-1",
            found: etcd(rebooting(), "False", LONG_AGO),
            near: vec![
                ("etcd is ready", etcd(rebooting(), "True", LONG_AGO)),
                ("etcd is away since just now", etcd(rebooting(), "False", JUST_NOW)),
            ],
        },
        Case {
            id: "D44",
            object: "Node node-9",
            found: preloading()
                .plan_with(json!({"status": {"nodeUpgradeStatuses": {"node-9": {"state": "ImagePreloading"}}}})),
            near: vec![(
                "it is there",
                preloading()
                    .plan_with(json!({"status": {"nodeUpgradeStatuses": {"node-2": {"state": "ImagePreloading"}}}})),
            )],
        },
        Case {
            id: "D44",
            object: "Node node-9",
            found: preloading().with("machines", machine("node-9", Value::Null)),
            near: vec![
                (
                    "it is there",
                    preloading().with("machines", machine("node-2", Value::Null)),
                ),
                (
                    "it is being removed",
                    preloading().with("machines", machine("node-9", json!("2026-03-13T04:00:00Z"))),
                ),
            ],
        },
        Case {
            id: "D45",
            object: "Node node-1",
            found: ntp("unsynced"),
            near: vec![("it is synchronised", ntp("synced"))],
        },
        Case {
            id: "D45",
            object: "Node node-2",
            found: lease(preloading(), "kube-node-lease", "node-2", ahead),
            near: vec![
                (
                    "its clock is right",
                    lease(preloading(), "kube-node-lease", "node-2", on_time),
                ),
                (
                    "the lease is of a controller",
                    lease(preloading(), "kube-system", "node-2", ahead),
                ),
            ],
        },
        Case {
            id: "D46",
            object: "Lease harvester-system/3509939c.harvesterhci.io",
            found: lease(preloading(), "harvester-system", "3509939c.harvesterhci.io", long_ago),
            near: vec![
                (
                    "it is renewed",
                    lease(preloading(), "harvester-system", "3509939c.harvesterhci.io", on_time),
                ),
                (
                    "no upgrade runs",
                    lease(
                        Cluster::idle(),
                        "harvester-system",
                        "3509939c.harvesterhci.io",
                        long_ago,
                    ),
                ),
                (
                    "it is renewed rarely",
                    lease(
                        preloading(),
                        "harvester-system",
                        "3509939c.harvesterhci.io",
                        "2026-03-13T11:50:00.000000Z",
                    )
                    .patched(
                        "leases",
                        "3509939c.harvesterhci.io",
                        json!({"spec": {"leaseDurationSeconds": 900}}),
                    ),
                ),
            ],
        },
    ]
}
