//! CustomResourceDefinitions: ours as it ships, and stand-ins for the foreign kinds in clusters that we simulate.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::{
    UpgradePlan,
    foreign::{self, ForeignKind},
};

/// The UpgradePlan CRD as JSON, the one source of everything that ships it.
#[must_use]
pub fn upgrade_plan() -> Value {
    // The derived type always serialises: it is plain data with string keys.
    let mut crd = serde_json::to_value(UpgradePlan::crd()).unwrap_or_default();
    crd["spec"]["names"]["listKind"] = json!("UpgradePlanList");
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    plain(schema, true);
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.insert("apiVersion".to_owned(), json!({"type": "string"}));
        properties.insert("kind".to_owned(), json!({"type": "string"}));
        properties.insert("metadata".to_owned(), json!({"type": "object"}));
    }
    crd
}

/// The CRDs of all foreign kinds, with schemas that accept anything.
#[must_use]
pub fn foreign() -> Vec<CustomResourceDefinition> {
    // A value built from constants; it has the shape of the type by construction.
    foreign::ALL
        .iter()
        .filter_map(|kind| serde_json::from_value(accept_anything(kind)).ok())
        .collect()
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
            if map.get("minimum").and_then(Value::as_f64) == Some(0.0) {
                map.insert("minimum".to_owned(), json!(0));
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

fn accept_anything(kind: &ForeignKind) -> Value {
    let ForeignKind {
        group,
        version,
        kind,
        plural,
        namespaced,
        has_status,
        short_names,
    } = kind;
    let singular = kind.to_lowercase();
    let mut entry = json!({
        "name": version, "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
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
                "isoImageID",
                "nodeUpgradeStatuses",
                "phaseTransitionTimestamps",
                "previousVersion",
                "provisionGeneration",
                "releaseMetadata",
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
    fn every_foreign_kind_has_a_crd() {
        assert_eq!(foreign().len(), foreign::ALL.len());
    }
}
