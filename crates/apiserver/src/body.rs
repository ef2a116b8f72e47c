//! From the bytes of a request to an object: JSON or YAML, its kind, its name against the URL, unknown fields.

use serde_json::{Value, json};

use crate::{
    history::Verb,
    kind::Kind,
    protobuf_body,
    request::Call,
    status::{ApiError, ApiResult, FieldError},
};

const READABLE: &[&str] = &["application/json", "application/yaml"];

/// Reads JSON (or YAML, if the content type says so).
pub(crate) fn parse(call: &Call) -> ApiResult<Value> {
    let media = call.content_type.split(';').next().unwrap_or_default().trim();
    match media {
        "" | "application/json" | "text/json" => parse_json(&call.body),
        "application/yaml" | "application/x-yaml" => parse_yaml(&call.body),
        "application/vnd.kubernetes.protobuf" => {
            protobuf_body::read(&call.body).ok_or_else(|| unreadable_protobuf(call))
        }
        _ => Err(ApiError::unsupported_media_type(READABLE)),
    }
}

/// What is no protobuf of Kubernetes is the client's fault; what is, but of a kind we cannot read, is ours.
fn unreadable_protobuf(call: &Call) -> ApiError {
    if call.body.starts_with(protobuf_body::MAGIC) {
        return ApiError::unsupported_media_type(READABLE);
    }
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): provided data does not appear to be a protobuf message, \
         expected prefix [107 56 115 0]",
        call.kind().kind
    ))
}

pub(crate) fn parse_json(bytes: &[u8]) -> ApiResult<Value> {
    serde_json::from_slice(bytes).map_err(|error| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized: json parse error: {error}"
        ))
    })
}

pub(crate) fn parse_yaml(bytes: &[u8]) -> ApiResult<Value> {
    // Clients mostly send JSON, which is YAML too but read faster as what it is.
    if bytes.first() == Some(&b'{')
        && let Ok(value) = serde_json::from_slice(bytes)
    {
        return Ok(value);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| ApiError::bad_request("error decoding YAML: not UTF-8"))?;
    serde_saphyr::from_str(text).map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))
}

/// An object of the kind the URL names. Fills in `apiVersion` and `kind` only where the real server would.
pub(crate) fn object(call: &Call) -> ApiResult<Value> {
    let mut value = parse(call)?;
    name_kind(call.kind(), &mut value);
    check_kind(call.kind(), &value)?;
    tidy(call.kind(), &mut value)?;
    check_names(call, &mut value)?;
    Ok(value)
}

/// Typed clients leave out what the URL says already; only custom resources must say it.
fn name_kind(kind: &Kind, value: &mut Value) {
    let Some(map) = value.as_object_mut().filter(|_| !kind.is_custom()) else {
        return;
    };
    map.entry("apiVersion")
        .or_insert_with(|| Value::String(kind.api_version()));
    map.entry("kind").or_insert_with(|| Value::String(kind.kind.clone()));
}

/// `apiVersion` and `kind` must be those of the URL.
pub(crate) fn check_kind(kind: &Kind, value: &Value) -> ApiResult<()> {
    if !value.is_object() {
        return Err(ApiError::bad_request(
            "the object provided is unrecognized: json: cannot unmarshal into Go value of type struct",
        ));
    }
    let (version, name) = (value["apiVersion"].as_str(), value["kind"].as_str());
    let (Some(version), Some(name)) = (version, name) else {
        // Without a kind its type is unknown; without a version it is of another one.
        let message = match name {
            None => format!("Object 'Kind' is missing in '{value}'"),
            Some(_) => format!(
                "the API version in the data () does not match the expected API version ({})",
                kind.api_version()
            ),
        };
        return Err(ApiError::bad_request(message));
    };
    if version != kind.api_version() {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            kind.api_version()
        )));
    }
    if name != kind.kind {
        return Err(ApiError::bad_request(format!(
            "the kind in the data ({name}) does not match the expected kind ({})",
            kind.kind
        )));
    }
    Ok(())
}

