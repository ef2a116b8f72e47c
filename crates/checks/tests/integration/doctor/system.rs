//! Jobs, the ISO, VMs after the upgrade, KubeVirt and the log.

use serde_json::{Value, json};

use super::{
    Case,
    cluster::{Cluster, JUST_NOW, LONG_AGO, condition, plan, pod, waiting},
};

fn ours(component: &str) -> Value {
    json!({"management.harvesterhci.io/upgrade-plan": "up", "management.harvesterhci.io/upgrade-component": component})
}

fn job_pod(cluster: Cluster, component: &str, status: Value) -> Cluster {
    cluster.with(
        "pods",
        pod(
            "harvester-system",
            "up-cluster-upgrade-x",
            "node-1",
            ours(component),
            status,
        ),
    )
}

fn suc_plan(created: &str, status: Value) -> Cluster {
    Cluster::in_phase("ImagePreloading", json!({})).with("suc_plans", json!({
        "metadata": {"name": "up-image-preload", "namespace": "cattle-system", "creationTimestamp": created, "labels": ours("image-preload")},
        "status": status,
    }))
}

fn failed_plan(why: &str) -> Value {
    let failed = condition("Progressing", "False", LONG_AGO, why);
    json!({"status": {
        "currentPhase": "Failed", "conditions": [failed], "nodeUpgradeStatuses": {"node-1": {"state": "ImagePreloadFailed"}},
    }})
}

fn job(labels: Value, condition: Option<Value>) -> Value {
    json!({
        "metadata": {"name": "apply-up-image-preload-on-node-1", "namespace": "cattle-system", "labels": labels},
        "spec": {"template": {}}, "status": {"conditions": condition.into_iter().collect::<Vec<_>>()},
    })
}

fn failed(reason: &str) -> Value {
    json!({"type": "Failed", "status": "True", "reason": reason, "message": "Job was active longer than specified deadline"})
}

fn importer(reason: &str, restarts: u32) -> Value {
    pod(
        "harvester-system",
        "importer-prime-1",
        "node-1",
        json!({}),
        json!({"phase": "Running", "containerStatuses": [{
            "name": "importer", "image": "", "imageID": "", "ready": true, "restartCount": restarts,
            "lastState": {"terminated": {"exitCode": 137, "reason": reason}},
        }]}),
    )
}

fn claim(name: &str, phase: &str, created: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "harvester-system", "creationTimestamp": created}, "status": {"phase": phase}})
}

fn image(name: &str, status: &str, message: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "harvester-system"}, "spec": {"url": "https://example.org/harvester.iso"},
        "status": {"conditions": [condition("Imported", status, LONG_AGO, message)]},
    })
}

fn restored(cluster: Cluster, vm_status: &str, owner: &str) -> Cluster {
    cluster
        .with("config_maps", json!({
            "metadata": {
                "name": "up-restore-vm", "namespace": "harvester-system",
                "ownerReferences": [{"apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan", "name": "up", "uid": owner}],
            },
            "data": {"node-1": "default/vm-1"},
        }))
        .with("vms", json!({"metadata": {"name": "vm-1", "namespace": "default"}, "status": {"printableStatus": vm_status}}))
}

fn log_pod(cluster: Cluster, status: Value) -> Cluster {
    let labels = json!({"harvesterhci.io/upgradeLogComponent": "aggregator"});
    cluster.with(
        "pods",
        pod("harvester-system", "up-upgradelog-fluentd-0", "node-1", labels, status),
    )
}

fn kubevirt(status: &str, since: &str) -> Cluster {
    Cluster::node_in("PreDraining").with(
        "kubevirts",
        json!({
            "metadata": {"name": "kubevirt", "namespace": "harvester-system"},
            "status": {"conditions": [condition("Available", status, since, "virt-handler is not ready")]},
        }),
    )
}

fn handler(cluster: Cluster, status: &str, since: &str) -> Cluster {
    let conditions =
        json!({"phase": "Running", "conditions": [condition("Ready", status, since, "containers not ready")]});
    cluster.with(
        "pods",
        pod(
            "harvester-system",
            "virt-handler-x",
            "node-2",
            json!({"kubevirt.io": "virt-handler"}),
            conditions,
        ),
    )
}

