//! The owners of fields: `metadata.managedFields`. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Value, json};

/// Who has changed KubeVirt's workloadUpdateMethods in upgrades: this toolkit and the one it replaces, versions of ours
/// that did not say who they are, the script of the older upgrade, and Harvester's controller that cleaned up after it.
const UPGRADES: [&str; 4] = ["upgrade-toolkit", "unknown", "kubectl-patch", "harvester"];
/// The field, as managedFields writes it.
const METHODS: [&str; 3] = ["f:spec", "f:workloadUpdateStrategy", "f:workloadUpdateMethods"];

/// The owners of an object's fields without those that upgrades have left on workloadUpdateMethods; nothing when there are
/// none. Fields that a user applied with server-side apply stay: they are intended, and Fleet reports the conflict.
#[must_use]
pub fn without_upgrades(entries: &[ManagedFieldsEntry]) -> Option<Value> {
    let mut kept = Vec::new();
    let mut found = false;
    for entry in entries {
        let mut entry = json!(entry);
        let is_upgrade = entry["manager"].as_str().is_some_and(|name| UPGRADES.contains(&name));
        if is_upgrade && entry["operation"] == "Update" && strike(&mut entry["fieldsV1"], &METHODS) {
            found = true;
        }
        if entry["fieldsV1"] != json!({}) {
            kept.push(entry);
        }
    }
    if kept.is_empty() {
        // This is how Kubernetes writes that no manager owns anything.
        kept.push(json!({}));
    }
    found.then_some(Value::Array(kept))
}

/// Takes a field out of a set of fields, with the fields around it that were there for it alone. Returns whether it was there.
fn strike(fields: &mut Value, path: &[&str]) -> bool {
    let (Some(map), Some((first, rest))) = (fields.as_object_mut(), path.split_first()) else {
        return false;
    };
    let Some(inner) = map.get_mut(*first) else { return false };
    if rest.is_empty() {
        map.remove(*first);
        return true;
    }
    let struck = strike(inner, rest);
    if struck && (*inner == json!({}) || *inner == json!({".": {}})) {
        map.remove(*first);
    }
    struck
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(entries: &Value) -> Vec<ManagedFieldsEntry> {
        serde_json::from_value(entries.clone()).unwrap()
    }

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({
            "manager": manager, "operation": operation, "apiVersion": "kubevirt.io/v1", "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        })
    }

    fn methods() -> Value {
        json!({"f:spec": {"f:workloadUpdateStrategy": {"f:workloadUpdateMethods": {}}}})
    }

    #[test]
    fn r02_only_what_upgrades_left_on_the_field_is_given_up() {
        let fleet = entry(
            "fleetagent",
            "Apply",
            &json!({"f:spec": {"f:configuration": {"f:a": {}}}}),
        );
        let theirs = entry("kubectl-edit", "Update", &methods());
        let applied = entry("upgrade-toolkit", "Apply", &methods());
        let beside = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {".": {}, "f:workloadUpdateStrategy":
            {".": {}, "f:workloadUpdateMethods": {}}}});
        let all = json!([
            fleet,
            entry("upgrade-toolkit", "Update", &methods()),
            theirs,
            entry("kubectl-patch", "Update", &beside),
            applied,
        ]);
        let rest = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}});
        assert_eq!(
            without_upgrades(&entries(&all)),
            Some(json!([fleet, theirs, entry("kubectl-patch", "Update", &rest), applied]))
        );
        assert_eq!(without_upgrades(&entries(&json!([fleet, theirs, applied]))), None);
        let alone = json!([entry("unknown", "Update", &methods())]);
        assert_eq!(without_upgrades(&entries(&alone)), Some(json!([{}])));
    }
}
