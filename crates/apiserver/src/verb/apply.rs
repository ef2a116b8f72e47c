//! PATCH with server-side apply: creates or merges, and keeps the ledger of who owns what.

use serde_json::{Value, json};

use crate::{
    body, builtin_fields,
    managed::{self, Shape},
    request::Call,
    route::may_create,
    server::Server,
    status::{ApiError, ApiResult},
    write::{self, Draft, Ownership, Written},
};

pub(super) async fn apply(server: &Server, call: &Call) -> ApiResult<Written> {
    let kind = call.kind();
    if call.query.get("fieldManager").is_none() {
        let message =
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
        return Err(ApiError::new(422, "Invalid", message));
    }
    let mut config = body::parse_yaml(&call.body)?;
    body::check_kind(kind, &config)?;
    if config["metadata"]
        .get("managedFields")
        .is_some_and(|fields| fields.as_array().is_none_or(|list| !list.is_empty()))
    {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    body::tidy(kind, &mut config)?;
    config["metadata"]["name"] = match config["metadata"]["name"].as_str() {
        Some(name) if name != call.name() => {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                call.name()
            )));
        }
        _ => json!(call.name()),
    };
    if kind.namespaced {
        if let Some(found) = config["metadata"]["namespace"].as_str()
            && found != call.namespace()
        {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        config["metadata"]["namespace"] = json!(call.namespace());
    }
    reset_foreign_fields(call, &mut config);
    let exists = server
        .store
        .read(&kind.resource, call.namespace(), call.name())
        .is_some();
    if !exists {
        if call.subresource().is_some() || config["metadata"].get("uid").is_some() {
            return Err(ApiError::not_found(kind, call.name()));
        }
        may_create(server, call)?;
        let applied = merged(server, call, &Value::Null, &config)?;
        return write::create(server, call, applied).await;
    }
    write::update(server, call, |old| merged(server, call, old, &config)).await
}

/// An apply to the main resource says nothing of the status, and the other way round.
fn reset_foreign_fields(call: &Call, config: &mut Value) {
    let Some(map) = config.as_object_mut() else { return };
    if call.subresource() == Some("status") {
        map.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
        if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| matches!(field.as_str(), "name" | "namespace" | "uid" | "resourceVersion"));
        }
    } else if call.kind().status {
        map.remove("status");
    }
}

/// What is applied, if the schema or the type names all of it: an undeclared field cannot be owned.
fn declared(call: &Call, config: &Value) -> ApiResult<Value> {
    let kind = call.kind();
    let mut pruned = config.clone();
    let unknown = match &kind.schema {
        Some(schema) => schema.prune(&mut pruned),
        None => builtin_fields::undeclared(kind, config)?,
    };
    let problems: Vec<String> = unknown
        .iter()
        .map(|path| format!(".{path}: field not declared in schema"))
        .collect();
    let problems = match problems.as_slice() {
        [] => return Ok(pruned),
        [one] => one.clone(),
        several => format!("errors:\n  {}", several.join("\n  ")),
    };
    let (namespace, name) = (call.namespace(), call.name());
    Err(ApiError::new(
        500,
        "",
        format!(
            "failed to create typed patch object ({namespace}/{name}; {}/{}, Kind={}): {problems}",
            kind.group, kind.version, kind.kind
        ),
    ))
}

fn merged(server: &Server, call: &Call, live: &Value, config: &Value) -> ApiResult<Draft> {
    let kind = call.kind();
    let mut base = live.clone();
    if live.is_null() {
        base = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {}});
    }
    let before = managed::take(live);
    let config = declared(call, config)?;
    let force = call.query.is_true("force");
    let writer = server.writer(call);
    let managed::Applied {
        mut object,
        managers,
        conflicts,
    } = managed::apply(&Shape::of(kind), &base, &config, before, &writer, force);
    if let Some(error) = conflict(&conflicts) {
        return Err(error);
    }
    // Whether the version in the object is the live one or one the client insists on.
    let insisted = config["metadata"].get("resourceVersion");
    match (insisted, object["metadata"].as_object_mut()) {
        (Some(version), Some(metadata)) => metadata.insert("resourceVersion".into(), version.clone()),
        (None, Some(metadata)) => metadata.remove("resourceVersion"),
        (_, None) => None,
    };
    Ok(Draft {
        object,
        ownership: Ownership::Given(managers),
        replaces: false,
    })
}

fn conflict(conflicts: &[(managed::Manager, Vec<String>)]) -> Option<ApiError> {
    if conflicts.is_empty() {
        return None;
    }
    let mut causes = Vec::new();
    let mut texts = Vec::new();
    for (manager, paths) in conflicts {
        let mut owner = format!("\"{}\"", manager.name);
        if manager.operation == "Update" {
            owner = format!(
                "{owner} with subresource \"{}\" using {} at {}",
                manager.subresource, manager.api_version, manager.time
            );
            if manager.subresource.is_empty() {
                owner = format!("\"{}\" using {} at {}", manager.name, manager.api_version, manager.time);
            }
        } else if !manager.subresource.is_empty() {
            owner = format!("{owner} with subresource \"{}\"", manager.subresource);
        }
        for path in paths {
            causes.push(
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with {owner}"), "field": path}),
            );
        }
        match paths.as_slice() {
            [one] => texts.push(format!("conflict with {owner}: {one}")),
            several => texts.push(format!("conflicts with {owner}:\n- {}", several.join("\n- "))),
        }
    }
    let noun = if causes.len() == 1 { "conflict" } else { "conflicts" };
    let message = format!("Apply failed with {} {noun}: {}", causes.len(), texts.join("\n"));
    let mut error = ApiError::new(409, "Conflict", message);
    error.details = Some(Box::new(json!({"causes": causes})));
    Some(error)
}
