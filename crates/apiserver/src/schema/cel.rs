//! CEL rules of a schema (`x-kubernetes-validations`), compiled once per CRD version.

use std::sync::{Mutex, PoisonError};

use kube::core::cel::{CompiledSchema, Validator, compile_schema};
use serde_json::Value;

use crate::status::FieldError;

/// The rules of one schema, with the functions they call.
pub(super) struct Rules {
    compiled: CompiledSchema,
    validator: Mutex<Validator>,
    /// Where the topmost rules are, as paths in objects.
    ruled: Vec<String>,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").finish_non_exhaustive()
    }
}

fn has_rules(source: &Value) -> bool {
    match source {
        Value::Object(map) => map.contains_key("x-kubernetes-validations") || map.values().any(has_rules),
        Value::Array(list) => list.iter().any(has_rules),
        _ => false,
    }
}

/// The paths of the topmost fields with rules on or below them, as far as paths are fixed.
fn topmost_rules(source: &Value, path: &str) -> Vec<String> {
    let properties = source["properties"].as_object();
    let elsewhere = has_rules(&source["items"]) || has_rules(&source["additionalProperties"]);
    if source.get("x-kubernetes-validations").is_some() || elsewhere {
        return vec![path.to_owned()];
    }
    let ruled = properties.into_iter().flatten().filter(|(_, child)| has_rules(child));
    ruled
        .flat_map(|(name, child)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            topmost_rules(child, &format!("{path}/{name}"))
        })
        .collect()
}

/// Rules that do not compile, with where they are.
fn broken(compiled: &CompiledSchema, path: &str, errors: &mut Vec<FieldError>) {
    for (index, rule) in compiled.validations.iter().enumerate() {
        if let Err(error) = rule {
            let field = format!("{path}.x-kubernetes-validations[{index}].rule");
            let detail = format!("compilation failed: {error}");
            errors.push(FieldError::invalid(&field, &Value::String("rule".into()), &detail));
        }
    }
    let mut named: Vec<_> = compiled.properties.iter().collect();
    named.sort_by_key(|(name, _)| name.as_str());
    for (name, child) in named {
        broken(child, &format!("{path}.properties[{name}]"), errors);
    }
    for (label, child) in [
        ("items", &compiled.items),
        ("additionalProperties", &compiled.additional_properties),
    ] {
        if let Some(child) = child {
            broken(child, &format!("{path}.{label}"), errors);
        }
    }
}

impl Rules {
    /// None when the schema has no rules.
    pub(super) fn compile(source: &Value, path: &str, errors: &mut Vec<FieldError>) -> Option<Self> {
        if !has_rules(source) {
            return None;
        }
        let compiled = compile_schema(source);
        broken(&compiled, path, errors);
        Some(Self {
            compiled,
            validator: Mutex::new(Validator::new()),
            ruled: topmost_rules(source, ""),
        })
    }

    /// Rules that do not hold, as field errors. Values that an update leaves unchanged were valid before and are not checked again.
    pub(super) fn check(&self, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        if old.is_some_and(|old| self.ruled.iter().all(|path| object.pointer(path) == old.pointer(path))) {
            return;
        }
        let outcome = {
            let validator = self.validator.lock().unwrap_or_else(PoisonError::into_inner);
            validator.validate_compiled(&self.compiled, object, old)
        };
        let Err(failures) = outcome else { return };
        let mut found: Vec<FieldError> = failures
            .into_vec()
            .iter()
            .map(|failure| {
                let field = failure.field_path.trim_start_matches('.');
                let reason = failure.reason.as_deref().unwrap_or("FieldValueInvalid");
                let value = shown_value(object, field);
                let message = match reason {
                    "FieldValueRequired" => format!("Required value: {}", failure.message),
                    "FieldValueForbidden" => format!("Forbidden: {}", failure.message),
                    "FieldValueDuplicate" => format!("Duplicate value{value}"),
                    _ => format!("Invalid value{value}: {}", failure.message),
                };
                FieldError::other(field, reason, message)
            })
            .collect();
        // Properties are kept in hash order inside the evaluator.
        found.sort_by(|a, b| a.field.cmp(&b.field));
        errors.append(&mut found);
    }
}

/// The value at a path such as `spec.items[0].name`, as the real server shows it behind a colon: scalars only.
fn shown_value(object: &Value, path: &str) -> String {
    let mut value = object;
    for piece in path.split(['.', '[']).filter(|piece| !piece.is_empty()) {
        let piece = piece.trim_end_matches(']');
        value = match piece.parse::<usize>() {
            Ok(index) if value.is_array() => &value[index],
            _ => &value[piece],
        };
    }
    match value {
        Value::Object(_) | Value::Array(_) => String::new(),
        scalar => format!(": {scalar}"),
    }
}
