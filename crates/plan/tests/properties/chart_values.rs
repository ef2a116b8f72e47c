//! What decisions see of a ManagedChart.

use api::foreign::rancher::ManagedChart;
use plan::chart::{POINTER, methods_patch, observed};
use rstest::rstest;
use serde_json::{Value, json};

fn chart(object: Value) -> ManagedChart {
    serde_json::from_value(object).unwrap()
}

#[test]
fn everything_that_an_upgrade_changes_is_seen() {
    let bare = observed(&chart(json!({"metadata": {"name": "harvester"}, "spec": {}})));
    assert!(!bare.paused && !bare.ignores_methods);
    assert_eq!((bare.paused_by, bare.record, bare.methods), (None, None, Value::Null));
    assert_eq!(bare.observed_generation, 0);
    assert_eq!(bare.lacks.as_deref(), Some("it is not ready"));
    let full = observed(&chart(json!({
        "metadata": {"name": "harvester", "annotations": {
            "management.harvesterhci.io/paused-by": "uid",
            "management.harvesterhci.io/saved-chart-workload-update-methods": "{}",
        }},
        "spec": {"paused": true, "values": {"kubevirt": {"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": []}}}}},
        "status": {"observedGeneration": 7, "summary": {"ready": 1}},
    })));
    assert!(full.paused);
    assert_eq!(
        (full.paused_by.as_deref(), full.record.as_deref()),
        (Some("uid"), Some("{}"))
    );
    assert_eq!(full.methods, json!([]));
    assert_eq!((full.observed_generation, full.lacks), (7, None));
    let resumed = observed(&chart(
        json!({"metadata": {"name": "harvester"}, "spec": {"paused": false}}),
    ));
    assert!(!resumed.paused);
}

#[rstest]
#[case("KubeVirt", "kubevirt", POINTER, true)]
#[case("Deployment", "kubevirt", POINTER, false)]
#[case("KubeVirt", "other", POINTER, false)]
#[case("KubeVirt", "kubevirt", "/spec/replicas", false)]
fn fleet_ignores_the_methods_where_a_patch_of_kubevirt_says_so(
    #[case] kind: &str,
    #[case] name: &str,
    #[case] pointer: &str,
    #[case] expected: bool,
) {
    let patch = json!({"apiVersion": "kubevirt.io/v1", "kind": kind, "name": name, "namespace": "harvester-system",
        "jsonPointers": ["/status", pointer]});
    let ignoring = chart(json!({"metadata": {"name": "harvester"}, "spec": {"diff": {"comparePatches": [patch]}}}));
    assert_eq!(observed(&ignoring).ignores_methods, expected);
}

#[test]
fn methods_that_go_leave_the_key_that_the_chart_had_before() {
    let alone = chart(json!({"metadata": {"name": "harvester"}, "spec": {"values": {"kubevirt": {"spec": {}}}}}));
    assert_eq!(
        methods_patch(&alone, &Value::Null),
        json!({"spec": {"values": {"kubevirt": null}}})
    );
    let strategy = json!({"workloadUpdateMethods": [], "batchEvictionSize": 1});
    let beside = chart(json!({"metadata": {"name": "harvester"},
        "spec": {"values": {"kubevirt": {"spec": {"workloadUpdateStrategy": strategy}}}}}));
    let only = json!({"workloadUpdateStrategy": {"workloadUpdateMethods": null}});
    assert_eq!(
        methods_patch(&beside, &Value::Null),
        json!({"spec": {"values": {"kubevirt": {"spec": only}}}})
    );
}
