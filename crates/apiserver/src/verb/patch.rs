//! PATCH in its four formats.

use serde_json::Value;

use super::apply;
use crate::{
    body,
    patch::{apply_json_patch, apply_merge_patch, apply_strategic_patch},
    request::Call,
    server::Server,
    status::{ApiError, ApiResult, FieldError},
    write::{self, Draft, Ownership, Written},
};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

pub(super) async fn patch(server: &Server, call: &Call) -> ApiResult<Written> {
    let apply_patch: fn(&Value, &Value) -> ApiResult<Value> = match media(call) {
        JSON => apply_json_patch,
        MERGE => apply_merge_patch,
        STRATEGIC if !call.kind().is_custom() => apply_strategic_patch,
        APPLY => return apply::apply(server, call).await,
        _ if call.kind().is_custom() => return Err(ApiError::unsupported_media_type(&[JSON, MERGE, APPLY])),
        _ => return Err(ApiError::unsupported_media_type(&[JSON, MERGE, STRATEGIC, APPLY])),
    };
    if call.query.get("force").is_some() {
        let message =
            "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch";
        return Err(ApiError::new(422, "Invalid", message));
    }
    let changes = body::parse_json(&call.body)?;
    write::update(server, call, |old| {
        let mut object = apply_patch(old, &changes)?;
        body::tidy(call.kind(), &mut object).map_err(|error| misshapen(&error))?;
        check_patched(call, old, &object)?;
        Ok(Draft {
            object,
            ownership: Ownership::Track,
            replaces: false,
        })
    })
    .await
}

pub(super) fn media(call: &Call) -> &str {
    call.content_type.split(';').next().unwrap_or_default().trim()
}

/// A patch that leads to an object which is none is read well and yet wrong.
fn misshapen(error: &ApiError) -> ApiError {
    let message = format!("Invalid value: {}", error.message);
    ApiError::invalid_patch(&FieldError::other("patch", "FieldValueInvalid", message))
}

/// A patch may not turn the object into something else.
fn check_patched(call: &Call, old: &Value, object: &Value) -> ApiResult<()> {
    body::check_kind(call.kind(), object).map_err(|error| misshapen(&error))?;
    let name = &object["metadata"]["name"];
    if name.as_str() != Some(call.name()) {
        let found = name.as_str().unwrap_or_default();
        return Err(ApiError::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({})",
            call.name()
        )));
    }
    if object["metadata"]["namespace"] != old["metadata"]["namespace"] {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}
