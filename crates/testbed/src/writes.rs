//! What was written of foreign kinds, compared with the real definitions without an API server.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::real_definitions;

/// The schemas of a definition.
#[derive(Debug)]
struct Schemas {
    by_version: BTreeMap<String, &'static Value>,
    /// That of the version in which objects are stored.
    stored: &'static Value,
}

impl Schemas {
    /// Of a definition.
    fn of(definition: &'static Value) -> Self {
        let versions = || definition["spec"]["versions"].as_array().into_iter().flatten();
        let schema = |version: &'static Value| &version["schema"]["openAPIV3Schema"];
        let named = versions().map(|version| (text(&version["name"]), schema(version)));
        let stored = versions().find(|version| version["storage"] == true);
        Self {
            by_version: named.collect(),
            stored: stored.map_or(&Value::Null, schema),
        }
    }

    /// That of what was sent. A patch does not say which version it is of; ours are all of the one that is stored.
    fn of_sent(&self, sent: &Value) -> &'static Value {
        let version = sent["apiVersion"].as_str().and_then(|version| version.split_once('/'));
        let schema = version.and_then(|(_, version)| self.by_version.get(version));
        schema.copied().unwrap_or(self.stored)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Group and plural of a kind.
type Kind = (String, String);

/// Everything that was written of foreign kinds so far.
#[derive(Debug)]
pub struct Writes {
    definitions: BTreeMap<Kind, Schemas>,
    tallies: BTreeMap<Kind, Tally>,
}

/// What was written of one kind.
#[derive(Debug, Default)]
struct Tally {
    writes: usize,
    known: BTreeSet<String>,
    unknown: BTreeSet<String>,
}

impl Writes {
    /// Nothing so far; nothing at all where the real definitions are not there.
    #[must_use]
    pub fn begin() -> Option<Self> {
        let definitions = real_definitions()?.iter().map(|definition| {
            let spec = &definition["spec"];
            let kind = (text(&spec["group"]), text(&spec["names"]["plural"]));
            (kind, Schemas::of(definition))
        });
        Some(Self {
            definitions: definitions.collect(),
            tallies: BTreeMap::new(),
        })
    }

    /// Adds what was sent with a create, an update or a patch. Kinds that are not foreign are left to the API server.
    pub fn add(&mut self, group: &str, plural: &str, sent: &[u8]) {
        let key = (group.to_owned(), plural.to_owned());
        let Some(schemas) = self.definitions.get(&key) else {
            return;
        };
        let sent: Value = serde_json::from_slice(sent).unwrap_or_default();
        let schema = schemas.of_sent(&sent);
        let tally = self.tallies.entry(key).or_default();
        tally.writes += 1;
        for sent in merged(sent) {
            fields("", schema, &sent, tally);
        }
    }

    /// The kinds that were written, as `plural.group`.
    #[must_use]
    pub fn kinds(&self) -> Vec<String> {
        let named = |(group, plural): &Kind| format!("{plural}.{group}");
        self.tallies.keys().map(named).collect()
    }

    /// The fields that the real definitions do not have, each with its kind.
    #[must_use]
    pub fn unknown(&self) -> Vec<String> {
        let of_kind = |((group, plural), tally): (&Kind, &Tally)| {
            let named = tally.unknown.iter().map(|path| format!("{plural}.{group} {path}"));
            named.collect::<Vec<_>>()
        };
        self.tallies.iter().flat_map(of_kind).collect()
    }

    /// How much it was.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |of: fn(&Tally) -> usize| self.tallies.values().map(of).sum::<usize>();
        format!(
            "{} writes of {} foreign kinds, with {} fields, {} of them unknown",
            count(|tally| tally.writes),
            self.tallies.len(),
            count(|tally| tally.known.len()),
            count(|tally| tally.unknown.len()),
        )
    }
}

