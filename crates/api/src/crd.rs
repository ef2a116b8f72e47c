//! CustomResourceDefinitions: ours as it ships, and small ones of the foreign kinds for clusters that we simulate.

use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::{
    UpgradeLog, UpgradePlan,
    foreign::{self, ForeignKind},
};

/// The UpgradePlan CRD as JSON, the one source of everything that ships it.
#[must_use]
pub fn upgrade_plan() -> Value {
    ours::<UpgradePlan>("UpgradePlanList")
}

/// The UpgradeLog CRD as JSON, the one source of everything that ships it.
#[must_use]
pub fn upgrade_log() -> Value {
    ours::<UpgradeLog>("UpgradeLogList")
}

/// The CRD of a kind of ours, without what the derive adds to the contract.
fn ours<K: CustomResourceExt>(list: &str) -> Value {
    // The derived type always serialises: it is plain data with string keys.
    let mut crd = serde_json::to_value(K::crd()).unwrap_or_default();
    crd["spec"]["names"]["listKind"] = json!(list);
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    plain(schema, true);
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.insert("apiVersion".to_owned(), json!({"type": "string"}));
        properties.insert("kind".to_owned(), json!({"type": "string"}));
        properties.insert("metadata".to_owned(), json!({"type": "object"}));
    }
    crd
}

/// The CRDs of all foreign kinds: the fields that we use with their types, and whatever else there is.
#[must_use]
pub fn foreign() -> Vec<Value> {
    foreign::ALL.iter().map(|kind| small(kind)).collect()
}

/// The schema of a type, without references.
pub(crate) fn fields<T: schemars::JsonSchema>() -> schemars::Schema {
    let mut settings = schemars::generate::SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    settings.into_generator().into_root_schema_for::<T>()
}

