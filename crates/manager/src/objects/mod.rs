//! The objects that belong to an upgrade, as they are created. Pure: from a plan and a request to an object.

use std::collections::BTreeMap;

use api::{Component, UpgradePlan, labels, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;
use serde_json::{Value, json};

pub mod iso_image;
pub mod job;
pub mod ownership;
pub mod rancher;
pub mod repo;
pub mod suc_plan;

/// How long finished Jobs are kept: 7 days.
pub const JOB_TTL_SECONDS: i32 = 7 * 24 * 60 * 60;

/// The plan owns what it creates, so that nothing outlives it.
#[must_use]
pub fn owner(plan: &UpgradePlan) -> OwnerReference {
    api::owner::controller_reference(&plan.metadata)
}

/// The labels of everything that serves a component.
#[must_use]
pub fn component_labels(plan: &UpgradePlan, component: Component) -> BTreeMap<String, String> {
    BTreeMap::from([
        (labels::UPGRADE_PLAN.to_owned(), plan.name_any()),
        (labels::UPGRADE_COMPONENT.to_owned(), component.to_string()),
    ])
}

/// Name, namespace, labels and owner of an object of ours.
#[must_use]
pub fn metadata(plan: &UpgradePlan, namespace: &str, name: String, labels: BTreeMap<String, String>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(namespace.to_owned()),
        labels: Some(labels),
        owner_references: Some(vec![owner(plan)]),
        ..ObjectMeta::default()
    }
}

/// What a program that reads from the repository must know to verify it: variables of its environment, none for an upgrade
/// that began under an older manager.
#[must_use]
pub fn repo_environment(plan: &UpgradePlan) -> Vec<Value> {
    let digests = plan.status.as_ref().and_then(|status| status.release_digests.as_ref());
    let manifest = digests.map(|digests| json!({"name": names::MANIFEST_VARIABLE, "value": digests.manifest}));
    let access = plan.status.as_ref().and_then(|status| status.repository.as_ref());
    let certificate = access.map(|access| json!({"name": names::CERTIFICATE_VARIABLE, "value": access.certificate}));
    manifest.into_iter().chain(certificate).collect()
}

/// A pod that works on its node runs there whatever taints the node has: those of the upgrade, those of Kubernetes (a node
/// that is not ready or not reachable for a while evicts nothing that works on it), and those of its users.
#[must_use]
pub fn everything_tolerated() -> Value {
    json!([{"operator": "Exists"}])
}

/// Our pods run on nodes that are cordoned, drained or tainted by the upgrade itself.
#[must_use]
pub fn tolerations() -> Value {
    json!([
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoExecute"},
        {"key": "node-role.kubernetes.io/etcd", "operator": "Exists", "effect": "NoExecute"},
        {"key": "kubernetes.io/arch", "operator": "Equal", "value": "amd64", "effect": "NoSchedule"},
        {"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"},
        {"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm", "effect": "NoSchedule"},
        {"key": "kubevirt.io/drain", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "CriticalAddonsOnly", "operator": "Exists"}
    ])
}
