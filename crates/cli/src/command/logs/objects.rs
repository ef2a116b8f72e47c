//! What an archive has besides logs: the plan and what belongs to it, as the cluster has them. Secrets are never read, and
//! lines are masked as those of logs are.

use api::UpgradePlan;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use logs::mask::Masker;
use serde::Serialize;
use serde_json::Value;

use super::archive::Entry;

/// A file of the archive: its name, the kind, and the namespace. Without a namespace the kind has none.
type Row = (
    &'static str,
    (&'static str, &'static str, &'static str),
    Option<&'static str>,
);

/// What is read.
const FILES: &[Row] = &[
    ("nodes.yaml", ("", "v1", "Node"), None),
    (
        "events-default.yaml",
        ("", "v1", "Event"),
        Some(api::names::DEFAULT_NAMESPACE),
    ),
    (
        "events-harvester-system.yaml",
        ("", "v1", "Event"),
        Some(api::names::HARVESTER_NAMESPACE),
    ),
    (
        "jobs-harvester-system.yaml",
        ("batch", "v1", "Job"),
        Some(api::names::HARVESTER_NAMESPACE),
    ),
    (
        "jobs-cattle-system.yaml",
        ("batch", "v1", "Job"),
        Some(api::names::CATTLE_NAMESPACE),
    ),
    (
        "plans-cattle-system.yaml",
        ("upgrade.cattle.io", "v1", "Plan"),
        Some(api::names::CATTLE_NAMESPACE),
    ),
];

/// The files, and what could not be read.
pub(in super::super) async fn read(client: &Client, plan: &UpgradePlan) -> (Vec<Entry>, Vec<(String, kube::Error)>) {
    let mut failures = Vec::new();
    let mut entries = vec![
        ("timeline.txt".to_owned(), timeline(plan).into_bytes()),
        ("upgradeplan.yaml".to_owned(), yaml(&without_fields(plan))),
    ];
    for (file, (group, version, kind), namespace) in FILES {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        match api.list(&ListParams::default()).await {
            Ok(found) => {
                let objects: Vec<Value> = found.items.iter().map(without_fields).collect();
                entries.push(((*file).to_owned(), yaml(&objects)));
            }
            Err(error) => failures.push(((*file).to_owned(), error)),
        }
    }
    (entries, failures)
}

/// An object without the owners of its fields, which no reader of logs needs.
fn without_fields(object: &impl Serialize) -> Value {
    let mut object = serde_json::to_value(object).unwrap_or_default();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// Masked YAML.
fn yaml(value: &impl Serialize) -> Vec<u8> {
    let text = serde_saphyr::to_string(value).unwrap_or_else(|error| format!("# failed to write this: {error}\n"));
    let mut masker = Masker::default();
    let mut masked = String::with_capacity(text.len());
    for line in text.lines() {
        masked.push_str(&masker.mask(line));
        masked.push('\n');
    }
    masked.into_bytes()
}

/// When which phase was reached.
fn timeline(plan: &UpgradePlan) -> String {
    let mut text = String::new();
    if let Some(created) = plan.creation_timestamp() {
        text.push_str(&format!("{} UpgradePlan {} was created\n", created.0, plan.name_any()));
    }
    let history = plan
        .status
        .iter()
        .flat_map(|status| &status.phase_transition_timestamps);
    for step in history {
        text.push_str(&format!("{} {}\n", step.phase_transition_timestamp.0, step.phase));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_in_objects_are_masked_and_the_owners_of_fields_are_left_out() {
        let object = json!({
            "metadata": {"name": "x", "managedFields": [{"manager": "kubectl"}]},
            "data": {"note": "Authorization: Bearer abcdefghijklmnop"},
        });
        let text = String::from_utf8(yaml(&without_fields(&object))).unwrap();
        assert!(
            !text.contains("managedFields") && !text.contains("abcdefghijklmnop"),
            "{text}"
        );
        assert!(text.contains("[masked: "), "{text}");
    }

    #[test]
    fn the_timeline_has_every_phase_with_its_time() {
        let plan: UpgradePlan = serde_json::from_value(json!({
            "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
            "metadata": {"name": "up", "creationTimestamp": "2026-03-13T03:57:09Z"}, "spec": {},
            "status": {"phaseTransitionTimestamps": [
                {"phase": "Initializing", "phaseTransitionTimestamp": "2026-03-13T03:57:10Z"},
            ]},
        }))
        .unwrap();
        assert_eq!(
            timeline(&plan),
            "2026-03-13T03:57:09Z UpgradePlan up was created\n2026-03-13T03:57:10Z Initializing\n"
        );
    }
}
