//! Patches of objects that Rancher owns. Only what the upgrade needs is touched.

use api::{
    annotations,
    foreign::rancher::{Cluster, ComparePatch, Diff, ManagedChart},
    names,
};
use plan::chart::POINTER;
use serde_json::{Value, json};

/// Makes Rancher upgrade all nodes one by one, each gated by our hooks, starting only from the version we know. What is
/// replaced stays on the cluster's record, since the plan may be deleted while the gate is closed.
#[must_use]
pub fn provision(
    kubernetes_version: &str,
    to: i64,
    (saved_strategy, os): (&str, &str),
    resource_version: &str,
) -> Value {
    let drain = json!({
        "enabled": true,
        "force": true,
        "ignoreDaemonSets": true,
        "deleteEmptyDirData": true,
        "ignoreErrors": false,
        "disableEviction": false,
        "gracePeriod": 0,
        "timeout": 0,
        "skipWaitForDeleteTimeoutSeconds": 0,
        "preDrainHooks": [{"annotation": annotations::PRE_HOOK}],
        "postDrainHooks": [{"annotation": annotations::POST_HOOK}],
    });
    json!({
        "metadata": {
            "resourceVersion": resource_version,
            "annotations": {annotations::SAVED_UPGRADE_STRATEGY: saved_strategy, annotations::GATED_RELEASE: os},
        },
        "spec": {
            "kubernetesVersion": kubernetes_version,
            "rkeConfig": {
                "provisionGeneration": to,
                "upgradeStrategy": {
                    "controlPlaneConcurrency": "1",
                    "controlPlaneDrainOptions": drain,
                    "workerConcurrency": "1",
                    "workerDrainOptions": drain,
                },
            },
        },
    })
}

/// Puts an upgradeStrategy back, and removes its record. A merge patch would keep what only ours had, so this one
/// replaces.
#[must_use]
pub fn restore_strategy(strategy: &Value, cluster: &Cluster) -> Value {
    const STRATEGY: &str = "/spec/rkeConfig/upgradeStrategy";
    let rke = cluster.spec.rke_config.as_ref();
    let present = rke.is_some_and(|rke| rke.upgrade_strategy.is_some());
    let mut patch = match (strategy, present) {
        (Value::Null, true) => vec![json!({"op": "remove", "path": STRATEGY})],
        (Value::Null, false) => Vec::new(),
        (strategy, _) => vec![json!({"op": "add", "path": STRATEGY, "value": strategy})],
    };
    let known = cluster.metadata.annotations.as_ref();
    let notes = [annotations::SAVED_UPGRADE_STRATEGY, annotations::GATED_RELEASE];
    for key in notes
        .into_iter()
        .filter(|key| known.is_some_and(|known| known.contains_key(*key)))
    {
        let key = key.replace('/', "~1");
        patch.push(json!({"op": "remove", "path": format!("/metadata/annotations/{key}")}));
    }
    if let Some(version) = &cluster.metadata.resource_version {
        // Only of the cluster that was seen.
        patch.push(json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version}));
    }
    Value::Array(patch)
}

/// The chart's comparePatches without the pointer that older versions of ours put there. Entries of others stay as they
/// are.
#[must_use]
pub fn stop_ignoring_methods(chart: &ManagedChart) -> Value {
    let diff: Diff = chart.spec.diff.clone().unwrap_or_default();
    let mut patches = diff.compare_patches.unwrap_or_default();
    let is_ours = |patch: &ComparePatch| {
        patch.api_version.as_deref() == Some("kubevirt.io/v1")
            && patch.kind.as_deref() == Some("KubeVirt")
            && patch.name.as_deref() == Some(names::KUBEVIRT)
    };
    for patch in patches.iter_mut().filter(|patch| is_ours(patch)) {
        if let Some(pointers) = &mut patch.json_pointers {
            pointers.retain(|pointer| pointer != POINTER);
        }
    }
    patches.retain(|patch| {
        !is_ours(patch)
            || patch
                .json_pointers
                .as_ref()
                .is_some_and(|pointers| !pointers.is_empty())
            || !patch.other.is_empty()
    });
    json!({"spec": {"diff": {"comparePatches": patches}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(patches: &Value) -> ManagedChart {
        let mut chart = ManagedChart::named("harvester");
        chart.spec.diff = serde_json::from_value(json!({"comparePatches": patches})).unwrap();
        chart
    }

    fn left(patches: &Value) -> Value {
        stop_ignoring_methods(&chart(patches))["spec"]["diff"]["comparePatches"].clone()
    }

    #[test]
    fn w06_rancher_gets_the_version_as_the_release_writes_it() {
        let patch = provision("v1.35.2+rke2r1", 4, ("null", "Harvester v1.8.0"), "7");
        assert_eq!(patch["spec"]["kubernetesVersion"], "v1.35.2+rke2r1");
        assert_eq!(patch["spec"]["rkeConfig"]["provisionGeneration"], 4);
    }

    #[test]
    fn our_pointer_goes_and_others_stay() {
        let others = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "jsonPointers": ["/data"]});
        let ours = |pointers: &Value| json!({"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "name": "kubevirt", "jsonPointers": pointers});
        assert_eq!(left(&json!([others, ours(&json!([POINTER]))])), json!([others]));
        assert_eq!(
            left(&json!([ours(&json!(["/a", POINTER]))])),
            json!([ours(&json!(["/a"]))])
        );
        assert_eq!(left(&json!([others])), json!([others]));
    }

    #[test]
    fn a_strategy_that_was_absent_is_absent_again() {
        let without = Cluster::named("local");
        let mut with = without.clone();
        with.spec.rke_config = serde_json::from_value(json!({"upgradeStrategy": {}})).unwrap();
        assert_eq!(restore_strategy(&Value::Null, &with)[0]["op"], "remove");
        assert_eq!(restore_strategy(&Value::Null, &without), json!([]));
        assert_eq!(restore_strategy(&json!({"a": 1}), &with)[0]["value"], json!({"a": 1}));
        let record = (annotations::SAVED_UPGRADE_STRATEGY.to_owned(), "null".to_owned());
        with.metadata.annotations = Some([record].into());
        let both = restore_strategy(&Value::Null, &with);
        let path = "/metadata/annotations/management.harvesterhci.io~1saved-upgrade-strategy";
        assert_eq!(both[1], json!({"op": "remove", "path": path}));
        let known = with.metadata.annotations.get_or_insert_default();
        known.insert(annotations::GATED_RELEASE.to_owned(), "Harvester v1.8.0".to_owned());
        let path = "/metadata/annotations/management.harvesterhci.io~1gated-release";
        assert_eq!(
            restore_strategy(&Value::Null, &with)[2],
            json!({"op": "remove", "path": path})
        );
    }
}
