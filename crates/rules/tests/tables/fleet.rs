//! When Fleet is done with a chart or a bundle.

use api::foreign::{fleet::Bundle, rancher::ManagedChart};
use rules::fleet::{bundle_lacks, chart_lacks};
use serde_json::{Value, json};

use crate::read;

fn chart(status: Value) -> Option<String> {
    let chart: ManagedChart = read(json!({"metadata": {"name": "harvester"}, "spec": {}, "status": status}));
    chart_lacks(&chart)
}

fn bundle(generation: Value, status: Value) -> Option<String> {
    let metadata = json!({"name": "mcc-harvester", "namespace": "fleet-local", "generation": generation});
    let bundle: Bundle = read(json!({"metadata": metadata, "status": status}));
    bundle_lacks(&bundle)
}

#[test]
fn a_chart_is_ready_when_its_one_bundle_is_and_nothing_is_unavailable() {
    let ready = json!([{"type": "Ready", "status": "True", "message": ""}]);
    assert_eq!(chart(json!({"summary": {"ready": 1}})), None);
    assert_eq!(chart(json!({"summary": {"ready": 1}, "unavailable": 0})), None);
    let unready = Some("it is not ready".to_owned());
    assert_eq!(chart(json!({"summary": {"ready": 0}})), unready);
    assert_eq!(chart(json!({"summary": {"ready": 0}, "conditions": ready})), unready);
    assert_eq!(chart(json!({"summary": {"ready": 1}, "unavailable": 1})), unready);
    let others = json!([{"type": "Processed", "status": "False", "message": "not this"}, {"type": "Ready", "status": "False", "message": "this"}]);
    assert_eq!(
        chart(json!({"conditions": others})),
        Some("Fleet says \"this\"".to_owned())
    );
}

#[test]
fn a_bundle_is_settled_unless_fleet_has_not_seen_it_or_says_that_it_is_unready() {
    assert_eq!(bundle(Value::Null, json!({})), None);
    assert_eq!(bundle(json!(2), json!({"observedGeneration": 2})), None);
    assert_eq!(bundle(json!(2), json!({"observedGeneration": 3})), None);
    let unseen = Some("Fleet has not seen its last change".to_owned());
    assert_eq!(bundle(json!(2), json!({"observedGeneration": 1})), unseen);
    let unready = json!([{"type": "Ready", "status": "False", "message": "ErrApplied(1)"}]);
    assert_eq!(
        bundle(Value::Null, json!({"conditions": unready})),
        Some("Fleet says \"ErrApplied(1)\"".to_owned())
    );
    let other = json!([{"type": "Processed", "status": "False"}, {"type": "Ready", "status": "Unknown"}]);
    assert_eq!(bundle(Value::Null, json!({"conditions": other})), None);
}
