//! Harvester's charts: KubeVirt's methods by their values, and whether Fleet applies them.

use api::{Phase, annotations, names};
use plan::{
    Action,
    observed::{JobOutcome, ObservedChart},
};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    model::Model,
    walk::{at, ended, until},
};

fn harvester(model: &mut Model) -> &mut ObservedChart {
    model.observed.charts.get_mut(names::HARVESTER_CHART).unwrap()
}

fn note<'a>(model: &'a Model, key: &str) -> Option<&'a str> {
    model.observed.plan.note(key)
}

fn fail_cluster_job(model: &mut Model) {
    until(model, |model| {
        model.observed.jobs.contains_key(&names::cluster_job("up"))
    });
    let job = model.observed.jobs.get_mut(&names::cluster_job("up")).unwrap();
    job.outcome = JobOutcome::Failed {
        reason: "BackoffLimitExceeded".into(),
        message: String::new(),
    };
}

#[rstest]
#[case(Value::Null)]
#[case(json!(["LiveMigrate"]))]
#[case(json!(["Evict"]))]
#[case(json!([]))]
fn r02_kubevirts_methods_are_a_value_of_the_chart_and_are_restored_as_they_were(#[case] before: Value) {
    for fails in [false, true] {
        let mut model = Model::new(3);
        harvester(&mut model).methods = before.clone();
        until(&mut model, |model| {
            model.observed.jobs.contains_key(&names::cluster_job("up"))
        });
        assert_eq!(harvester(&mut model).methods, json!([]));
        if fails {
            fail_cluster_job(&mut model);
        }
        until(&mut model, ended);
        assert_eq!(harvester(&mut model).methods, before);
        let record = note(&model, annotations::SAVED_CHART_METHODS);
        assert_eq!(record.is_some(), !fails, "another try finds what is there then");
    }
}

#[test]
fn r02_the_job_begins_when_fleet_has_applied_the_chart_and_kubevirt_follows() {
    let mut model = Model::new(3);
    until(&mut model, at(Phase::ImagePreloaded));
    // Until the change is made.
    while harvester(&mut model).methods != json!([]) {
        let decision = model.decide();
        model.apply(&decision);
    }
    let waits = |model: &Model| {
        let decision = model.decide();
        assert_eq!(decision.actions, [], "{:?}", decision.actions);
        assert_eq!(decision.status.current_phase.as_deref(), Some("ImagePreloaded"));
        let wait = decision.status.waiting_for.first().cloned().unwrap();
        assert_eq!(wait.object.as_deref(), Some("ManagedChart fleet-local/harvester"));
        wait.message.unwrap()
    };
    let after = harvester(&mut model).observed_generation;
    harvester(&mut model).observed_generation = after - 1;
    assert!(waits(&model).contains("Fleet has not seen the change"));
    harvester(&mut model).observed_generation = after;
    let conflict =
        "ErrApplied(1) [Cluster fleet-local/local: Apply failed with 1 conflict: conflict with \"somebody\"]";
    harvester(&mut model).lacks = Some(conflict.into());
    assert!(waits(&model).contains(conflict));
    harvester(&mut model).lacks = None;
    model.observed.workload_update_methods = Some(vec!["LiveMigrate".into()]);
    assert!(waits(&model).contains("does not follow"));
    model.observed.workload_update_methods = Some(vec![]);
    until(&mut model, at(Phase::ClusterUpgrading));
}

#[test]
fn r02_a_paused_chart_is_applied_so_that_kubevirt_follows() {
    let mut model = Model::new(3);
    harvester(&mut model).paused = true;
    until(&mut model, at(Phase::ClusterUpgrading));
    assert!(!harvester(&mut model).paused);
    // One that a user pauses after the change was made would never be applied either.
    let mut model = Model::new(3);
    until(&mut model, |model| {
        let chart = model.observed.charts.get(names::HARVESTER_CHART);
        chart.is_some_and(|chart| chart.methods == json!([]))
    });
    harvester(&mut model).paused = true;
    until(&mut model, at(Phase::ClusterUpgrading));
    assert!(!harvester(&mut model).paused);
}

#[test]
fn r02_what_an_older_version_changed_on_the_kubevirt_object_is_restored() {
    let mut model = Model::new(3);
    until(&mut model, at(Phase::ClusterUpgrading));
    let record = json!({"methods": ["LiveMigrate"], "ignored": false}).to_string();
    let annotations = model.observed.plan.metadata.annotations.get_or_insert_default();
    annotations.insert(annotations::SAVED_WORKLOAD_UPDATE_METHODS.into(), record);
    // Older versions had their notes there.
    model.observed.plan.status.as_mut().unwrap().notes = None;
    *harvester(&mut model) = ObservedChart {
        ignores_methods: true,
        ..ObservedChart::default()
    };
    model.observed.workload_update_methods = Some(vec![]);
    fail_cluster_job(&mut model);
    until(&mut model, ended);
    assert_eq!(model.observed.workload_update_methods, Some(vec!["LiveMigrate".into()]));
    assert!(!harvester(&mut model).ignores_methods);
    assert_eq!(note(&model, annotations::SAVED_WORKLOAD_UPDATE_METHODS), None);
}

