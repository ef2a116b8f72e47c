//! `/openapi/v2` and `/openapi/v3`: enough for kubectl to validate and explain. Built from the registry alone.

use std::{collections::BTreeMap, sync::PoisonError};

use http::Response;
use serde_json::{Map, Value, json};

use crate::{
    kind::{Kind, Registry},
    openapi_protobuf,
    response::{self, Body},
    server::Server,
    status::{ApiError, ApiResult},
};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Asked for with an `@`, which is no legal media type to answer with.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Documents built for one state of the registry.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    revision: u64,
    texts: BTreeMap<String, String>,
}

pub(crate) fn answer(server: &Server, rest: &[&str], accept: &str) -> ApiResult<Response<Body>> {
    if rest == ["v2"] && accept.contains("proto-openapi") {
        return Ok(response::raw(
            200,
            PROTOBUF,
            version_2_protobuf(&server.registry()).into(),
        ));
    }
    let takes_json = accept.is_empty()
        || ["json", "*/*", "application/*"]
            .iter()
            .any(|media| accept.contains(media));
    if !takes_json {
        // Only the protobuf form was asked for, which is not served.
        return Err(ApiError::not_acceptable());
    }
    let name = rest.join("/");
    let registry = server.registry();
    let mut documents = server.documents.lock().unwrap_or_else(PoisonError::into_inner);
    if documents.revision != registry.revision {
        *documents = Documents {
            revision: registry.revision,
            texts: BTreeMap::new(),
        };
    }
    if !documents.texts.contains_key(&name) {
        let value = build(&registry, rest).ok_or_else(ApiError::no_such_path)?;
        documents.texts.insert(name.clone(), value.to_string());
    }
    let text = documents.texts.get(&name).cloned().unwrap_or_default();
    Ok(response::raw(200, "application/json", text.into()))
}

fn build(registry: &Registry, rest: &[&str]) -> Option<Value> {
    match rest {
        ["v2"] => Some(version_2(registry)),
        ["v3"] => Some(index(registry)),
        ["v3", "api", version] => version_3(registry, "", version),
        ["v3", "apis", group, version] => version_3(registry, group, version),
        _ => None,
    }
}

fn place(kind: &Kind) -> String {
    if kind.group.is_empty() {
        format!("api/{}", kind.version)
    } else {
        format!("apis/{}/{}", kind.group, kind.version)
    }
}

fn index(registry: &Registry) -> Value {
    let paths: Map<String, Value> = registry
        .all()
        .map(|kind| {
            let place = place(kind);
            let url = format!("/openapi/v3/{place}");
            (place, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// Reversed group, version and kind, as definitions are named.
fn definition_name(kind: &Kind) -> String {
    if kind.group.is_empty() {
        return format!("io.k8s.api.core.{}.{}", kind.version, kind.kind);
    }
    let mut pieces: Vec<&str> = kind.group.split('.').collect();
    pieces.reverse();
    format!("{}.{}.{}", pieces.join("."), kind.version, kind.kind)
}

fn identity(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

fn object_meta() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let texts = |description: &str| json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}});
    json!({
        "type": "object",
        "description": "ObjectMeta is metadata that all persisted resources must have.",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "name": text("Name must be unique within a namespace."),
            "generateName": text("A prefix from which the server makes a unique name."),
            "namespace": text("The space within which each name must be unique."),
            "labels": texts("Keys and values to organize and select objects."),
            "annotations": texts("Keys and values that clients keep with the object."),
            "uid": text("Unique in time and space, set by the server."),
            "resourceVersion": text("The version of the object, set by the server."),
            "generation": {"type": "integer", "format": "int64", "description": "Counts changes of the desired state."},
            "creationTimestamp": text("When the object was created."),
            "deletionTimestamp": text("When the deletion of the object was asked for."),
            "finalizers": {"type": "array", "items": {"type": "string"},
                "description": "Must be empty before the object is deleted."},
            "ownerReferences": {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "description": "Objects this object depends on."},
        },
    })
}

/// The schema of a kind: a CRD's own, with the standard fields; anything for built-in kinds.
fn definition(kind: &Kind, meta_reference: &str) -> Value {
    let mut schema = match &kind.schema {
        Some(schema) => schema.source.clone(),
        None => json!({
            "type": "object",
            "description": format!("{} is a built-in kind. This server takes all of its fields without describing them.", kind.kind),
            "x-kubernetes-preserve-unknown-fields": true,
        }),
    };
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    if kind.schema.is_none() {
        for field in ["spec", "status"] {
            schema["properties"][field] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        }
    }
    let standard = [
        (
            "apiVersion",
            json!({"type": "string", "description": "The versioned schema of this representation of an object."}),
        ),
        (
            "kind",
            json!({"type": "string", "description": "The REST resource this object represents."}),
        ),
        (
            "metadata",
            json!({"allOf": [{"$ref": format!("{meta_reference}{OBJECT_META}")}], "default": {},
            "description": "Standard object's metadata."}),
        ),
    ];
    for (field, description) in standard {
        schema["properties"][field] = description;
    }
    schema["x-kubernetes-group-version-kind"] = json!([identity(kind)]);
    schema
}

