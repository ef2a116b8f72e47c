//! VMs that cannot move.

use serde_json::json;

use crate::doctor::edit::{Edit, condition, only};

/// A VM on the node in flight, and its pod.
fn vm(edit: Edit) -> Edit {
    let node = edit.node();
    let created = edit.ago(60 * 24);
    edit.with("vmis", json!({
        "metadata": {"name": "injected", "namespace": "default", "uid": "vmi-injected", "creationTimestamp": created},
        "status": {"phase": "Running", "nodeName": node},
    }))
    .with("pods", json!({
        "metadata": {
            "name": "virt-launcher-injected-1", "namespace": "default",
            "labels": {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "injected"},
        },
        "spec": {"nodeName": node, "containers": [{"name": "compute"}]}, "status": {"phase": "Running"},
    }))
}

const VMI: &str = "VirtualMachineInstance default/injected";

pub(super) fn no_target(edit: Edit) -> (Edit, String) {
    let created = edit.ago(4);
    let target = json!({
        "metadata": {
            "name": "virt-launcher-injected-2", "namespace": "default", "creationTimestamp": created,
            "labels": {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "injected", "kubevirt.io/migrationJobUID": "m-injected"},
        },
        "spec": {"containers": [{"name": "compute"}]},
        "status": {"phase": "Pending", "conditions": [condition("PodScheduled", "False", &created, "0/3 nodes are available")]},
    });
    let migration = json!({
        "metadata": {"name": "kubevirt-evacuation-injected", "namespace": "default", "uid": "m-injected"},
        "spec": {"vmiName": "injected"}, "status": {"phase": "Scheduling"},
    });
    (
        vm(edit).with("pods", target).with("migrations", migration),
        VMI.to_owned(),
    )
}

pub(super) fn denied(edit: Edit) -> (Edit, String) {
    let since = edit.ago(60);
    let edit = vm(edit).change(
        "vmis",
        only("injected", |vmi| {
            vmi["status"]["conditions"] =
                json!([condition("LiveMigratable", "False", &since, "DisksNotLiveMigratable")]);
        }),
    );
    (edit, VMI.to_owned())
}

pub(super) fn cpu(edit: Edit) -> (Edit, String) {
    let edit = vm(edit).change(
        "pods",
        only("virt-launcher-injected-1", |pod| {
            pod["spec"]["nodeSelector"] = json!({"cpu-feature.node.kubevirt.io/ipred-ctrl": "true"});
        }),
    );
    (edit, VMI.to_owned())
}

pub(super) fn zombie(edit: Edit) -> (Edit, String) {
    let edit = vm(edit).change(
        "pods",
        only("virt-launcher-injected-1", |pod| {
            pod["status"]["phase"] = json!("Failed");
        }),
    );
    (edit, VMI.to_owned())
}

pub(super) fn foreign_budget(edit: Edit) -> (Edit, String) {
    let name = "kubevirt-migration-pdb-kubevirt-evacuation-injected";
    let created = edit.ago(60);
    let budget = json!({
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": created}, "spec": {"minAvailable": 2},
    });
    (
        edit.with("budgets", budget),
        format!("PodDisruptionBudget default/{name}"),
    )
}
