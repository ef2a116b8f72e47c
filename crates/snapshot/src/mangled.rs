//! Undoes what support bundles do to values when they write YAML (support-bundle-kit, `pkg/manager/collectors/common.go`):
//! empty texts and nulls are the text `null`, and numbers pass through floating point. Changes values, nothing else.

use serde_json::{Map, Value};

/// What an empty text and a null have become.
const NULL: &str = "null";
/// Above this, a floating-point number is no integer that Kubernetes has.
const LARGEST: f64 = 9.0e18;
/// Fields whose keys are names that users choose: one with an empty value is still there.
const MAPS: [&str; 7] = [
    "labels",
    "annotations",
    "matchLabels",
    "nodeSelector",
    "data",
    "stringData",
    "selector",
];

/// What stands in the place of an empty text or a null, which are the same in a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Empty {
    /// The field is absent.
    Absent,
    /// It is an empty text. Some fields must be there.
    Text,
}

/// The object as it was in the cluster.
pub(crate) fn undo(object: &mut Value, empty: Empty) {
    match object {
        Value::Object(fields) => fields_of(fields, empty, false),
        Value::Array(elements) => elements.iter_mut().for_each(|element| undo(element, empty)),
        Value::Number(_) => integer(object),
        // What is left of nulls and empty texts in a list: an empty text, such as the core API group.
        Value::String(text) if text == NULL => text.clear(),
        Value::String(text) => quoted(text),
        Value::Null | Value::Bool(_) => {}
    }
}

fn fields_of(fields: &mut Map<String, Value>, empty: Empty, is_map: bool) {
    if empty == Empty::Absent && !is_map {
        fields.retain(|_, value| value.as_str() != Some(NULL));
    }
    for (key, value) in fields {
        match value {
            Value::Object(below) => fields_of(below, empty, MAPS.contains(&key.as_str())),
            value => undo(value, empty),
        }
    }
}

/// Integers from a million on are written as floating-point numbers.
fn integer(number: &mut Value) {
    if number.is_i64() || number.is_u64() {
        return;
    }
    if let Some(value) = number.as_f64()
        && value.fract() == 0.0
        && value.abs() < LARGEST
    {
        #[allow(clippy::cast_possible_truncation, reason = "it is whole, and in the range of i64")]
        let whole = value as i64;
        *number = whole.into();
    }
}

/// JSON inside of a text has its nulls replaced too, and a text that ends in a quotation mark has the word appended.
fn quoted(text: &mut String) {
    if text.starts_with(['{', '[']) && text.contains("\":\"null\",") {
        *text = text.replace("\":\"null\",", "\":null,");
    }
    if text.ends_with("\"null") && !text.ends_with(":\"null") {
        text.truncate(text.len() - NULL.len());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_as_they_were_in_the_cluster() {
        let mut object = json!({
            "metadata": {
                "labels": {"node-role": "null", "size": "large"},
                "annotations": {"state": "{\"a\":\"null\",\"b\":1}", "path": "say \"yes\"null"},
                "deletionTimestamp": "null",
            },
            "spec": {"size": 1.073_741_824e10, "share": 0.5, "unit": 3, "rules": [{"apiGroups": ["null", "apps"]}]},
        });
        undo(&mut object, Empty::Absent);
        assert_eq!(
            object,
            json!({
                "metadata": {
                    "labels": {"node-role": "", "size": "large"},
                    "annotations": {"state": "{\"a\":null,\"b\":1}", "path": "say \"yes\""},
                },
                "spec": {"size": 10_737_418_240_i64, "share": 0.5, "unit": 3, "rules": [{"apiGroups": ["", "apps"]}]},
            })
        );
    }

    #[test]
    fn a_field_that_must_be_there_can_be_empty() {
        let mut object = json!({"value": "null", "other": {"value": "null"}});
        undo(&mut object, Empty::Text);
        assert_eq!(object, json!({"value": "", "other": {"value": ""}}));
    }
}