pub(super) fn cases() -> Vec<Case> {
    let charts = || Cluster::in_phase("ClusterUpgrading", json!({}));
    let importing = || Cluster::in_phase("ISODownloading", json!({"isoImageID": "up-iso"}));
    let applying = || json!({"latestHash": "h", "applying": ["node-1"]});
    let suc = || json!({"upgrade.cattle.io/plan": "up-image-preload", "upgrade.cattle.io/node": "node-1"});
    let done = || Cluster::node_in("PostDrained");
    let ready = || json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    vec![
        Case {
            id: "D17",
            object: "Pod harvester-system/up-cluster-upgrade-x",
            found: job_pod(charts(), "cluster-upgrade", waiting("ImagePullBackOff")),
            near: vec![
                ("its container is being created", job_pod(charts(), "cluster-upgrade", waiting("ContainerCreating"))),
                ("it has ended", job_pod(charts(), "cluster-upgrade", json!({"phase": "Succeeded"}))),
                ("no upgrade runs", job_pod(Cluster::idle(), "cluster-upgrade", waiting("ImagePullBackOff"))),
            ],
        },
        Case {
            id: "D28",
            object: "Plan cattle-system/up-image-preload",
            found: suc_plan(LONG_AGO, applying()),
            near: vec![
                ("there is a Job", suc_plan(LONG_AGO, applying()).with("jobs", job(suc(), None))),
                ("the Plan is new", suc_plan(JUST_NOW, applying())),
                ("it is applied to no node", suc_plan(LONG_AGO, json!({"latestHash": "h"}))),
            ],
        },
        Case {
            id: "D29",
            object: "Job cattle-system/apply-up-image-preload-on-node-1",
            found: charts().with("jobs", job(ours("image-preload"), Some(failed("DeadlineExceeded")))),
            near: vec![
                ("it failed otherwise", charts().with("jobs", job(ours("image-preload"), Some(failed("BackoffLimitExceeded"))))),
                ("it is no Job of the upgrade", charts().with("jobs", job(json!({}), Some(failed("DeadlineExceeded"))))),
            ],
        },
        Case {
            id: "D29",
            object: "UpgradePlan up",
            found: charts().plan_with(failed_plan("image-preload plan job(s) failed: node-1: Job was active longer than specified deadline")),
            near: vec![(
                "it failed otherwise",
                charts().plan_with(failed_plan("image-preload plan job(s) failed: node-1: exit code 1")),
            )],
        },
        Case {
            id: "D31",
            object: "Pod harvester-system/importer-prime-1",
            found: importing().with("pods", importer("OOMKilled", 1)),
            near: vec![
                ("it was restarted once", importing().with("pods", importer("Error", 1))),
                ("no ISO is imported", charts().with("pods", importer("OOMKilled", 1))),
            ],
        },
        Case {
            id: "D31",
            object: "DataVolume harvester-system/up-iso",
            found: importing().with("data_volumes", json!({
                "metadata": {"name": "up-iso", "namespace": "harvester-system"}, "status": {"phase": "ImportInProgress", "restartCount": 12},
            })),
            near: vec![(
                "it is imported",
                importing().with("data_volumes", json!({
                    "metadata": {"name": "up-iso", "namespace": "harvester-system"}, "status": {"phase": "Succeeded", "restartCount": 12},
                })),
            )],
        },
        Case {
            id: "D32",
            object: "PersistentVolumeClaim harvester-system/prime-1-scratch",
            found: importing().with("claims", claim("prime-1-scratch", "Pending", LONG_AGO)),
            near: vec![
                ("it is bound", importing().with("claims", claim("prime-1-scratch", "Bound", LONG_AGO))),
                ("it was made just now", importing().with("claims", claim("prime-1-scratch", "Pending", JUST_NOW))),
                ("it is another claim", importing().with("claims", claim("mine", "Pending", LONG_AGO))),
            ],
        },
        Case {
            id: "D33",
            object: "VirtualMachineImage harvester-system/up-iso",
            found: importing().with("images", image("up-iso", "False", "checksum does not match")),
            near: vec![
                ("it is being imported", importing().with("images", image("up-iso", "Unknown", ""))),
                ("it is another image", importing().with("images", image("other", "False", "checksum does not match"))),
            ],
        },
        Case {
            id: "D41",
            object: "VirtualMachine default/vm-1",
            found: restored(done(), "Stopped", "u-1"),
            near: vec![
                ("it runs", restored(done(), "Running", "u-1")),
                ("the node was done just now", restored(Cluster::node_since("PostDrained", JUST_NOW), "Stopped", "u-1")),
                ("the list is of another plan", restored(done(), "Stopped", "u-0")),
                (
                    "the plan restores none",
                    restored(done(), "Stopped", "u-1").plan_with(json!({"spec": {"restoreVM": false}})),
                ),
            ],
        },
        Case {
            id: "D42",
            object: "Pod harvester-system/up-upgradelog-fluentd-0",
            found: log_pod(charts(), waiting("ImagePullBackOff")),
            near: vec![("it is ready", log_pod(charts(), ready())), ("no upgrade runs", log_pod(Cluster::idle(), waiting("ImagePullBackOff")))],
        },
        Case {
            id: "D43",
            object: "KubeVirt harvester-system/kubevirt",
            found: kubevirt("False", LONG_AGO),
            near: vec![("it is available", kubevirt("True", LONG_AGO)), ("it is away since just now", kubevirt("False", JUST_NOW))],
        },
        Case {
            id: "D43",
            object: "Pod harvester-system/virt-handler-x",
            found: handler(charts(), "False", LONG_AGO),
            near: vec![
                ("it is ready", handler(charts(), "True", LONG_AGO)),
                (
                    "its node is down",
                    handler(charts(), "False", LONG_AGO).patched(
                        "nodes",
                        "node-2",
                        json!({"status": {"conditions": [condition("Ready", "Unknown", LONG_AGO, "")]}}),
                    ),
                ),
                (
                    "no upgrade runs",
                    handler(Cluster::idle().with("plans", plan("Succeeded", LONG_AGO, json!({}))), "False", LONG_AGO),
                ),
            ],
        },
    ]
}
