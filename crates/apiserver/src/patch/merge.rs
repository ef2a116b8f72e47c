//! JSON merge patch (RFC 7396).

use serde_json::Value;

use crate::status::{ApiError, ApiResult};

pub(crate) fn apply_merge_patch(object: &Value, patch: &Value) -> ApiResult<Value> {
    if !patch.is_object() {
        return Err(ApiError::bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}",
        ));
    }
    let mut patched = object.clone();
    merge(&mut patched, patch);
    Ok(patched)
}

/// Keeps the order of what stays, which `json_patch::merge` does not promise.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, value) in changes {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
