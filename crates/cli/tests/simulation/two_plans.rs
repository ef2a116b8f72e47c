//! Two plans at once: the older runs, the younger waits, reports it, and continues automatically.

use std::time::Duration;

use rstest::rstest;
use serde_json::Value;

use crate::{
    run::{Case, run},
    timeline::{entered, versions},
    user::User,
};

/// Which of two plans comes first.
fn age(plan: &Value) -> (String, String) {
    let text = |field: &str| plan["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("creationTimestamp"), text("uid"))
}

#[rstest]
#[case::at_once(0)]
#[case::five_seconds_later(5)]
fn w01_of_two_plans_the_older_runs_and_the_younger_starts_by_itself_afterwards(#[case] seconds: u64) {
    let ended = run(&Case {
        user: vec![User::CreatesAnother(Duration::from_secs(seconds))],
        ..Case::three_nodes()
    });
    assert_eq!(ended.violations, [""; 0]);
    let mut plans = ended.store.list("management.harvesterhci.io", "upgradeplans", None);
    plans.sort_by_key(|plan| age(plan));
    let [older, younger] = plans.as_slice() else {
        panic!("{} plans", plans.len())
    };
    for plan in [older, younger] {
        assert_eq!(plan["status"]["currentPhase"], "Succeeded", "{plan:#}");
    }
    let over = entered(older, "Succeeded").unwrap();
    assert!(over <= entered(younger, "ISODownloading").unwrap(), "they overlap");
    // What the younger one looked like meanwhile.
    let of_younger = |version: &Value| version["metadata"]["uid"] == younger["metadata"]["uid"];
    let waiting: Vec<_> = versions(&ended.store, "upgradeplans")
        .into_iter()
        .filter(|(at, version)| *at < over && of_younger(version) && version["status"].is_object())
        .collect();
    assert!(!waiting.is_empty(), "it never said that it waits");
    for (at, version) in &waiting {
        // Never empty: other controllers read that as an upgrade of unknown state.
        assert_eq!(version["status"]["currentPhase"], "Initializing", "at {at}");
    }
    let (_, last) = waiting.last().unwrap();
    let name = older["metadata"]["name"].as_str().unwrap();
    let message = format!("another upgrade {name:?} is in progress");
    let wait = &last["status"]["waitingFor"][0];
    assert_eq!(wait["what"], "OlderUpgrade");
    assert_eq!(wait["object"], format!("UpgradePlan {name}"));
    assert_eq!(wait["message"], message);
    let conditions = last["status"]["conditions"].as_array().unwrap();
    let available = conditions.iter().find(|one| one["type"] == "Available").unwrap();
    assert_eq!(
        (&available["status"], &available["reason"], &available["message"]),
        (&"False".into(), &"ConcurrentUpgradeBlocked".into(), &message.into())
    );
    let events: Vec<String> = serde_json::from_value(ended.digest["events"].clone()).unwrap();
    let history = events
        .iter()
        .filter(|event| event.contains("Blocked by in-progress upgrade"));
    assert_eq!(history.count(), 1, "it is said once");
}
