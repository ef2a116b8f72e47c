//! The Jobs: cluster manifests, the steps of a node, VMs that start again.

use api::{Component, JobType, UpgradePlan, labels, names};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use plan::{image, observed::Settings};
use serde_json::{Value, json};

use super::{JOB_TTL_SECONDS, component_labels, everything_tolerated, metadata, repo_environment, tolerations};

fn image(plan: &UpgradePlan, settings: &Settings) -> String {
    image::of(plan, settings).to_string()
}

/// The program must know which pod it is: it says there what it waits for, and may reboot the host once this pod has
/// succeeded. Its hostname is not its name if it shares the network of its node.
fn pod_name() -> Value {
    json!({"name": "HARVESTER_UPGRADE_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
}

/// The user of our image, who may do nothing in particular.
const UNPRIVILEGED_USER: u32 = 1000;

/// The security context of a container that touches nothing of its node and writes only to its volumes.
pub(super) fn unprivileged() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "runAsUser": UNPRIVILEGED_USER,
        "runAsGroup": UNPRIVILEGED_USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// The Job that applies the cluster's manifests.
///
/// # Errors
/// Never for a plan that the API server accepted.
pub fn cluster(plan: &UpgradePlan, settings: &Settings) -> Result<Job, serde_json::Error> {
    let name = plan.name_any();
    let labels = component_labels(plan, Component::ClusterUpgrade);
    let image = image(plan, settings);
    let mut env = vec![
        json!({"name": "HARVESTER_UPGRADEPLAN_NAME", "value": name}),
        // So that it need not read its own pod.
        json!({"name": "HARVESTER_UPGRADE_IMAGE", "value": image}),
        // It makes a Plan of system-upgrade-controller itself, which is to run as ours do.
        json!({"name": "UPGRADE_PLAN_SERVICE_ACCOUNT", "value": settings.accounts.node_plans()}),
    ];
    if let Some(account) = settings.accounts.rancher_installer() {
        env.push(json!({"name": "UPGRADE_HELM_SERVICE_ACCOUNT", "value": account}));
    }
    env.extend(repo_environment(plan));
    serde_json::from_value(json!({
        "metadata": metadata(plan, names::HARVESTER_NAMESPACE, names::cluster_job(&name), labels.clone()),
        "spec": {
            "ttlSecondsAfterFinished": JOB_TTL_SECONDS,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": settings.accounts.cluster_upgrade(),
                    // The account itself does not mount its token.
                    "automountServiceAccountToken": true,
                    "tolerations": tolerations(),
                    "containers": [{
                        "name": "apply",
                        "image": image,
                        "command": ["upgrade_manifests.sh"],
                        "env": env,
                        "securityContext": unprivileged(),
                        // It unpacks Rancher's installer there.
                        "volumeMounts": [{"name": "work", "mountPath": "/tmp"}],
                    }],
                    "volumes": [{"name": "work", "emptyDir": {}}],
                },
            },
        },
    }))
}

/// A Job that does one step of a node, on that node and as root of its host.
///
/// # Errors
/// Never for a plan that the API server accepted.
pub fn node(
    plan: &UpgradePlan,
    settings: &Settings,
    step: JobType,
    node: &str,
    suspend: bool,
) -> Result<Job, serde_json::Error> {
    let name = plan.name_any();
    let mut env = vec![
        json!({"name": "HARVESTER_UPGRADEPLAN_NAME", "value": name}),
        json!({"name": "HARVESTER_UPGRADE_NODE_NAME", "value": node}),
        pod_name(),
    ];
    env.extend(repo_environment(plan));
    let pod = json!({
        "serviceAccountName": settings.accounts.node_upgrade(),
        "hostPID": true,
        // The network of pods is being replaced during the upgrade; that of the node is there. Services are still found by name.
        "hostNetwork": true,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "containers": [{
            "name": "apply",
            "image": image(plan, settings),
            "command": ["upgrade_node.sh"],
            "args": [step],
            "env": env,
            "securityContext": {"privileged": true, "runAsUser": 0},
            "volumeMounts": [{"name": "host-root", "mountPath": "/host"}],
        }],
        "volumes": [{"name": "host-root", "hostPath": {"path": "/"}}],
    });
    on_node(plan, step, node, suspend, pod)
}

/// The Job that starts the VMs again that were stopped for a node's upgrade.
///
/// # Errors
/// Never for a plan that the API server accepted.
pub fn restore_vm(plan: &UpgradePlan, settings: &Settings, node: &str) -> Result<Job, serde_json::Error> {
    let pod = json!({
        "serviceAccountName": settings.accounts.vm_restore(),
        "containers": [{
            "name": "restore-vm",
            "image": image(plan, settings),
            "command": ["upgrade-toolkit"],
            "args": ["restore-vm", "--node", node, "--upgrade", plan.name_any()],
            // It only talks to the API server.
            "securityContext": unprivileged(),
        }],
    });
    on_node(plan, JobType::RestoreVm, node, false, pod)
}

fn on_node(
    plan: &UpgradePlan,
    step: JobType,
    node: &str,
    suspend: bool,
    mut pod: Value,
) -> Result<Job, serde_json::Error> {
    let mut labels = component_labels(plan, Component::NodeUpgrade);
    labels.insert(labels::JOB_TYPE.to_owned(), step.to_string());
    labels.insert(labels::NODE.to_owned(), node.to_owned());
    pod["restartPolicy"] = json!("Never");
    // By the scheduler: a pod that names its node is rejected by a kubelet that is just starting, and each rejection counts
    // as a failure of the Job. By the node's name and not by a label, which any user can change.
    pod["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
    ]}}});
    // The account itself does not mount its token.
    pod["automountServiceAccountToken"] = json!(true);
    pod["tolerations"] = everything_tolerated();
    let name = names::node_job(&plan.name_any(), step, node);
    let mut job: Job = serde_json::from_value(json!({
        "metadata": metadata(plan, names::HARVESTER_NAMESPACE, name, labels.clone()),
        "spec": {
            "ttlSecondsAfterFinished": JOB_TTL_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }))?;
    if let Some(spec) = &mut job.spec {
        spec.suspend = suspend.then_some(true);
    }
    Ok(job)
}
