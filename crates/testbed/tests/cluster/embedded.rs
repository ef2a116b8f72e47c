//! The same upgrade on the embedded cluster, for comparison.

use std::time::Duration;

use api::{Phase, UpgradePlan, UpgradePlanSpec};
use cli::rehearsal::{Rehearsal, Scenario, beginning};
use clock::Clock;
use kube::ResourceExt;
use serde_json::{Value, json};
use world::{Durations, Shape};

/// Longer than any upgrade in virtual time.
const LIMIT: Duration = Duration::from_hours(12);

/// The plan at the end of an upgrade of a cluster of that shape, in paused time.
pub(crate) fn upgraded(shape: Shape, name: &str) -> UpgradePlan {
    let name = name.to_owned();
    let rehearse = async move {
        let scenario = Scenario {
            durations: Durations::instant(),
            shape: shape.clone(),
            definitions: crate::harvester::definitions().0,
            ..Scenario::default()
        };
        let rehearsal = Rehearsal::start(scenario, Clock::simulated(beginning(), 1.0))
            .await
            .unwrap();
        let _manager = rehearsal.start_manager("manager");
        let spec = UpgradePlanSpec {
            version: Some(shape.to),
            ..UpgradePlanSpec::default()
        };
        // The upgrade that this is compared with runs without webhooks, on VMs that they would refuse.
        rehearsal.take_admission_away().await.unwrap();
        rehearsal.create(&UpgradePlan::new(&name, spec)).await.unwrap();
        let ended = |plan: &UpgradePlan| plan.phase() == Some(Phase::Succeeded) && plan.finalizers().is_empty();
        let plan = rehearsal.follow(&name, Some(LIMIT), ended).await;
        (*plan.expect("the rehearsal ends")).clone()
    };
    // Paused time needs a runtime of its own, and that a thread of its own.
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(rehearse)
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// What must be the same wherever the upgrade ran: a plan without its times and identifiers.
pub(crate) fn masked(plan: &UpgradePlan) -> Value {
    let mut plan = serde_json::to_value(plan).unwrap();
    let metadata = plan["metadata"].as_object_mut().unwrap();
    for field in ["creationTimestamp", "managedFields", "resourceVersion", "uid"] {
        metadata.remove(field);
    }
    let status = &mut plan["status"];
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = Value::Null;
    }
    if let Some(preflight) = status.get_mut("preflight") {
        preflight["at"] = Value::Null;
    }
    // Found out minutes after the end.
    if let Some(status) = status.as_object_mut() {
        status.remove("postflight");
    }
    for change in status["phaseTransitionTimestamps"].as_array_mut().into_iter().flatten() {
        change["phaseTransitionTimestamp"] = Value::Null;
    }
    for (_, node) in status["nodeUpgradeStatuses"].as_object_mut().into_iter().flatten() {
        node["startedAt"] = json!(node["startedAt"].is_string());
        node["finishedAt"] = json!(node["finishedAt"].is_string());
    }
    // Each is another one; that there is one, and that it was used, is the same.
    for field in ["certificate", "secret"] {
        if status["repository"][field].is_string() {
            status["repository"][field] = json!("there");
        }
    }
    plan
}
