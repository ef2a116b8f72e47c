//! A pod dies after a write, whichever: the next one brings the cluster to the same end.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use apiserver::{Fault, FaultPlan};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Notify;

use super::harness::{Harness, PROGRAM};

/// The cluster as it is, without what differs from run to run: times, versions, who wrote what.
async fn picture(harness: &Harness) -> BTreeMap<String, Value> {
    // The last that was written has its consequences too.
    harness.clock.sleep(Duration::from_secs(30)).await;
    let store = harness.server.store();
    let mut picture = BTreeMap::new();
    for resource in store.resources() {
        for object in store.list(&resource.group, &resource.plural, None) {
            let mut object = object.as_ref().clone();
            let metadata = &object["metadata"];
            let name = format!("{resource} {}/{}", metadata["namespace"], metadata["name"]);
            if object["type"] == "helm.sh/release.v1" {
                // Compressed, with times inside; their number and status remain.
                object["data"] = Value::Null;
            }
            timeless(&mut object);
            picture.insert(name, object);
        }
    }
    picture
}

fn timeless(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for key in [
                "resourceVersion",
                "uid",
                "managedFields",
                "generation",
                "observedGeneration",
                "seen",
            ] {
                map.remove(key);
            }
            map.remove(api::annotations::CHART_OBSERVED_BEFORE);
            map.values_mut().for_each(timeless);
        }
        Value::Array(items) => items.iter_mut().for_each(timeless),
        Value::String(text) if text.parse::<Timestamp>().is_ok() => *text = "<time>".to_owned(),
        _ => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_leads_to_the_same_end() {
    let clean = Harness::new().await;
    let counted = Arc::new(AtomicU64::new(0));
    let counter = counted.clone();
    clean.server.set_faults(FaultPlan::writes(move |write| {
        if write.who.user == PROGRAM {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        Fault::None
    }));
    clean.attempt().await.unwrap();
    let writes = counted.load(Ordering::Relaxed);
    assert!(writes > 30, "{writes}");
    let end = picture(&clean).await;

    for number in 1..=writes {
        let harness = Harness::new().await;
        let crash = Arc::new(Notify::new());
        harness.server.set_faults(FaultPlan::at_write_of(
            PROGRAM,
            number,
            Fault::CrashAfter(crash.clone()),
        ));
        tokio::select! {
            biased;
            () = crash.notified() => {}
            done = harness.attempt() => panic!("write {number} was never made: {done:?}"),
        }
        let written = harness
            .server
            .store()
            .history()
            .iter()
            .rev()
            .find(|write| write.user == PROGRAM)
            .cloned();
        let written = written.map(|write| format!("{} {} {}", write.verb.name(), write.resource, write.name));
        harness.server.set_faults(FaultPlan::none());
        harness
            .attempt()
            .await
            .unwrap_or_else(|error| panic!("after write {number} ({written:?}): {error}"));
        let found = picture(&harness).await;
        for name in end.keys().chain(found.keys()) {
            assert_eq!(
                found.get(name),
                end.get(name),
                "{name}, after write {number} ({written:?})"
            );
        }
        let upgrades = harness
            .calls()
            .iter()
            .filter(|call| call.starts_with("upgrade "))
            .count();
        assert_eq!(upgrades, 1, "after write {number} ({written:?})");
    }
}

#[tokio::test(start_paused = true)]
async fn f18_an_api_server_that_refuses_for_a_while_stops_nothing() {
    let harness = Harness::new().await;
    // Every third write fails in some way that says nothing about it.
    harness.server.set_faults(FaultPlan::writes(|write| {
        match (write.who.user.as_str(), write.of_user % 6) {
            (PROGRAM, 0) => Fault::Reject(503),
            (PROGRAM, 3) => Fault::LoseReply,
            _ => Fault::None,
        }
    }));
    harness.attempt().await.unwrap();
    let chart = harness.get("management.cattle.io", "managedcharts", "fleet-local", "harvester");
    assert_eq!(chart["spec"]["timeoutSeconds"], 601);
    let fleet = harness.get("fleet.cattle.io", "clusters", "fleet-local", "local");
    assert_eq!(fleet["spec"]["redeployAgentGeneration"], 3);
}
