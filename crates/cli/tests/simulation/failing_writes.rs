//! What cannot be written: events never hold an upgrade up, and one plan never another.

use std::{sync::Arc, time::Duration};

use api::{Phase, UpgradePlan};
use apiserver::{Fault, FaultPlan};
use cli::rehearsal::{Rehearsal, Scenario, beginning, manager_user};
use clock::Clock;
use kube::ResourceExt;

use crate::{
    run::{Case, in_paused_time, run},
    timeline::{holds, versions},
    watched::Watched,
};

/// The manager may not create events: a quota, a policy, a role.
fn refuses_events(rehearsal: &Rehearsal) {
    rehearsal.server.set_faults(FaultPlan::writes(|write| {
        if write.who.user == manager_user() && write.resource.plural == "events" {
            Fault::Reject(403)
        } else {
            Fault::None
        }
    }));
}

/// The same for the first ten minutes.
fn refuses_events_at_first(rehearsal: &Rehearsal) {
    refuses_events(rehearsal);
    let (server, clock) = (rehearsal.server.clone(), rehearsal.clock.clone());
    tokio::spawn(async move {
        clock.sleep(Duration::from_mins(10)).await;
        server.set_faults(FaultPlan::default());
    });
}

#[test]
fn r27_events_that_cannot_be_created_block_nothing_and_show_in_degraded() {
    let ended = run(&Case {
        arranged: Some(refuses_events),
        ..Case::three_nodes()
    });
    assert_eq!(ended.plan.as_ref().unwrap().phase(), Some(Phase::Succeeded));
    let versions = versions(&ended.store, "upgradeplans");
    let said: Vec<&str> = versions
        .iter()
        .filter_map(|(_, plan)| holds(plan, "Degraded"))
        .collect();
    let first = said.first().expect("the trouble shows");
    assert!(
        first.starts_with("failed to create Events in namespace default: ")
            && first.ends_with("; the upgrade continues without them"),
        "{first}"
    );
    assert!(
        said.iter().all(|one| one == first),
        "the same trouble has the same words"
    );
}

#[test]
fn r27_events_are_reported_once_they_can_be() {
    let expected = run(&Case::three_nodes());
    let ended = run(&Case {
        arranged: Some(refuses_events_at_first),
        ..Case::three_nodes()
    });
    let degraded = ended.plan.as_ref().unwrap().condition("Degraded").unwrap();
    assert_eq!(degraded.status, "False", "{}", degraded.message);
    let history = |digest: &serde_json::Value| {
        let events: Vec<String> = serde_json::from_value(digest["events"].clone()).unwrap();
        let without = |event: &String| !event.contains("Pipeline error");
        events.into_iter().filter(without).collect::<Vec<_>>()
    };
    assert_eq!(history(&ended.digest), history(&expected.digest));
}

#[test]
fn r28_a_plan_that_cannot_be_written_blocks_no_other() {
    in_paused_time(async {
        let scenario = Scenario {
            definitions: crate::run::definitions(),
            ..Scenario::default()
        };
        let clock = Clock::simulated(beginning(), 1.0);
        let rehearsal = Watched::start(scenario, clock).await;
        let broken = rehearsal.create_unchecked(rehearsal.plan(true, &[])).await.unwrap();
        rehearsal.clock.sleep(Duration::from_secs(5)).await;
        let other = rehearsal.create_unchecked(rehearsal.plan(true, &[])).await.unwrap();
        let name = broken.name_any();
        rehearsal.server.set_faults(FaultPlan::writes(move |write| {
            if write.who.user == manager_user() && write.resource.plural == "upgradeplans" && write.name == name {
                Fault::Reject(500)
            } else {
                Fault::None
            }
        }));
        let _manager = rehearsal.start_manager("manager-1");
        let waits = |plan: &UpgradePlan| {
            let status = plan.status.as_ref();
            status.is_some_and(|status| status.waiting_for.iter().any(|wait| wait.what == "OlderUpgrade"))
        };
        let limit = Some(Duration::from_mins(5));
        let seen = rehearsal.follow(&other.name_any(), limit, waits).await;
        let seen = seen.expect("the younger plan is looked at");
        // And what is wrong with the older one is not shown on it.
        rehearsal.clock.sleep(Duration::from_mins(5)).await;
        let now = rehearsal.read(&seen.name_any()).await.unwrap();
        let degraded = now.condition("Degraded").unwrap();
        assert_eq!(degraded.status, "False", "{}", degraded.message);
    });
}

/// The API server takes events and never answers.
fn never_answers_events(rehearsal: &Rehearsal) {
    let never = Arc::new(tokio::sync::Notify::new());
    rehearsal.server.set_faults(FaultPlan::writes(move |write| {
        if write.who.user == manager_user() && write.resource.plural == "events" {
            Fault::CrashAfter(never.clone())
        } else {
            Fault::None
        }
    }));
}

#[test]
fn events_that_are_never_answered_block_nothing() {
    let ended = run(&Case {
        arranged: Some(never_answers_events),
        ..Case::three_nodes()
    });
    assert_eq!(ended.plan.as_ref().unwrap().phase(), Some(Phase::Succeeded));
}

#[test]
fn what_cannot_be_restored_keeps_nothing_else_from_it() {
    in_paused_time(async {
        let scenario = Scenario {
            definitions: crate::run::definitions(),
            ..Scenario::default()
        };
        let rehearsal = Watched::start(scenario, Clock::simulated(beginning(), 1.0)).await;
        rehearsal.take_admission_away().await.unwrap();
        let _manager = rehearsal.start_only_manager();
        let plan = rehearsal.create_unchecked(rehearsal.plan(true, &[])).await.unwrap();
        let name = plan.name_any();
        let upgrading = |plan: &UpgradePlan| plan.phase() >= Some(Phase::NodeUpgrading);
        rehearsal.follow(&name, None, upgrading).await.unwrap();
        let is_enabled = || {
            let addon = rehearsal
                .server
                .store()
                .get("harvesterhci.io", "addons", "kube-system", "descheduler");
            addon.unwrap()["spec"]["enabled"] == true
        };
        assert!(!is_enabled());
        // It comes before the addon, and is refused for ever.
        rehearsal.server.set_faults(FaultPlan::writes(move |write| {
            let is_setting = write.resource.plural == "settings" && write.resource.group == "longhorn.io";
            if write.who.user == manager_user() && is_setting {
                Fault::Reject(500)
            } else {
                Fault::None
            }
        }));
        let plans: kube::Api<UpgradePlan> = kube::Api::all(rehearsal.server.client());
        plans.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
        rehearsal.clock.sleep(Duration::from_mins(10)).await;
        assert!(is_enabled(), "one that fails keeps the others");
        let plan = rehearsal
            .read(&name)
            .await
            .expect("a change that is not restored keeps the plan");
        let degraded = plan.condition("Degraded").unwrap();
        assert!(
            degraded.message.contains("replica-replenishment"),
            "{}",
            degraded.message
        );
    });
}
