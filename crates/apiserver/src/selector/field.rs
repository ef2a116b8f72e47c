//! Field selectors: the few fields each kind allows. An unknown field is an error, as on the real server.

use serde_json::Value;

use crate::{
    kind::Kind,
    status::{ApiError, ApiResult},
};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    field: String,
    wanted: bool,
    value: String,
}

/// All requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    requirements: Vec<Requirement>,
}

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingComponent",
    "reportingController",
    "source",
    "type",
];

fn allowed(kind: &Kind, field: &str) -> bool {
    if field == "metadata.name" || (field == "metadata.namespace" && kind.namespaced) {
        return true;
    }
    // Cluster-scoped kinds of the real server differ here; custom ones allow it.
    if field == "metadata.namespace" {
        return true;
    }
    match (kind.resource.group.as_str(), kind.resource.plural.as_str()) {
        ("", "pods") => matches!(
            field,
            "spec.nodeName"
                | "spec.restartPolicy"
                | "spec.schedulerName"
                | "spec.serviceAccountName"
                | "spec.hostNetwork"
                | "status.phase"
                | "status.podIP"
                | "status.nominatedNodeName"
        ),
        ("", "events") => EVENT_FIELDS.contains(&field),
        ("", "secrets") => field == "type",
        ("", "nodes") => field == "spec.unschedulable",
        ("", "namespaces") => field == "status.phase",
        ("", "services") => matches!(field, "spec.clusterIP" | "spec.type"),
        ("batch", "jobs") => field == "status.successful",
        ("apps", "replicasets") => field == "status.replicas",
        _ => kind.selectable_fields.iter().any(|allowed| allowed == field),
    }
}

/// The real server words this by kind.
fn unknown_field(kind: &Kind, field: &str) -> String {
    let own_words = [
        "pods",
        "events",
        "secrets",
        "nodes",
        "namespaces",
        "services",
        "replicasets",
    ];
    if kind.kind == "Job" {
        format!("field label \"{field}\" not supported for Job")
    } else if kind.is_custom() || own_words.contains(&kind.plural.as_str()) {
        format!("field label not supported: {field}")
    } else {
        format!("\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    }
}

impl FieldSelector {
    pub(crate) fn parse(kind: &Kind, text: &str) -> ApiResult<Self> {
        let mut requirements = Vec::new();
        for clause in text.split(',').map(str::trim).filter(|clause| !clause.is_empty()) {
            let (field, wanted, value) = if let Some((field, value)) = clause.split_once("!=") {
                (field, false, value)
            } else if let Some((field, value)) = clause.split_once("==") {
                (field, true, value)
            } else if let Some((field, value)) = clause.split_once('=') {
                (field, true, value)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{clause}'"
                )));
            };
            if !allowed(kind, field) {
                return Err(ApiError::bad_request(unknown_field(kind, field)));
            }
            requirements.push(Requirement {
                field: field.into(),
                wanted,
                value: value.into(),
            });
        }
        Ok(Self { requirements })
    }

    /// Adds `field=value`.
    pub(crate) fn require(&mut self, field: &str, value: &str) {
        self.requirements.push(Requirement {
            field: field.into(),
            wanted: true,
            value: value.into(),
        });
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.requirements
            .iter()
            .all(|requirement| (value_of(object, &requirement.field) == requirement.value) == requirement.wanted)
    }
}

/// A field as the text selectors compare with; absent is empty, absent booleans are false.
fn value_of(object: &Value, field: &str) -> String {
    let path = match field {
        "source" => "source.component".to_owned(),
        // Events are stored in their core form.
        _ if field.starts_with("regarding.") => field.replacen("regarding", "involvedObject", 1),
        "reportingController" => "reportingComponent".to_owned(),
        "status.successful" => "status.succeeded".to_owned(),
        _ => field.to_owned(),
    };
    let found = path.split('.').try_fold(object, |value, step| value.get(step));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => match field {
            "spec.unschedulable" | "spec.hostNetwork" => "false".into(),
            "status.successful" | "status.replicas" => "0".into(),
            _ => String::new(),
        },
        Some(other) => other.to_string(),
    }
}
