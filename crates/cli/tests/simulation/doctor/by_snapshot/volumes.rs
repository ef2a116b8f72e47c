//! Volumes, replicas and instance managers.

use serde_json::{Value, json};

use crate::doctor::edit::{Edit, condition};

#[allow(clippy::needless_pass_by_value, reason = "json! makes values")]
pub(super) fn volume(node: &str, status: Value) -> Value {
    let mut volume = json!({
        "metadata": {"name": "pvc-injected", "namespace": "longhorn-system"},
        "spec": {"numberOfReplicas": 3, "backingImage": "default-image"},
        "status": {"state": "attached", "robustness": "degraded", "currentNodeID": node},
    });
    for (key, value) in status.as_object().into_iter().flatten() {
        volume["status"][key] = value.clone();
    }
    volume
}

pub(super) const VOLUME: &str = "Volume longhorn-system/pvc-injected";

pub(super) fn instance_manager(edit: Edit) -> (Edit, String) {
    let node = edit.node();
    let name = "instance-manager-injected";
    let edit = edit
        .with(
            "pods",
            json!({
                "metadata": {"name": name, "namespace": "longhorn-system"},
                "spec": {"nodeName": node, "containers": [{"name": "c"}]}, "status": {"phase": "Running"},
            }),
        )
        .with(
            "budgets",
            json!({
                "metadata": {"name": name, "namespace": "longhorn-system"}, "spec": {"minAvailable": 1},
                "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
            }),
        )
        .with(
            "instance_managers",
            json!({
                "metadata": {"name": name, "namespace": "longhorn-system"}, "spec": {"nodeID": node},
                "status": {"instanceEngines": {"pvc-gone-e-0": {"status": {"state": "running"}}}},
            }),
        );
    (edit, format!("PodDisruptionBudget longhorn-system/{name}"))
}

pub(super) fn last_replica(edit: Edit) -> (Edit, String) {
    let node = edit.node();
    let mut single = volume("another-node", json!({"robustness": "healthy"}));
    single["spec"]["numberOfReplicas"] = json!(1);
    let replica = json!({
        "metadata": {"name": "pvc-injected-r", "namespace": "longhorn-system"},
        "spec": {"volumeName": "pvc-injected", "nodeID": node},
    });
    (
        edit.with("volumes", single).with("replicas", replica),
        VOLUME.to_owned(),
    )
}

pub(super) fn rebuild(edit: Edit) -> (Edit, String) {
    let engine = json!({
        "metadata": {"name": "pvc-injected-e", "namespace": "longhorn-system"},
        "spec": {"volumeName": "pvc-injected", "nodeID": "node-2"},
        "status": {"currentState": "running", "rebuildStatus": {"tcp://10.0.0.1": {"isRebuilding": true, "progress": 43}}},
    });
    (
        edit.with("volumes", volume("node-2", json!({})))
            .with("engines", engine),
        VOLUME.to_owned(),
    )
}

pub(super) fn no_place(edit: Edit) -> (Edit, String) {
    let conditions = json!([condition("Scheduled", "False", &edit.ago(30), "insufficient storage")]);
    (
        edit.with("volumes", volume("node-2", json!({"conditions": conditions}))),
        VOLUME.to_owned(),
    )
}

pub(super) fn backing_image(edit: Edit) -> (Edit, String) {
    let conditions = json!([condition("WaitForBackingImage", "True", &edit.ago(30), "waiting")]);
    (
        edit.with("volumes", volume("node-2", json!({"conditions": conditions}))),
        VOLUME.to_owned(),
    )
}

pub(super) fn stale(edit: Edit) -> (Edit, String) {
    let node = edit.node();
    let claim = json!({"namespace": "default", "pvcName": "unused"});
    let volume = volume(&node, json!({"robustness": "healthy", "kubernetesStatus": claim}));
    (edit.with("volumes", volume), VOLUME.to_owned())
}