/// Removes what the derive adds and the contract does not have: `nullable` on optional fields, and number formats on
/// fields whose Go type is a plain `int`. The condition schema is the standard one and keeps its own.
fn plain(schema: &mut Value, strip_format: bool) {
    match schema {
        Value::Object(map) => {
            map.remove("nullable");
            if strip_format && map.get("type").is_some_and(|t| t == "integer") {
                map.remove("format");
            }
            // Limits of integers are integers.
            for limit in ["minimum", "maximum"] {
                let whole = map
                    .get(limit)
                    .and_then(Value::as_f64)
                    .filter(|value| value.fract() == 0.0);
                if let Some(whole) = whole.and_then(|value| format!("{value:.0}").parse::<i64>().ok()) {
                    map.insert(limit.to_owned(), json!(whole));
                }
            }
            // An empty default is the serde default of a collection, not one that the API server should write.
            map.remove("default");
            for (key, child) in map.iter_mut() {
                plain(child, strip_format && key != "conditions");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| plain(item, strip_format)),
        _ => {}
    }
}

/// Makes a derived schema structural, and open: our types name what we use, not what there is.
fn open(schema: &Value, depth: usize) -> Value {
    let mut opened = serde_json::Map::new();
    let mut copy = |key: &str| {
        if let Some(value) = schema.get(key) {
            opened.insert(key.to_owned(), value.clone());
        }
    };
    copy("type");
    if depth == 1 {
        // Below, everything that is optional in Rust would be nullable.
        copy("nullable");
    }
    if let Some(properties) = schema["properties"].as_object() {
        let properties = properties
            .iter()
            .map(|(name, child)| (name.clone(), open(child, depth + 1)));
        opened.insert("properties".to_owned(), Value::Object(properties.collect()));
    }
    if schema["type"] == "array" {
        opened.insert("items".to_owned(), open(&schema["items"], depth + 1));
    }
    match &schema["additionalProperties"] {
        values @ Value::Object(fields) if !fields.is_empty() => {
            opened.insert("additionalProperties".to_owned(), open(values, depth + 1));
        }
        _ if schema["type"] == "object" || schema["type"].is_null() => {
            opened.insert(PRESERVE.to_owned(), json!(true));
        }
        _ => {}
    }
    Value::Object(opened)
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

fn small(kind: &ForeignKind) -> Value {
    let ForeignKind {
        group,
        version,
        kind,
        plural,
        namespaced,
        has_status,
        short_names,
        fields,
    } = kind;
    let singular = kind.to_lowercase();
    let mut schema = open(fields().as_value(), 0);
    schema["properties"]["metadata"] = json!({"type": "object"});
    let mut entry = json!({
        "name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}
    });
    if *has_status {
        entry["subresources"] = json!({"status": {}});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular, "shortNames": short_names},
            "scope": if *namespaced { "Namespaced" } else { "Cluster" },
            "versions": [entry]
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every place of a schema, as `path: value`.
    fn leaves(path: &str, value: &Value, found: &mut Vec<(String, Value)>) {
        match value {
            Value::Object(map) => map
                .iter()
                .for_each(|(key, child)| leaves(&format!("{path}/{key}"), child, found)),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .for_each(|(i, child)| leaves(&format!("{path}/{i}"), child, found)),
            other => found.push((path.to_owned(), other.clone())),
        }
    }

    fn schema() -> Value {
        upgrade_plan()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    }

    #[test]
    fn the_crd_has_no_defaults_and_nothing_nullable_and_every_field_teaches() {
        let mut found = Vec::new();
        leaves("", &schema(), &mut found);
        assert!(
            !found
                .iter()
                .any(|(path, _)| path.ends_with("/default") || path.ends_with("/nullable")),
            "{found:?}"
        );
        let undocumented: Vec<_> = fields("", &schema())
            .into_iter()
            .filter(|(_, documented)| !documented)
            .collect();
        assert_eq!(undocumented, []);
    }

    /// All fields below a schema, and whether each has a description.
    fn fields(path: &str, schema: &Value) -> Vec<(String, bool)> {
        let mut found = Vec::new();
        for (name, child) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            let standard = ["apiVersion", "kind", "metadata"].contains(&name.as_str());
            found.push((path.clone(), standard || child["description"].is_string()));
            found.extend(fields(&path, child));
            found.extend(fields(&path, &child["items"]));
            found.extend(fields(&path, &child["additionalProperties"]));
        }
        found
    }

    #[test]
    fn the_fields_are_those_of_the_contract() {
        let schema = schema();
        let names = |path: &str| -> Vec<String> {
            let mut names: Vec<_> = schema
                .pointer(path)
                .and_then(Value::as_object)
                .unwrap()
                .keys()
                .cloned()
                .collect();
            names.sort();
            names
        };
        assert_eq!(schema["required"], json!(["spec"]));
        assert_eq!(
            names("/properties/spec/properties"),
            [
                "force",
                "image",
                "imagePreloadOption",
                "nodeUpgradeOption",
                "onMigrationFailure",
                "restoreVM",
                "upgrade",
                "version"
            ]
        );
        assert_eq!(
            names("/properties/status/properties"),
            [
                "conditions",
                "currentPhase",
                "insights",
                "isoImageID",
                "nodeUpgradeStatuses",
                "notes",
                "phaseTransitionTimestamps",
                "postflight",
                "preflight",
                "previousVersion",
                "progress",
                "provisionGeneration",
                "releaseDigests",
                "releaseMetadata",
                "repository",
                "singleNode",
                "version",
                "waitingFor"
            ]
        );
        let status = &schema["properties"]["status"]["properties"];
        assert_eq!(status["conditions"]["x-kubernetes-list-map-keys"], json!(["type"]));
        assert_eq!(status["nodeUpgradeStatuses"]["x-kubernetes-map-type"], "atomic");
        assert_eq!(status["phaseTransitionTimestamps"]["x-kubernetes-list-type"], "atomic");
        assert_eq!(
            status["provisionGeneration"],
            json!({"description": status["provisionGeneration"]["description"], "type": "integer"})
        );
        let spec = &schema["properties"]["spec"];
        assert!(spec.get("required").is_none(), "{spec}");
        assert_eq!(
            spec["properties"]["onMigrationFailure"]["enum"],
            json!(["Block", "Retry", "Stop"])
        );
        let option = &spec["properties"]["nodeUpgradeOption"];
        assert!(option.get("required").is_none(), "{option}");
    }

    #[test]
    fn an_upgrade_log_has_the_fields_names_and_columns_of_the_contract() {
        let crd = upgrade_log();
        let names = &crd["spec"]["names"];
        assert_eq!(names["shortNames"], json!(["ul", "uls"]));
        assert_eq!(names["listKind"], "UpgradeLogList");
        assert_eq!(crd["spec"]["scope"], "Cluster");
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["name"], "v1beta1");
        assert_eq!(version["subresources"], json!({"status": {}}));
        let columns: Vec<_> = version["additionalPrinterColumns"].as_array().unwrap().iter().collect();
        let columns: Vec<_> = columns.iter().map(|column| column["name"].as_str().unwrap()).collect();
        assert_eq!(columns, ["UPGRADE_PLAN", "PHASE", "AGE"]);
        let schema = &version["schema"]["openAPIV3Schema"];
        assert_eq!(schema["required"], json!(["spec"]));
        let spec = &schema["properties"]["spec"];
        assert_eq!(spec["required"], json!(["upgradePlanName"]));
        assert_eq!(spec["properties"]["upgradePlanName"]["minLength"], 1);
        let status = &schema["properties"]["status"]["properties"];
        assert_eq!(status["conditions"]["x-kubernetes-list-map-keys"], json!(["type"]));
        let pods = &status["trackedPods"];
        assert_eq!(pods["x-kubernetes-map-type"], "atomic");
        let pod = &pods["additionalProperties"];
        assert_eq!(
            pod["properties"]["state"]["enum"],
            json!(["Streaming", "Completed", "Failed"])
        );
        assert_eq!(pod["required"], json!(["component", "state"]));
        assert_eq!(status["storageUsage"]["type"], "integer");
        let undocumented: Vec<_> = fields("", schema)
            .into_iter()
            .filter(|(_, documented)| !documented)
            .collect();
        assert_eq!(undocumented, []);
    }

    #[test]
    fn every_foreign_kind_has_a_crd_of_the_types_that_we_read() {
        let definitions = foreign();
        assert_eq!(definitions.len(), foreign::ALL.len());
        let found = definitions
            .iter()
            .find(|definition| definition["metadata"]["name"] == "plans.upgrade.cattle.io");
        let schema = &found.unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let spec = &schema["properties"]["spec"];
        assert_eq!(
            spec["properties"]["upgrade"]["properties"]["envs"],
            json!({"type": "array", "items": {"type": "object", PRESERVE: true}})
        );
        assert_eq!(spec["properties"]["concurrency"], json!({"type": "integer"}));
        assert_eq!(spec[PRESERVE], true, "what we do not use is kept");
        let mut found = Vec::new();
        leaves("", &json!(definitions), &mut found);
        let odd = ["$ref", "anyOf", "allOf", "default", "format"];
        let odd = found.iter().find(|(path, _)| {
            odd.iter().any(|key| path.contains(&format!("/{key}"))) && !path.contains("properties/default")
        });
        assert_eq!(odd, None);
    }
}
