//! Upgrades in which nothing goes wrong.

use serde_json::json;

use crate::run::{Case, run};

#[test]
fn a_clean_upgrade_puts_everything_back_and_leaves_nothing_behind() {
    let ended = run(&Case::three_nodes());
    assert_eq!(ended.violations, [""; 0]);
    let digest = &ended.digest;
    assert_eq!(digest["status"]["currentPhase"], "Succeeded");
    assert_eq!(digest["cluster"]["rkeConfig"]["provisionGeneration"], 1);
    assert_eq!(
        digest["cluster"]["rkeConfig"]["upgradeStrategy"],
        json!({"controlPlaneConcurrency": "1", "workerConcurrency": "10%"})
    );
    assert_eq!(digest["cluster"]["kubernetesVersion"], "v1.35.2+rke2r1");
    assert_eq!(digest["longhorn"], "600");
    assert_eq!(digest["descheduler"], true);
    assert_eq!(
        digest["kubevirt"]["workloadUpdateStrategy"]["workloadUpdateMethods"],
        json!(["LiveMigrate"])
    );
    for (name, chart) in digest["charts"].as_object().unwrap() {
        let untouched = json!({"paused": false, "pausedBy": null, "diff": null, "kubevirt": null});
        assert_eq!(*chart, untouched, "{name}");
    }
    for kind in ["jobs", "plans", "deployments", "services", "images", "finalizers"] {
        assert_eq!(digest[kind], json!([]), "{kind} are left");
    }
    for (name, node) in digest["nodes"].as_object().unwrap() {
        assert_eq!(node["osImage"], "Harvester v1.8.0", "{name}");
        assert_eq!(
            (&node["annotations"], &node["labels"]),
            (&json!([]), &json!([])),
            "{name}"
        );
        assert!(
            node["cordoned"].is_null() || node["cordoned"] == false,
            "{name} is cordoned"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_writes_in_the_same_order() {
    let (first, second) = (run(&Case::three_nodes()), run(&Case::three_nodes()));
    assert_eq!(first.writes, second.writes);
    assert_eq!(first.plan, second.plan);
}

#[test]
fn no_event_is_reported_twice_and_none_warns() {
    let ended = run(&Case::three_nodes());
    let events: Vec<String> = serde_json::from_value(ended.digest["events"].clone()).unwrap();
    let mut once = events.clone();
    once.dedup();
    assert_eq!(events, once);
    let noise = ["ReconcileError", "Stalled", "not found"];
    assert!(
        !events.iter().any(|event| noise.iter().any(|word| event.contains(word))),
        "{events:#?}"
    );
}