/// Notes the paths of everything that is written below a place, and of what its schema does not name.
fn fields(path: &str, schema: &Value, sent: &Value, tally: &mut Tally) {
    let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    match sent {
        Value::Object(map) => {
            for (name, child) in map {
                if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
                    continue;
                }
                let named = schema["properties"].get(name);
                let (path, of) = match (named, &schema["additionalProperties"]) {
                    (Some(named), _) => (format!("{path}.{name}"), named),
                    (None, any @ Value::Object(_)) => (format!("{path}.*"), any),
                    (None, _) if is_open => continue,
                    (None, _) => {
                        tally.unknown.insert(format!("{path}.{name}"));
                        continue;
                    }
                };
                tally.known.insert(path.clone());
                fields(&path, of, child, tally);
            }
        }
        Value::Array(list) => {
            for child in list {
                fields(&format!("{path}[]"), &schema["items"], child, tally);
            }
        }
        _ => {}
    }
}

/// What a JSON patch sets, as the objects that would set it; anything else is as it is.
fn merged(sent: Value) -> Vec<Value> {
    let Value::Array(operations) = sent else {
        return vec![sent];
    };
    let set = operations.iter().filter(|operation| operation["op"] != "remove");
    let nested = set.map(|operation| {
        let path = operation["path"].as_str().unwrap_or_default();
        let steps = path
            .split('/')
            .skip(1)
            .map(|step| step.replace("~1", "/").replace("~0", "~"));
        let steps: Vec<String> = steps.collect();
        let put = |value: Value, step: &String| match step.parse::<usize>().is_ok() || step == "-" {
            true => Value::Array(vec![value]),
            false => Value::Object([(step.clone(), value)].into_iter().collect()),
        };
        steps.iter().rev().fold(operation["value"].clone(), put)
    });
    nested.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_write_is_checked_against_the_version_that_it_names_or_else_the_one_that_is_stored() {
        let schema = |name: &str| json!({"openAPIV3Schema": {"properties": {name: {}}}});
        let definition: &'static Value = Box::leak(Box::new(json!({"spec": {"versions": [
            {"name": "v1", "storage": true, "schema": schema("new")},
            {"name": "v1beta2", "storage": false, "schema": schema("old")},
        ]}})));
        let schemas = Schemas::of(definition);
        let has = |sent: Value, name: &str| schemas.of_sent(&sent)["properties"].get(name).is_some();
        assert!(has(json!({"apiVersion": "a.b/v1beta2"}), "old"));
        assert!(has(json!({"apiVersion": "a.b/v1"}), "new"));
        assert!(has(json!({"spec": {}}), "new"), "not the last by its name");
    }

    #[test]
    fn fields_that_a_schema_does_not_name_are_found_in_objects_lists_and_json_patches() {
        let schema = json!({"properties": {"spec": {"properties": {
            "envs": {"items": {"properties": {"name": {}}}},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "labels": {"additionalProperties": {}},
        }}}});
        let mut tally = Tally::default();
        let object = json!({"kind": "Plan", "metadata": {"name": "a"}, "spec": {
            "env": [], "envs": [{"name": "a", "valu": 1}], "any": {"thing": 1}, "labels": {"a": "b"}}});
        for sent in merged(object) {
            fields("", &schema, &sent, &mut tally);
        }
        for sent in
            merged(json!([{"op": "add", "path": "/spec/a~1b", "value": 1}, {"op": "remove", "path": "/spec/c"}]))
        {
            fields("", &schema, &sent, &mut tally);
        }
        let unknown: Vec<&str> = tally.unknown.iter().map(String::as_str).collect();
        assert_eq!(unknown, [".spec.a/b", ".spec.env", ".spec.envs[].valu"]);
        let known: Vec<&str> = tally.known.iter().map(String::as_str).collect();
        assert_eq!(
            known,
            [
                ".spec",
                ".spec.any",
                ".spec.envs",
                ".spec.envs[].name",
                ".spec.labels",
                ".spec.labels.*"
            ]
        );
    }
}
