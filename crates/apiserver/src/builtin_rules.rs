//! The few defaults and rules of built-in kinds that clients rely on. Everything else in them is taken as it comes.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::{crd, kind::Kind, status::FieldError};

/// A field that is a map, made one if it is not: clients may send anything in built-in kinds.
pub(crate) fn at<'a>(object: &'a mut Value, field: &str) -> &'a mut Value {
    if !object.is_object() {
        *object = json!({});
    }
    if !object[field].is_object() {
        object[field] = json!({});
    }
    &mut object[field]
}

fn default(object: &mut Value, field: &str, value: Value) {
    if object.is_object() && object.get(field).is_none_or(Value::is_null) {
        object[field] = value;
    }
}

/// The entries of a list that may not be there. Indexing would leave a null behind.
fn entries<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object
        .get_mut(field)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// What creation sets besides metadata: the status belongs to the server's side.
pub(crate) fn prepare_create(kind: &Kind, object: &mut Value, now: jiff::Timestamp) {
    // Kubelets register nodes together with their status.
    let keeps_status = kind.kind == "Node" && kind.group.is_empty();
    if kind.status
        && !keeps_status
        && let Some(map) = object.as_object_mut()
    {
        map.shift_remove("status");
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod" | "PersistentVolumeClaim" | "PersistentVolume") => {
            default(at(object, "status"), "phase", json!("Pending"))
        }
        ("", "Namespace") => {
            default(at(object, "status"), "phase", json!("Active"));
            default(at(object, "spec"), "finalizers", json!(["kubernetes"]));
            let name = object["metadata"]["name"].clone();
            at(&mut object["metadata"], "labels")["kubernetes.io/metadata.name"] = name;
        }
        ("batch", "Job") => complete_job(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            crd::shape(object);
            object["status"] = crd::established(object, now);
        }
        _ => {}
    }
}

/// The job controller's selector and labels, which the real server generates on create.
fn complete_job(object: &mut Value) {
    if object["spec"]["manualSelector"] == true || object["spec"].get("selector").is_some() {
        return;
    }
    let (uid, name) = (object["metadata"]["uid"].clone(), object["metadata"]["name"].clone());
    let template = at(at(object, "spec"), "template");
    let labels = at(at(template, "metadata"), "labels");
    for prefix in ["", "batch.kubernetes.io/"] {
        labels[format!("{prefix}controller-uid")] = uid.clone();
        labels[format!("{prefix}job-name")] = name.clone();
    }
    object["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
}

/// Defaults of stored objects.
pub(crate) fn shape(kind: &Kind, object: &mut Value) {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Secret") => {
            default(object, "type", json!("Opaque"));
            let texts = object.as_object_mut().and_then(|map| map.shift_remove("stringData"));
            for (key, text) in texts.as_ref().and_then(Value::as_object).into_iter().flatten() {
                let bytes = text.as_str().unwrap_or_default();
                at(object, "data")[key] = json!(base64::engine::general_purpose::STANDARD.encode(bytes));
            }
        }
        ("", "Pod") => shape_pod(at(object, "spec")),
        ("", "Service") => {
            let spec = at(object, "spec");
            default(spec, "type", json!("ClusterIP"));
            default(spec, "sessionAffinity", json!("None"));
            for port in entries(spec, "ports") {
                default(port, "protocol", json!("TCP"));
                let number = port["port"].clone();
                default(port, "targetPort", number);
            }
        }
        ("apps", "Deployment" | "StatefulSet" | "ReplicaSet") => {
            let spec = at(object, "spec");
            default(spec, "replicas", json!(1));
            shape_template(spec);
        }
        ("apps", "DaemonSet") => shape_template(at(object, "spec")),
        ("batch", "Job") => {
            let spec = at(object, "spec");
            default(spec, "backoffLimit", json!(6));
            default(spec, "completionMode", json!("NonIndexed"));
            default(spec, "suspend", json!(false));
            if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
                default(spec, "completions", json!(1));
            }
            default(spec, "parallelism", json!(1));
            shape_template(spec);
        }
        ("", "Node") => {
            at(object, "spec");
            // `false` is the zero value, which the real server never shows.
            if object["spec"]["unschedulable"] == false
                && let Some(spec) = object["spec"].as_object_mut()
            {
                spec.shift_remove("unschedulable");
            }
        }
        ("", "PersistentVolumeClaim") => default(at(object, "spec"), "volumeMode", json!("Filesystem")),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crd::shape(object),
        _ => {}
    }
}

fn shape_template(spec: &mut Value) {
    if spec["template"]["spec"].is_object() {
        shape_pod(&mut spec["template"]["spec"]);
    }
}

fn shape_pod(spec: &mut Value) {
    default(spec, "restartPolicy", json!("Always"));
    default(spec, "terminationGracePeriodSeconds", json!(30));
    default(spec, "dnsPolicy", json!("ClusterFirst"));
    for list in ["containers", "initContainers"] {
        for container in entries(spec, list) {
            let image = container["image"].as_str().unwrap_or_default();
            let untagged = !image.rsplit('/').next().unwrap_or_default().contains([':', '@']);
            let policy = if untagged || image.ends_with(":latest") {
                "Always"
            } else {
                "IfNotPresent"
            };
            default(container, "imagePullPolicy", json!(policy));
            for port in entries(container, "ports") {
                default(port, "protocol", json!("TCP"));
            }
        }
    }
}

/// What is wrong with a built-in object.
pub(crate) fn check(kind: &Kind, old: Option<&Value>, object: &Value, errors: &mut Vec<FieldError>) {
    let mut required = |path: &str, found: &Value| {
        if found.is_null() {
            errors.push(FieldError::required(path, ""));
        }
    };
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") => required("spec.containers", &object["spec"]["containers"]),
        ("batch", "Job") | ("apps", "Deployment" | "DaemonSet" | "StatefulSet") => {
            required(
                "spec.template.spec.containers",
                &object["spec"]["template"]["spec"]["containers"],
            );
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            required("roleRef.name", &object["roleRef"]["name"]);
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crd::check(object, errors),
        ("", "Event") => required("involvedObject.kind", &object["involvedObject"]["kind"]),
        _ => {}
    }
    let immutable = match (kind.group.as_str(), kind.kind.as_str()) {
        ("apps", "Deployment" | "DaemonSet" | "StatefulSet") => "/spec/selector",
        ("batch", "Job") => "/spec/template",
        ("", "Secret") => "/type",
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => "/roleRef",
        ("storage.k8s.io", "StorageClass") => "/provisioner",
        _ => return,
    };
    let Some(old) = old else { return };
    if old.pointer(immutable) != object.pointer(immutable) {
        let field = immutable.trim_start_matches('/').replace('/', ".");
        let value = object.pointer(immutable).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&field, &value, "field is immutable"));
    }
}
