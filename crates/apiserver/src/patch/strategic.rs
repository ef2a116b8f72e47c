//! Strategic merge patch for built-in kinds: lists with merge keys, `$patch`, `$retainKeys`, `$deleteFromPrimitiveList`.

use serde_json::{Map, Value};

use crate::{
    managed::merge_key,
    status::{ApiError, ApiResult},
};

pub(crate) fn apply_strategic_patch(object: &Value, patch: &Value) -> ApiResult<Value> {
    let (Some(object), Some(changes)) = (object.as_object(), patch.as_object()) else {
        return Err(ApiError::bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}",
        ));
    };
    Ok(Value::Object(merge_map(object, changes, "")?))
}

fn unknown_directive(directive: &Value, map: &Map<String, Value>) -> ApiError {
    let directive = directive.as_str().map_or_else(|| directive.to_string(), str::to_owned);
    ApiError::untranslated(format!("unknown patch type: {directive} in map: {}", go_map(map)))
}

/// A map without the directives that are meant for us.
fn without_directives(map: &Map<String, Value>) -> Map<String, Value> {
    let plain = map
        .iter()
        .filter(|(key, value)| !key.starts_with('$') && !value.is_null());
    plain
        .map(|(key, value)| {
            let value = match value {
                Value::Object(inner) => Value::Object(without_directives(inner)),
                other => other.clone(),
            };
            (key.clone(), value)
        })
        .collect()
}

fn merge_map(old: &Map<String, Value>, patch: &Map<String, Value>, parent: &str) -> ApiResult<Map<String, Value>> {
    match patch.get("$patch").map(|directive| (directive, directive.as_str())) {
        None | Some((_, Some("merge"))) => {}
        Some((_, Some("replace"))) => return Ok(without_directives(patch)),
        Some((_, Some("delete"))) => return Ok(Map::new()),
        Some((directive, _)) => return Err(unknown_directive(directive, patch)),
    }
    let mut out = old.clone();
    if let Some(kept) = patch.get("$retainKeys").and_then(Value::as_array) {
        out.retain(|key, _| kept.iter().any(|kept| kept == key));
    }
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(Value::Array(found)) = out.get_mut(list) {
                found.retain(|entry| !gone.contains(entry));
            }
            continue;
        }
        if key.starts_with('$') {
            continue;
        }
        match (out.get(key), value) {
            (_, Value::Null) => {
                out.remove(key);
            }
            (Some(Value::Object(found)), Value::Object(changes)) => {
                let merged = merge_map(found, changes, key)?;
                out.insert(key.clone(), Value::Object(merged));
            }
            (found, Value::Array(changes)) => {
                let found = found.and_then(Value::as_array).cloned().unwrap_or_default();
                let merged = merge_list(&found, changes, parent, key)?;
                out.insert(key.clone(), Value::Array(merged));
            }
            (_, Value::Object(changes)) => {
                let fresh = merge_map(&Map::new(), changes, key)?;
                out.insert(key.clone(), Value::Object(fresh));
            }
            (_, scalar) => {
                out.insert(key.clone(), scalar.clone());
            }
        }
    }
    for (key, order) in patch {
        if let Some(list) = key.strip_prefix("$setElementOrder/") {
            reorder(&mut out, list, order, parent);
        }
    }
    Ok(out)
}

/// Brings a list into the order the client sees it in; entries it does not know stay where they were among theirs.
fn reorder(map: &mut Map<String, Value>, list: &str, order: &Value, parent: &str) {
    let (Some(Value::Array(entries)), Some(order)) = (map.get_mut(list), order.as_array()) else {
        return;
    };
    let key = merge_key(parent, list);
    let rank = |entry: &Value| {
        order.iter().position(|wanted| match key {
            Some(key) => wanted.get(key) == entry.get(key),
            None => wanted == entry,
        })
    };
    let mut ordered: Vec<Value> = entries.iter().filter(|entry| rank(entry).is_some()).cloned().collect();
    ordered.sort_by_key(|entry| rank(entry));
    let mut next = ordered.into_iter();
    for entry in entries.iter_mut() {
        if rank(entry).is_some()
            && let Some(replacement) = next.next()
        {
            *entry = replacement;
        }
    }
}

fn merge_list(old: &[Value], patch: &[Value], parent: &str, field: &str) -> ApiResult<Vec<Value>> {
    let plain = |entry: &Value| match entry {
        Value::Object(map) => Value::Object(without_directives(map)),
        other => other.clone(),
    };
    if patch.iter().any(|entry| entry["$patch"] == "replace") {
        return Ok(patch
            .iter()
            .filter(|entry| entry["$patch"] != "replace")
            .map(plain)
            .collect());
    }
    let Some(key) = merge_key(parent, field) else {
        // The one list of scalars that is merged.
        if field == "finalizers" {
            let untouched = old.iter().filter(|entry| !patch.contains(entry)).cloned().collect();
            let place = |entry: &Value| old.iter().position(|found| found == entry);
            return Ok(interleave(untouched, patch.to_vec(), place));
        }
        return Ok(patch.iter().map(plain).collect());
    };
    let found_in = |list: &[Value], entry: &Value| list.iter().position(|found| found.get(key) == entry.get(key));
    let mut untouched = old.to_vec();
    let mut touched: Vec<Value> = Vec::new();
    for change in patch {
        let Some(changes) = change.as_object() else {
            return Err(ApiError::bad_request(format!(
                "expected objects in the list {field}, found {change}"
            )));
        };
        if !changes.contains_key(key) {
            return Err(ApiError::untranslated(format!(
                "map: {} does not contain declared merge key: {key}",
                go_map(changes)
            )));
        }
        let before = found_in(&untouched, change).map(|index| untouched.remove(index));
        if changes.get("$patch").is_some_and(|directive| directive == "delete") {
            continue;
        }
        let entry = before.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        touched.push(Value::Object(merge_map(&entry, changes, field)?));
    }
    Ok(interleave(untouched, touched, |entry| found_in(old, entry)))
}

/// Entries that a patch did not name, among those it did: where both were in the old list, in the order they had; else
/// those of the patch come first.
fn interleave(untouched: Vec<Value>, touched: Vec<Value>, place: impl Fn(&Value) -> Option<usize>) -> Vec<Value> {
    let mut out = Vec::with_capacity(untouched.len() + touched.len());
    let mut untouched = untouched.into_iter().peekable();
    for entry in touched {
        while let Some(next) = untouched.peek()
            && matches!((place(next), place(&entry)), (Some(one), Some(other)) if one < other)
        {
            out.extend(untouched.next());
        }
        out.push(entry);
    }
    out.extend(untouched);
    out
}

/// A map as Go prints it.
fn go_map(map: &Map<String, Value>) -> String {
    let pairs = map.iter().map(|(key, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{key}:{value}")
    });
    format!("map[{}]", pairs.collect::<Vec<_>>().join(" "))
}