fn parameters(v3: bool) -> Value {
    let texts = [
        ("dryRun", "When present, nothing is persisted."),
        ("fieldManager", "The name of who makes these changes."),
        (
            "fieldValidation",
            "What to do with unknown fields: Ignore, Warn or Strict.",
        ),
    ];
    let list: Vec<Value> = texts
        .iter()
        .map(|(name, description)| {
            let mut parameter = json!({"name": name, "in": "query", "description": description, "uniqueItems": true});
            if v3 {
                parameter["schema"] = json!({"type": "string", "uniqueItems": true});
            } else {
                parameter["type"] = json!("string");
            }
            parameter
        })
        .collect();
    Value::Array(list)
}

fn operation(kind: &Kind, action: &str, v3: bool, reference: &str) -> Value {
    let schema = json!({"$ref": format!("{reference}{}", definition_name(kind))});
    let ok = if v3 {
        json!({"description": "OK", "content": {"application/json": {"schema": schema}}})
    } else {
        json!({"description": "OK", "schema": schema})
    };
    let mut operation = json!({
        "operationId": format!("{action}{}{}", kind.version, kind.kind),
        "responses": {"200": ok},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": identity(kind),
    });
    if matches!(action, "post" | "put" | "patch") {
        operation["parameters"] = parameters(v3);
    }
    if action == "patch" && v3 {
        // Strategic merge is left out on purpose: these schemas have no merge keys, kubectl's own types do.
        operation["requestBody"] = json!({"content": {
            "application/json-patch+json": {"schema": {"type": "object"}},
            "application/merge-patch+json": {"schema": {"type": "object"}},
            "application/apply-patch+yaml": {"schema": {"type": "object"}},
        }});
    }
    operation
}

fn paths(kind: &Kind, v3: bool, reference: &str, out: &mut Map<String, Value>) {
    let base = if kind.namespaced {
        format!("/{}/namespaces/{{namespace}}/{}", place(kind), kind.plural)
    } else {
        format!("/{}/{}", place(kind), kind.plural)
    };
    let made = |action: &str| operation(kind, action, v3, reference);
    out.insert(
        format!("{base}/{{name}}"),
        json!({
            "get": made("get"), "put": made("put"), "patch": made("patch"), "delete": made("delete"),
        }),
    );
    if kind.namespaced {
        out.insert(
            format!("/{}/{}", place(kind), kind.plural),
            json!({"get": made("list")}),
        );
    }
    out.insert(base, json!({"get": made("list"), "post": made("post")}));
}

fn version_3(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let reference = "#/components/schemas/";
    let (mut all_paths, mut schemas) = (Map::new(), Map::new());
    for kind in registry
        .all()
        .filter(|kind| kind.group == group && kind.version == version)
    {
        paths(kind, true, reference, &mut all_paths);
        schemas.insert(definition_name(kind), definition(kind, reference));
    }
    if schemas.is_empty() {
        return None;
    }
    schemas.insert(OBJECT_META.into(), object_meta());
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "embedded"},
        "paths": all_paths, "components": {"schemas": schemas},
    }))
}

fn version_2_protobuf(registry: &Registry) -> Vec<u8> {
    let reference = "#/definitions/";
    let mut definitions = Map::new();
    for kind in registry.all().filter(|kind| kind.is_custom()) {
        let mut schema = definition(kind, reference);
        schema["properties"]["metadata"] = json!({"$ref": format!("{reference}{OBJECT_META}")});
        definitions.insert(definition_name(kind), schema);
    }
    definitions.insert(OBJECT_META.into(), object_meta());
    openapi_protobuf::document(definitions.iter())
}

fn version_2(registry: &Registry) -> Value {
    let reference = "#/definitions/";
    let (mut all_paths, mut definitions) = (Map::new(), Map::new());
    for kind in registry.all() {
        paths(kind, false, reference, &mut all_paths);
        let mut schema = definition(kind, reference);
        schema["properties"]["metadata"] = json!({"$ref": format!("{reference}{OBJECT_META}")});
        definitions.insert(definition_name(kind), schema);
    }
    definitions.insert(OBJECT_META.into(), object_meta());
    json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": "embedded"},
        "paths": all_paths, "definitions": definitions,
    })
}
