//! CustomResourceDefinitions: checking them and turning them into served kinds.

use serde_json::{Value, json};

use crate::{
    kind::{Kind, ResourceId, ScalePaths, View},
    metadata::time_text,
    schema::Schema,
    status::FieldError,
    table::crd_columns,
};

fn texts(list: &Value) -> Vec<String> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// What is wrong with a definition.
pub(crate) fn check(definition: &Value, errors: &mut Vec<FieldError>) {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    for (field, value) in [("spec.group", &group), ("spec.names.plural", &plural)] {
        if value.is_empty() {
            errors.push(FieldError::required(field, ""));
        }
    }
    if spec["names"]["kind"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required("spec.names.kind", ""));
    }
    let expected = format!("{plural}.{group}");
    if definition["metadata"]["name"] != expected {
        let detail = format!("must be spec.names.plural+\".\"+spec.group ({expected})");
        errors.push(FieldError::invalid(
            "metadata.name",
            &definition["metadata"]["name"],
            &detail,
        ));
    }
    if !matches!(spec["scope"].as_str(), Some("Namespaced" | "Cluster")) {
        errors.push(FieldError::unsupported(
            "spec.scope",
            &spec["scope"],
            &[json!("Cluster"), json!("Namespaced")],
        ));
    }
    let versions = spec["versions"].as_array().cloned().unwrap_or_default();
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &json!(versions.len()), detail));
    }
    for (index, version) in versions.iter().enumerate() {
        let schema = &version["schema"]["openAPIV3Schema"];
        if !schema.is_object() {
            let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
            errors.push(FieldError::required(&field, "schemas are required"));
        } else if let Err(found) = Schema::of(schema) {
            errors.extend(found);
        }
    }
}

/// Names filled in as the real server does.
pub(crate) fn shape(definition: &mut Value) {
    if !definition["spec"]["names"].is_object() {
        return;
    }
    let names = &mut definition["spec"]["names"];
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    if kind.is_empty() {
        return;
    }
    if names.get("singular").is_none() {
        names["singular"] = json!(kind.to_lowercase());
    }
    if names.get("listKind").is_none() {
        names["listKind"] = json!(format!("{kind}List"));
    }
    if definition["spec"].get("conversion").is_none() {
        definition["spec"]["conversion"] = json!({"strategy": "None"});
    }
}

/// The status of a definition that is served.
pub(crate) fn established(definition: &Value, now: jiff::Timestamp) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": time_text(now)});
    let versions = definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
    let stored: Vec<Value> = versions
        .iter()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    json!({
        "acceptedNames": definition["spec"]["names"],
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": stored,
    })
}

/// Where the objects of a definition are kept.
pub(crate) fn resource(definition: &Value) -> ResourceId {
    let spec = &definition["spec"];
    ResourceId::new(
        spec["group"].as_str().unwrap_or_default(),
        spec["names"]["plural"].as_str().unwrap_or_default(),
    )
}

/// The kinds a definition serves, one per served version.
pub(crate) fn kinds(definition: &Value) -> Vec<Kind> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group = text(&spec["group"]);
    let versions = spec["versions"].as_array().cloned().unwrap_or_default();
    let storage = versions.iter().find(|version| version["storage"] == true);
    let stored_version = storage.map(|version| text(&version["name"])).unwrap_or_default();
    let stored_api_version = format!("{group}/{stored_version}");
    let served = versions.iter().filter(|version| version["served"] == true);
    served
        .filter_map(|version| {
            let schema = Schema::of(&version["schema"]["openAPIV3Schema"]).ok()?;
            let name = text(&version["name"]);
            let subresources = &version["subresources"];
            let scale = subresources["scale"].as_object().map(|scale| {
                let path = |field: &str| scale.get(field).and_then(Value::as_str).map(str::to_owned);
                ScalePaths {
                    spec_replicas: path("specReplicasPath").unwrap_or_default(),
                    status_replicas: path("statusReplicasPath").unwrap_or_default(),
                    label_selector: path("labelSelectorPath"),
                }
            });
            let selectable = version["selectableFields"].as_array().into_iter().flatten();
            let warning = (version["deprecated"] == true).then(|| {
                let default = format!("{group}/{name} {} is deprecated", text(&names["kind"]));
                version["deprecationWarning"].as_str().map_or(default, str::to_owned)
            });
            Some(Kind {
                group: group.clone(),
                version: name,
                kind: text(&names["kind"]),
                plural: text(&names["plural"]),
                singular: text(&names["singular"]),
                short_names: texts(&names["shortNames"]),
                categories: texts(&names["categories"]),
                namespaced: spec["scope"] == "Namespaced",
                status: subresources.get("status").is_some(),
                scale,
                generation: true,
                resource: resource(definition),
                stored_api_version: stored_api_version.clone(),
                // With several versions, which one an object was stored under depends on when.
                view: if versions.len() == 1 {
                    View::Stored
                } else {
                    View::OtherVersion
                },
                schema: Some(schema),
                columns: crd_columns(&version["additionalPrinterColumns"]),
                selectable_fields: selectable
                    .filter_map(|field| field["jsonPath"].as_str())
                    .map(|path| path.trim_start_matches('.').to_owned())
                    .collect(),
                create_only: false,
                warning,
            })
        })
        .collect()
}
