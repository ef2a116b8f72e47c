//! The `scale` subresource: an `autoscaling/v1` Scale as a view of an object.

use std::sync::Arc;

use serde_json::{Value, json};

use super::patch::media;
use crate::{
    body, builtin_rules,
    kind::Kind,
    patch::{apply_json_patch, apply_merge_patch},
    request::Call,
    route::Answer,
    server::Server,
    status::{ApiError, ApiResult},
    write::{self, Draft, Ownership},
};

fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

fn scale_of(kind: &Kind, object: &Value) -> Value {
    let number = |path: &str| {
        object
            .pointer(&pointer(path))
            .and_then(Value::as_i64)
            .unwrap_or_default()
    };
    let paths = kind.scale.clone();
    let (spec, status, selector) = paths.map_or((0, 0, None), |paths| {
        let selector = match &paths.label_selector {
            Some(path) => object
                .pointer(&pointer(path))
                .and_then(Value::as_str)
                .map(str::to_owned),
            None => object["spec"]["selector"]["matchLabels"].as_object().map(|labels| {
                let pairs: Vec<String> = labels
                    .iter()
                    .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                    .collect();
                pairs.join(",")
            }),
        };
        (number(&paths.spec_replicas), number(&paths.status_replicas), selector)
    });
    let metadata = &object["metadata"];
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": spec},
        "status": {"replicas": status},
    });
    if let Some(selector) = selector {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}

pub(super) fn read(kind: &Kind, object: &Value) -> ApiResult<Answer> {
    Ok(Answer::Value {
        code: 200,
        value: scale_of(kind, object),
        changed: false,
    })
}

pub(super) async fn write(server: &Server, call: &Call) -> ApiResult<Answer> {
    let kind = Arc::clone(call.kind());
    let is_patch = call.verb == crate::history::Verb::Patch;
    let sent = if is_patch {
        body::parse_json(&call.body)?
    } else {
        body::parse(call)?
    };
    let written = write::update(server, call, |old| {
        let current = scale_of(&kind, old);
        let wanted = match (is_patch, media(call)) {
            (false, _) => sent.clone(),
            (true, "application/json-patch+json") => apply_json_patch(&current, &sent)?,
            (true, "application/merge-patch+json" | "application/strategic-merge-patch+json") => {
                apply_merge_patch(&current, &sent)?
            }
            (true, _) => {
                return Err(ApiError::unsupported_media_type(&[
                    "application/json-patch+json",
                    "application/merge-patch+json",
                ]));
            }
        };
        let Some(replicas) = wanted["spec"]["replicas"].as_i64().filter(|count| *count >= 0) else {
            return Err(ApiError::bad_request(
                "spec.replicas: Invalid value: must be a number greater than or equal to 0",
            ));
        };
        let mut object = old.clone();
        let path = kind
            .scale
            .as_ref()
            .map(|paths| paths.spec_replicas.clone())
            .unwrap_or_default();
        let (parents, field) = path.rsplit_once('.').unwrap_or(("", &path));
        let mut place = &mut object;
        for step in parents.split('.').filter(|step| !step.is_empty()) {
            place = builtin_rules::at(place, step);
        }
        place[field] = json!(replicas);
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
            if let Some(version) = wanted["metadata"]["resourceVersion"].as_str() {
                metadata.insert("resourceVersion".into(), json!(version));
            }
        }
        Ok(Draft {
            object,
            ownership: Ownership::Track,
            replaces: false,
        })
    })
    .await?;
    Ok(Answer::Value {
        code: 200,
        value: scale_of(&kind, &written.object),
        changed: written.changed,
    })
}