/// Metadata must be an object of known shape; nulls there (and everywhere in built-in kinds) mean absence.
pub(crate) fn tidy(kind: &Kind, value: &mut Value) -> ApiResult<()> {
    let Some(map) = value.as_object_mut() else {
        return Err(ApiError::bad_request("not an object"));
    };
    let metadata = map.entry("metadata").or_insert_with(|| serde_json::json!({}));
    if metadata.is_null() {
        *metadata = serde_json::json!({});
    }
    if !metadata.is_object() {
        return Err(wrong_metadata("metadata", metadata));
    }
    drop_nulls(metadata);
    for field in ["name", "generateName", "namespace", "uid", "resourceVersion"] {
        if metadata.get(field).is_some_and(|found| !found.is_string()) {
            return Err(wrong_metadata(field, &metadata[field]));
        }
    }
    for field in ["labels", "annotations"] {
        let Some(found) = metadata.get(field) else { continue };
        let fine = found.as_object().is_some_and(|map| map.values().all(Value::is_string));
        if !fine {
            return Err(wrong_metadata(field, found));
        }
    }
    for field in ["finalizers", "ownerReferences"] {
        if metadata.get(field).is_some_and(|found| !found.is_array()) {
            return Err(wrong_metadata(field, &metadata[field]));
        }
    }
    // The real server never shows empty maps and lists in metadata.
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.retain(|key, field| key == "managedFields" || !is_empty(field));
    }
    if !kind.is_custom() {
        drop_nulls(value);
    }
    Ok(())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn wrong_metadata(field: &str, found: &Value) -> ApiError {
    let what = match found {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    ApiError::bad_request(format!(
        "the object provided is unrecognized: json: cannot unmarshal {what} into Go struct field ObjectMeta.metadata.{field}"
    ))
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, child| !child.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Name and namespace of the body against those of the URL; the namespace is filled in.
fn check_names(call: &Call, value: &mut Value) -> ApiResult<()> {
    let kind = call.kind();
    let metadata = &mut value["metadata"];
    if let Some(expected) = &call.target.name
        && let Some(found) = metadata["name"].as_str()
        && found != expected
    {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({expected})"
        )));
    }
    match (&call.target.namespace, metadata["namespace"].as_str()) {
        (Some(expected), Some(found)) if found != expected => Err(ApiError::bad_request(format!(
            "the namespace of the provided object does not match the namespace sent on the request: \
             found \"{found}\", expected \"{expected}\""
        ))),
        (Some(expected), _) => {
            metadata["namespace"] = Value::String(expected.clone());
            Ok(())
        }
        (None, _) if kind.namespaced => Err(ApiError::bad_request(
            "an empty namespace may not be set during creation",
        )),
        (None, Some(_)) => {
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.remove("namespace");
            }
            Ok(())
        }
        (None, None) => Ok(()),
    }
}

/// Unknown fields: refused, reported or ignored, as `fieldValidation` says.
pub(crate) fn unknown_fields(
    call: &Call,
    kind: &Kind,
    unknown: &[String],
    warnings: &mut Vec<String>,
) -> ApiResult<()> {
    let listed: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    match call.query.get("fieldValidation") {
        Some("Ignore") => {}
        Some("Strict") if !listed.is_empty() && call.verb == Verb::Patch => {
            let message = format!("Invalid value: strict decoding error: {}", listed.join(", "));
            let error = FieldError::other("patch", "FieldValueInvalid", message);
            return Err(ApiError::invalid_patch(&error));
        }
        Some("Strict") if !listed.is_empty() => {
            return Err(ApiError::bad_request(format!(
                "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
                kind.kind,
                kind.version,
                kind.kind,
                listed.join(", ")
            )));
        }
        Some("Strict" | "Warn") | None => warnings.extend(listed),
        Some(other) => {
            let allowed = ["", "Ignore", "Strict", "Warn"].map(|value| json!(value));
            let error = FieldError::unsupported("fieldValidation", &json!(other), &allowed);
            return Err(ApiError::invalid_option(call.options_kind(), &error));
        }
    }
    Ok(())
}
