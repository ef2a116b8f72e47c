//! Who owns which field: `metadata.managedFields`. Pure: objects and ledgers in, ledgers out.

mod apply;
mod field_set;
mod shape;

use serde_json::{Value, json};

pub(crate) use apply::{Applied, apply};
pub(crate) use field_set::FieldSet;
pub(crate) use shape::{Shape, merge_key};

use crate::kind::Kind;

/// One entry of managedFields.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Manager {
    pub(crate) name: String,
    /// `Apply` or `Update`.
    pub(crate) operation: String,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    /// Empty for a manager whose first apply changed nothing.
    pub(crate) time: String,
    pub(crate) fields: FieldSet,
}

impl Manager {
    /// Whether two entries stand for the same writer doing the same thing.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && self.api_version == other.api_version
    }
}

/// Who is writing now, and when.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    pub(crate) name: String,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    pub(crate) time: String,
}

impl Writer {
    pub(crate) fn entry(&self, operation: &str, fields: FieldSet) -> Manager {
        Manager {
            name: self.name.clone(),
            operation: operation.into(),
            api_version: self.api_version.clone(),
            subresource: self.subresource.clone(),
            time: self.time.clone(),
            fields,
        }
    }
}

/// The ledger of an object.
pub(crate) fn take(object: &Value) -> Vec<Manager> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    entries
        .map(|entry| Manager {
            name: text(entry, "manager"),
            operation: text(entry, "operation"),
            api_version: text(entry, "apiVersion"),
            subresource: text(entry, "subresource"),
            time: text(entry, "time"),
            fields: FieldSet::from_json(&entry["fieldsV1"]),
        })
        .collect()
}

/// The ledger that a write brings along, when it is another one than before: a writer may remove entries. An
/// empty list and one empty entry strike out all; a write without a ledger says nothing of it.
pub(crate) fn sent(old: &Value, new: &Value) -> Option<Vec<Manager>> {
    let sent = new["metadata"].get("managedFields").filter(|sent| sent.is_array())?;
    if old["metadata"].get("managedFields") == Some(sent) {
        return None;
    }
    Some(if *sent == json!([{}]) { Vec::new() } else { take(new) })
}

/// Writes a ledger into an object.
pub(crate) fn put(object: &mut Value, managers: &[Manager]) {
    let mut managers: Vec<&Manager> = managers.iter().filter(|manager| !manager.fields.is_empty()).collect();
    managers.sort_by_key(|manager| {
        let Manager {
            name,
            operation,
            api_version,
            subresource,
            time,
            fields: _,
        } = manager;
        (operation, time, name, api_version, subresource)
    });
    let entries: Vec<Value> = managers
        .into_iter()
        .map(|manager| {
            let mut entry = json!({
                "manager": manager.name, "operation": manager.operation, "apiVersion": manager.api_version,
                "fieldsType": "FieldsV1", "fieldsV1": manager.fields.to_json(),
            });
            if !manager.time.is_empty() {
                entry["time"] = json!(manager.time);
            }
            if !manager.subresource.is_empty() {
                entry["subresource"] = json!(manager.subresource);
            }
            entry
        })
        .collect();
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".into(), Value::Array(entries));
    }
}

/// The ledger after a write that is not an apply: the writer owns what changed, no manager owns what is gone.
pub(crate) fn after_update(
    kind: &Kind,
    old: Option<&Value>,
    new: &Value,
    before: Vec<Manager>,
    writer: &Writer,
) -> Vec<Manager> {
    let shape = Shape::of(kind);
    let nothing = Value::Null;
    let mut changed = FieldSet::default();
    let mut removed = FieldSet::default();
    field_set::compare(&shape, old.unwrap_or(&nothing), new, &mut changed, &mut removed);
    field_set::drop_system_fields(&mut changed);
    field_set::drop_system_fields(&mut removed);
    let mut mine = writer.entry("Update", FieldSet::default());
    let mut others = Vec::new();
    for mut manager in before {
        manager.fields.subtract_tree(&removed);
        if manager.is(&mine) {
            mine.fields = manager.fields;
            mine.time = manager.time;
        } else {
            manager.fields.subtract(&changed);
            others.push(manager);
        }
    }
    let previous = mine.fields.clone();
    mine.fields.union(&changed);
    if mine.fields != previous {
        mine.time = writer.time.clone();
    }
    others.push(mine);
    others.retain(|manager| !manager.fields.is_empty());
    others
}

/// Whether two ledgers say the same, times aside.
pub(crate) fn same_owners(a: &[Manager], b: &[Manager]) -> bool {
    let meaning = |manager: &Manager| {
        (
            manager.name.clone(),
            manager.operation.clone(),
            manager.subresource.clone(),
            manager.api_version.clone(),
            manager.fields.to_json().to_string(),
        )
    };
    let sorted = |list: &[Manager]| {
        let mut list: Vec<_> = list.iter().map(meaning).collect();
        list.sort();
        list
    };
    sorted(a) == sorted(b)
}

/// Whether two objects are the same but for managedFields.
pub(crate) fn same_but_managed(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return false;
    };
    let fields = |map: &serde_json::Map<String, Value>| map.keys().filter(|key| *key != "managedFields").count();
    old.len() == new.len()
        && old
            .iter()
            .all(|(key, value)| match (key.as_str(), value.as_object(), new.get(key)) {
                ("metadata", Some(value), Some(Value::Object(other))) => {
                    fields(value) == fields(other)
                        && value
                            .iter()
                            .all(|(key, value)| key == "managedFields" || other.get(key) == Some(value))
                }
                (_, _, other) => other == Some(value),
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_that_comes_along_is_taken_and_an_empty_one_strikes_out_all() {
        let entry = |manager: &str| {
            json!({
                "manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:a": {}}},
            })
        };
        let object = |ledger: Value| json!({"metadata": {"managedFields": ledger}});
        let old = object(json!([entry("one"), entry("two")]));
        assert_eq!(sent(&old, &old), None);
        assert_eq!(sent(&old, &json!({"metadata": {}})), None);
        assert_eq!(sent(&old, &object(json!([]))), Some(Vec::new()));
        assert_eq!(sent(&old, &object(json!([{}]))), Some(Vec::new()));
        let names = sent(&old, &object(json!([entry("two")]))).unwrap();
        assert_eq!(
            names.iter().map(|manager| manager.name.as_str()).collect::<Vec<_>>(),
            ["two"]
        );
    }
}
