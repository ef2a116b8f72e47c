//! Types, limits and list types of a schema, in the wording of the real server.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::node::{Additional, ListType, Node};
use crate::status::FieldError;

pub(super) fn validate_root(root: &Node, object: &Value, errors: &mut Vec<FieldError>) {
    check(root, object, true, "", errors);
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// JSON type names as the validator of the real server has them.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn has_type(node: &Node, value: &Value) -> bool {
    if node.int_or_string {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    match node.kind.as_str() {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn check(node: &Node, value: &Value, resource: bool, path: &str, errors: &mut Vec<FieldError>) {
    if value.is_null() && node.nullable {
        return;
    }
    if !has_type(node, value) {
        let wanted = if node.int_or_string {
            "integer,string"
        } else {
            &node.kind
        };
        let found = json!(type_name(value));
        let detail = format!("{path} in body must be of type {wanted}: {found}");
        errors.push(FieldError::wrong_type(path, &found, &detail));
        return;
    }
    if !node.allowed.is_empty() && !node.allowed.contains(value) {
        errors.push(FieldError::unsupported(path, value, &node.allowed));
    }
    match value {
        Value::String(text) => check_text(node, text, value, path, errors),
        Value::Number(_) => check_number(node, value, path, errors),
        Value::Array(list) => check_list(node, list, value, path, errors),
        Value::Object(_) => check_object(node, value, resource, path, errors),
        Value::Null | Value::Bool(_) => {}
    }
    check_branches(node, value, resource, path, errors);
}

fn check_text(node: &Node, text: &str, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let length = text.chars().count() as u64;
    if let Some(most) = node.max_length
        && length > most
    {
        errors.push(FieldError::too_long(path, most));
    }
    if let Some(least) = node.min_length
        && length < least
    {
        let detail = format!("{path} in body should be at least {least} chars long");
        errors.push(FieldError::invalid(path, value, &detail));
    }
    if let Some(pattern) = &node.pattern
        && !pattern.is_match(text)
    {
        let detail = format!("{path} in body should match '{}'", pattern.as_str());
        errors.push(FieldError::invalid(path, value, &detail));
    }
    let fits = match node.format.as_str() {
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        _ => true,
    };
    if !fits {
        let detail = format!("{path} in body must be of type {}: {value}", node.format);
        errors.push(FieldError::wrong_type(path, value, &detail));
    }
}

fn check_number(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let number = value.as_f64().unwrap_or_default();
    let mut refuse = |what: String| {
        errors.push(FieldError::invalid(path, value, &format!("{path} in body {what}")));
    };
    if let Some(least) = node.minimum {
        if node.exclusive_minimum && number <= least {
            refuse(format!("should be greater than {least}"));
        } else if number < least {
            refuse(format!("should be greater than or equal to {least}"));
        }
    }
    if let Some(most) = node.maximum {
        if node.exclusive_maximum && number >= most {
            refuse(format!("should be less than {most}"));
        } else if number > most {
            refuse(format!("should be less than or equal to {most}"));
        }
    }
    if let Some(step) = node.multiple_of
        && (number / step).fract() != 0.0
    {
        refuse(format!("should be a multiple of {step}"));
    }
    let fits = match node.format.as_str() {
        "int32" => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        "int64" => value.as_i64().is_some() || value.as_f64().is_some_and(|f| f.fract() == 0.0 && f.abs() < 9.2e18),
        _ => true,
    };
    if !fits {
        refuse(format!("must be of type {}: {value}", node.format));
    }
}

fn check_list(node: &Node, list: &[Value], value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(most) = node.max_items
        && list.len() as u64 > most
    {
        errors.push(FieldError::too_many(path, list.len(), most));
    }
    if let Some(least) = node.min_items
        && (list.len() as u64) < least
    {
        let detail = format!("{path} in body should have at least {least} items");
        errors.push(FieldError::invalid(path, &json!(list.len()), &detail));
    }
    if let Some(items) = &node.items {
        for (index, entry) in list.iter().enumerate() {
            check(items, entry, items.embedded, &format!("{path}[{index}]"), errors);
        }
    }
    check_list_type(node, value, path, errors);
}

fn check_list_type(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, entry) in value.as_array().into_iter().flatten().enumerate() {
        let shown = match &node.list_type {
            Some(ListType::Set) => entry.clone(),
            Some(ListType::Map(keys)) => {
                let pairs = keys
                    .iter()
                    .filter_map(|key| entry.get(key).map(|found| (key.clone(), found.clone())));
                Value::Object(pairs.collect())
            }
            Some(ListType::Atomic) | None => return,
        };
        if !seen.insert(shown.to_string()) {
            errors.push(FieldError::duplicate(&format!("{path}[{index}]"), &shown));
        }
    }
}

fn check_object(node: &Node, value: &Value, resource: bool, path: &str, errors: &mut Vec<FieldError>) {
    let Some(map) = value.as_object() else { return };
    if let Some(most) = node.max_properties
        && map.len() as u64 > most
    {
        errors.push(FieldError::too_many(path, map.len(), most));
    }
    if let Some(least) = node.min_properties
        && (map.len() as u64) < least
    {
        let detail = format!("{path} in body should have at least {least} properties");
        errors.push(FieldError::invalid(path, &json!(map.len()), &detail));
    }
    for name in &node.required {
        if !map.contains_key(name) {
            errors.push(FieldError::required(&joined(path, name), ""));
        }
    }
    if resource && !path.is_empty() {
        for name in ["apiVersion", "kind"] {
            if map.get(name).and_then(Value::as_str).unwrap_or_default().is_empty() {
                errors.push(FieldError::required(&joined(path, name), ""));
            }
        }
    }
    for (name, found) in map {
        if path.is_empty() && resource && name == "metadata" {
            // Its type is checked on its own; a schema may only restrict the name.
            if let Some(child) = node
                .properties
                .get(name)
                .and_then(|metadata| metadata.properties.get("name"))
            {
                check(child, &found["name"], false, "metadata.name", errors);
            }
            continue;
        }
        if let Some(child) = node.properties.get(name) {
            check(child, found, child.embedded, &joined(path, name), errors);
        } else if let Additional::Of(child) = &node.additional {
            check(child, found, child.embedded, &joined(path, name), errors);
        }
    }
}

fn check_branches(node: &Node, value: &Value, resource: bool, path: &str, errors: &mut Vec<FieldError>) {
    let passes = |branch: &Node| {
        let mut found = Vec::new();
        check(branch, value, resource, path, &mut found);
        found.is_empty()
    };
    for branch in &node.all_of {
        check(branch, value, resource, path, errors);
    }
    let mut refuse = |what: &str| {
        let shown = if value.is_object() || value.is_array() {
            json!(type_name(value))
        } else {
            value.clone()
        };
        errors.push(FieldError::invalid(path, &shown, &format!("{path} in body {what}")));
    };
    if !node.any_of.is_empty() && !node.any_of.iter().any(passes) {
        refuse("must validate at least one schema (anyOf)");
    }
    if !node.one_of.is_empty() && node.one_of.iter().filter(|branch| passes(branch)).count() != 1 {
        refuse("must validate one and only one schema (oneOf)");
    }
    if node.not.as_deref().is_some_and(passes) {
        refuse("must not validate the schema (not)");
    }
}
