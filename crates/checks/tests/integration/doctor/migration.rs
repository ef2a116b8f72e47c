//! VMs that do not leave a node.

use serde_json::{Value, json};

use super::{
    Case,
    cluster::{Cluster, JUST_NOW, LONG_AGO, launcher, migration, pending, vmi},
};

fn target() -> Value {
    let mut pod = launcher();
    pod["metadata"]["name"] = json!("virt-launcher-vm-1-target");
    pod["metadata"]["labels"]["kubevirt.io/migrationJobUID"] = json!("m-1");
    pod
}

fn running(status: Value) -> Cluster {
    running_in(Cluster::node_in("PreDraining"), status)
}

fn running_in(cluster: Cluster, status: Value) -> Cluster {
    cluster.with("vmis", vmi(status)).with("pods", launcher())
}

fn failed(at: &str, node: &str) -> Value {
    json!({"nodeName": node, "migrationState": {
        "completed": true, "failed": true, "failureReason": "CPU is incompatible", "endTimestamp": at,
    }})
}

fn began(at: &str) -> Value {
    json!({"migrationState": {"startTimestamp": at, "completed": false, "failed": false}})
}

fn denied(status: &str) -> Value {
    json!({"conditions": [{"type": "LiveMigratable", "status": status, "reason": "DisksNotLiveMigratable"}]})
}

fn with_cpu(feature_elsewhere: bool) -> Cluster {
    let mut pod = launcher();
    pod["spec"]["nodeSelector"] = json!({"cpu-feature.node.kubevirt.io/ipred-ctrl": "true"});
    let cluster = Cluster::node_in("PreDraining")
        .with("vmis", vmi(json!({})))
        .with("pods", pod);
    if !feature_elsewhere {
        return cluster;
    }
    let label = json!({"metadata": {"labels": {"cpu-feature.node.kubevirt.io/ipred-ctrl": "true"}}});
    cluster.patched("nodes", "node-3", label)
}

fn budget(vm: &str, since: &str) -> Value {
    json!({
        "metadata": {
            "name": "kubevirt-migration-pdb-kubevirt-evacuation-x", "namespace": "default", "creationTimestamp": since,
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": vm, "uid": "x"}],
        },
        "spec": {"minAvailable": 2}, "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 2, "expectedPods": 2},
    })
}

pub(super) fn cases() -> Vec<Case> {
    let no_room = || pending(target(), "0/3 nodes are available: insufficient memory");
    vec![
        Case {
            id: "D08",
            object: "VirtualMachineInstance default/vm-1",
            found: running(json!({}))
                .with("migrations", migration("Scheduling"))
                .with("pods", no_room()),
            near: vec![
                (
                    "its target is scheduled",
                    running(json!({}))
                        .with("migrations", migration("Scheduling"))
                        .with("pods", target()),
                ),
                (
                    "its migration only waits for others",
                    running(json!({})).with("migrations", migration("Pending")),
                ),
                (
                    "its node is not emptied",
                    running(json!({"nodeName": "node-2"}))
                        .with("migrations", migration("Scheduling"))
                        .with("pods", no_room()),
                ),
            ],
        },
        Case {
            id: "D09",
            object: "VirtualMachineInstance default/vm-1",
            found: running(failed(LONG_AGO, "node-1")),
            near: vec![
                (
                    "it is being tried again",
                    running(failed(LONG_AGO, "node-1")).with("migrations", migration("Running")),
                ),
                (
                    "it failed before the upgrade",
                    running(failed("2026-03-12T00:00:00Z", "node-1")),
                ),
                ("it has left", running(failed(LONG_AGO, "node-2"))),
                ("it failed just now", running(failed(JUST_NOW, "node-1"))),
            ],
        },
        Case {
            id: "D10",
            object: "VirtualMachineInstance default/vm-1",
            found: running(began(LONG_AGO)).with("migrations", migration("Running")),
            near: vec![
                (
                    "it began just now",
                    running(began(JUST_NOW)).with("migrations", migration("Running")),
                ),
                (
                    "the VM is so large that this is normal",
                    Cluster::node_in("PreDraining")
                        .with("vmis", {
                            let mut vmi = vmi(began(LONG_AGO));
                            vmi["spec"]["domain"] = json!({"memory": {"guest": "512Gi"}});
                            vmi
                        })
                        .with("pods", launcher())
                        .with("migrations", migration("Running")),
                ),
            ],
        },
        Case {
            id: "D11",
            object: "VirtualMachineInstance default/vm-1",
            found: running(denied("False")),
            near: vec![
                ("it can be migrated", running(denied("True"))),
                (
                    "the node has just begun",
                    running_in(Cluster::node_since("PreDraining", JUST_NOW), denied("False")),
                ),
                ("no upgrade runs", running_in(Cluster::idle(), denied("False"))),
            ],
        },
        Case {
            id: "D12",
            object: "VirtualMachineInstance default/vm-1",
            found: with_cpu(false),
            near: vec![
                ("another node has the feature", with_cpu(true)),
                ("it asks for none", running(json!({}))),
            ],
        },
        Case {
            id: "D13",
            object: "VirtualMachineInstance default/vm-1",
            found: Cluster::node_in("PreDraining").with("vmis", vmi(json!({}))),
            near: vec![
                ("its pod runs", running(json!({}))),
                (
                    "the node has just begun",
                    Cluster::node_since("PreDraining", JUST_NOW).with("vmis", vmi(json!({}))),
                ),
            ],
        },
        Case {
            id: "D13",
            object: "VirtualMachineInstance default/vm-1",
            found: Cluster::node_in("PreDraining").with("vmis", vmi(json!({"phase": "Succeeded"}))),
            near: vec![(
                "it is on another node",
                Cluster::node_in("PreDraining").with("vmis", vmi(json!({"phase": "Succeeded", "nodeName": "node-2"}))),
            )],
        },
        Case {
            id: "D14",
            object: "PodDisruptionBudget default/kubevirt-migration-pdb-kubevirt-evacuation-x",
            found: running(json!({"nodeName": "node-2"}))
                .with("migrations", migration("Running"))
                .with("budgets", budget("vm-1", LONG_AGO)),
            near: vec![
                (
                    "its VM is on the node",
                    running(json!({}))
                        .with("migrations", migration("Running"))
                        .with("budgets", budget("vm-1", LONG_AGO)),
                ),
                (
                    "it was made just now",
                    running(json!({"nodeName": "node-2"})).with("budgets", budget("vm-1", JUST_NOW)),
                ),
            ],
        },
    ]
}
