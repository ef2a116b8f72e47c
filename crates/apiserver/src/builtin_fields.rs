//! Fields of built-in kinds: what their types do not have is not kept by a real server, and a strict client is refused.
//!
//! The embedded server keeps built-in objects as they are sent. A client that requests field validation gets what a real one
//! answers: the object is read as its type and written again, and fields that are missing then are unknown.

use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    coordination::v1::Lease,
    core::v1::{
        ConfigMap, Endpoints, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service,
        ServiceAccount,
    },
    discovery::v1::EndpointSlice,
    networking::v1::{Ingress, NetworkPolicy},
    policy::v1::{Eviction, PodDisruptionBudget},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    scheduling::v1::PriorityClass,
    storage::v1::StorageClass,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    kind::{Kind, View},
    request::Call,
    status::{ApiError, ApiResult},
};

/// Paths of an object that its type does not have. Only checked on request: no client of ours reads
/// warnings that it did not request, and thousands of simulated writes would pay for it.
pub(crate) fn unknown(call: &Call, object: &Value) -> ApiResult<Vec<String>> {
    let kind = call.kind();
    if !matches!(call.query.get("fieldValidation"), Some("Strict" | "Warn")) {
        return Ok(Vec::new());
    }
    undeclared(kind, object)
}

/// Paths of an object of a built-in kind that its type does not have.
pub(crate) fn undeclared(kind: &Kind, object: &Value) -> ApiResult<Vec<String>> {
    if kind.schema.is_some() || kind.view == View::EventsV1 {
        return Ok(Vec::new());
    }
    let read = read_and_written(kind, object).map_err(|error| {
        ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {error}",
            kind.kind, kind.version, kind.kind
        ))
    })?;
    let mut missing = Vec::new();
    if let Some(read) = read {
        compare("", object, &read, &mut missing);
    }
    Ok(missing)
}

/// An eviction says nothing that its type does not have, if the request wants that.
pub(crate) fn check_eviction(call: &Call, eviction: &Value) -> ApiResult<()> {
    if call.query.get("fieldValidation") != Some("Strict") {
        return Ok(());
    }
    let wrong = |why: String| {
        let what = "Eviction in version \"v1\" cannot be handled as a Eviction";
        ApiError::bad_request(format!("{what}: {why}"))
    };
    let read = through::<Eviction>(eviction).map_err(|error| wrong(error.to_string()))?;
    let mut missing = Vec::new();
    compare("", eviction, &read.unwrap_or_default(), &mut missing);
    match missing.first() {
        Some(path) => Err(wrong(format!("strict decoding error: unknown field \"{path}\""))),
        None => Ok(()),
    }
}

fn through<K: DeserializeOwned + Serialize>(object: &Value) -> serde_json::Result<Option<Value>> {
    let typed: K = K::deserialize(object)?;
    serde_json::to_value(typed).map(Some)
}

/// The object as its type has it; none for kinds whose types are not looked at.
fn read_and_written(kind: &Kind, object: &Value) -> serde_json::Result<Option<Value>> {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => through::<Namespace>(object),
        ("", "Node") => through::<Node>(object),
        ("", "Pod") => through::<Pod>(object),
        ("", "Service") => through::<Service>(object),
        ("", "ConfigMap") => through::<ConfigMap>(object),
        ("", "Secret") => through::<Secret>(object),
        ("", "Event") => through::<Event>(object),
        ("", "ServiceAccount") => through::<ServiceAccount>(object),
        ("", "PersistentVolumeClaim") => through::<PersistentVolumeClaim>(object),
        ("", "PersistentVolume") => through::<PersistentVolume>(object),
        ("", "Endpoints") => through::<Endpoints>(object),
        ("apps", "Deployment") => through::<Deployment>(object),
        ("apps", "ReplicaSet") => through::<ReplicaSet>(object),
        ("apps", "StatefulSet") => through::<StatefulSet>(object),
        ("apps", "DaemonSet") => through::<DaemonSet>(object),
        ("apps", "ControllerRevision") => through::<ControllerRevision>(object),
        ("batch", "Job") => through::<Job>(object),
        ("batch", "CronJob") => through::<CronJob>(object),
        ("coordination.k8s.io", "Lease") => through::<Lease>(object),
        ("discovery.k8s.io", "EndpointSlice") => through::<EndpointSlice>(object),
        ("policy", "PodDisruptionBudget") => through::<PodDisruptionBudget>(object),
        ("rbac.authorization.k8s.io", "Role") => through::<Role>(object),
        ("rbac.authorization.k8s.io", "RoleBinding") => through::<RoleBinding>(object),
        ("rbac.authorization.k8s.io", "ClusterRole") => through::<ClusterRole>(object),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => through::<ClusterRoleBinding>(object),
        ("storage.k8s.io", "StorageClass") => through::<StorageClass>(object),
        ("scheduling.k8s.io", "PriorityClass") => through::<PriorityClass>(object),
        ("networking.k8s.io", "Ingress") => through::<Ingress>(object),
        ("networking.k8s.io", "NetworkPolicy") => through::<NetworkPolicy>(object),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => {
            through::<ValidatingWebhookConfiguration>(object)
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => {
            through::<MutatingWebhookConfiguration>(object)
        }
        _ => Ok(None),
    }
}

/// Fields that were sent and are not there any more. A null says that there is nothing.
fn compare(path: &str, sent: &Value, read: &Value, missing: &mut Vec<String>) {
    match (sent, read) {
        (Value::Object(sent), Value::Object(read)) => {
            for (name, child) in sent {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                match read.get(name) {
                    Some(read) => compare(&path, child, read, missing),
                    None if child.is_null() => {}
                    None => missing.push(path),
                }
            }
        }
        (Value::Array(sent), Value::Array(read)) => {
            for (index, (sent, read)) in sent.iter().zip(read).enumerate() {
                compare(&format!("{path}[{index}]"), sent, read, missing);
            }
        }
        _ => {}
    }
}
