//! JSON patch (RFC 6902) with the one liberty the real server takes: `test` for null passes on an absent path.

use serde_json::Value;

use crate::status::{ApiError, ApiResult};

/// Patches with more operations than this are refused, as by the real server.
const MOST_OPERATIONS: usize = 10_000;

pub(crate) fn apply_json_patch(object: &Value, patch: &Value) -> ApiResult<Value> {
    let Value::Array(operations) = patch else {
        return Err(ApiError::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch",
        ));
    };
    if operations.len() > MOST_OPERATIONS {
        let message = format!(
            "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
            operations.len()
        );
        return Err(ApiError::new(413, "RequestEntityTooLarge", message));
    }
    let mut patched = object.clone();
    for operation in operations {
        let absent = |path: &str| patched.pointer(path).is_none_or(Value::is_null);
        let passes = operation["op"] == "test"
            && operation.get("value").is_none_or(Value::is_null)
            && operation["path"].as_str().is_some_and(absent);
        if passes {
            continue;
        }
        let single: json_patch::Patch = serde_json::from_value(Value::Array(vec![operation.clone()]))
            .map_err(|_| ApiError::inapplicable_patch())?;
        json_patch::patch(&mut patched, &single).map_err(|_| ApiError::inapplicable_patch())?;
    }
    if patched.is_object() {
        Ok(patched)
    } else {
        Err(ApiError::inapplicable_patch())
    }
}