/// A plan whose Job has paused two charts; a third was paused by an administrator, and one by a plan that is gone.
fn paused() -> Model {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model.observed.jobs.contains_key(&names::cluster_job("up"))
    });
    let by = [Some("uid"), Some("uid"), None, Some("another uid")];
    for (chart, by) in model.observed.charts.values_mut().zip(by) {
        chart.paused = true;
        chart.paused_by = by.map(str::to_owned);
    }
    model
}

fn pauses(model: &Model) -> Vec<bool> {
    model.observed.charts.values().map(|chart| chart.paused).collect()
}

#[test]
fn r14_charts_that_the_plan_paused_continue_after_a_failure_and_others_stay() {
    let mut model = paused();
    fail_cluster_job(&mut model);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    assert_eq!(pauses(&model), [false, false, true, true]);
}

#[test]
fn r14_charts_continue_when_the_plan_is_deleted_and_its_job_is_gone() {
    let mut model = paused();
    model.observed.plan.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(model.now));
    let decision = model.decide();
    let early = |action: &&Action| matches!(action, Action::ResumeChart { .. } | Action::SetChartMethods { .. });
    assert_eq!(decision.actions.iter().find(early), None, "the Job is still at it");
    model.apply(&decision);
    assert!(decision.finalizer);
    while model.decide().finalizer {
        let decision = model.decide();
        assert_ne!(decision.actions, []);
        model.apply(&decision);
    }
    assert_eq!(pauses(&model), [false, false, true, true]);
    assert_eq!(harvester(&mut model).methods, Value::Null);
}

#[test]
fn a_chart_that_a_user_had_paused_is_applied_for_the_upgrade_and_paused_again_after_it() {
    for fails in [false, true] {
        let mut model = Model::new(3);
        let others = names::MANAGED_CHARTS
            .iter()
            .find(|name| **name != names::HARVESTER_CHART);
        let other = *others.unwrap();
        for name in [names::HARVESTER_CHART, other] {
            model.observed.charts.get_mut(name).unwrap().paused = true;
        }
        until(&mut model, |model| {
            model.observed.jobs.contains_key(&names::cluster_job("up"))
        });
        assert!(!harvester(&mut model).paused, "KubeVirt must follow");
        // The Job brings every chart to its version, paused or not.
        model.observed.charts.get_mut(other).unwrap().paused = fails;
        if fails {
            fail_cluster_job(&mut model);
        }
        until(&mut model, ended);
        for (name, chart) in &model.observed.charts {
            let expected = [names::HARVESTER_CHART, other].contains(&name.as_str());
            assert_eq!(chart.paused, expected, "{name}, fails: {fails}");
        }
        assert_eq!(harvester(&mut model).methods, Value::Null);
    }
}

#[test]
fn what_a_plan_that_was_removed_by_force_changed_is_on_the_chart_and_restored_by_the_next_one() {
    let mut gone = Model::new(3);
    harvester(&mut gone).methods = json!(["Evict"]);
    harvester(&mut gone).paused = true;
    until(&mut gone, |model| {
        model.observed.jobs.contains_key(&names::cluster_job("up"))
    });
    let mut next = Model::new(3);
    next.observed.charts = gone.observed.charts.clone();
    next.observed.workload_update_methods = gone.observed.workload_update_methods.clone();
    assert!(harvester(&mut next).record.as_ref().unwrap().contains("Evict"));
    until(&mut next, ended);
    assert_eq!(next.phase(), Some(Phase::Succeeded));
    let chart = harvester(&mut next).clone();
    assert_eq!(
        (chart.methods, chart.paused, chart.record),
        (json!(["Evict"]), true, None)
    );
}

#[test]
fn a_plan_has_not_ended_before_fleet_has_applied_what_was_restored_or_has_had_its_time() {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model.observed.jobs.contains_key(&names::cluster_job("up"))
    });
    fail_cluster_job(&mut model);
    until(&mut model, |model| {
        let chart = &model.observed.charts[names::HARVESTER_CHART];
        model.phase() == Some(Phase::Failed) && chart.methods == Value::Null
    });
    let applied = harvester(&mut model).observed_generation;
    harvester(&mut model).observed_generation = applied - 1;
    for _ in 0..20 {
        let decision = model.decide();
        model.apply(&decision);
    }
    assert!(model.observed.plan.metadata.finalizers.is_some());
    let waits = model.observed.plan.status.as_ref().unwrap().waiting_for.clone();
    assert_eq!(waits.len(), 1, "{waits:?}");
    assert_eq!(waits[0].what, "ManagedChart");
    assert!(
        waits[0]
            .message
            .as_ref()
            .unwrap()
            .contains("Fleet has not seen the change yet")
    );
    let mut late = model.clone();
    harvester(&mut model).observed_generation = applied;
    harvester(&mut model).lacks = Some("WaitApplied".to_owned());
    assert!(model.decide().finalizer, "seen and not applied");
    harvester(&mut model).lacks = None;
    until(&mut model, ended);
    late.now = waits[0].deadline.as_ref().unwrap().0;
    until(&mut late, ended);
}
