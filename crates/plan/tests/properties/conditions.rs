//! The three conditions of a plan and its history, as people and other controllers read them.

use api::{Component, Insight, Phase, reasons};
use jiff::SignedDuration;
use plan::{Decision, observed::JobOutcome};
use rules::Severity;

use crate::{
    model::Model,
    walk::{at, ended, run_one_step, until},
};

/// Type, status, reason and message of each condition, in the order of the list.
fn conditions(model: &Model) -> Vec<[String; 4]> {
    let status = model.observed.plan.status.clone().unwrap_or_default();
    let all = status.conditions.into_iter();
    all.map(|one| [one.type_, one.status, one.reason, one.message])
        .collect()
}

fn degraded(decision: &Decision) -> (&str, &str, &str) {
    let mut all = decision.status.conditions.iter();
    let one = all.find(|one| one.type_ == reasons::DEGRADED).unwrap();
    (&one.status, &one.reason, &one.message)
}

#[test]
fn a_fresh_plan_has_progressing_then_degraded_then_available() {
    let mut model = Model::new(3);
    let decision = model.decide();
    model.apply(&decision);
    assert_eq!(
        conditions(&model),
        [
            ["Progressing", "True", "Initializing", ""],
            ["Degraded", "False", "ReconcileSuccess", ""],
            ["Available", "True", "Executable", ""],
        ]
    );
}

#[test]
fn a_plan_that_succeeded_ends_with_the_conditions_that_the_readme_shows() {
    let mut model = Model::new(3);
    until(&mut model, ended);
    assert_eq!(
        conditions(&model),
        [
            ["Progressing", "False", "Succeeded", "UpgradePlan has completed"],
            ["Degraded", "False", "ReconcileSuccess", ""],
            ["Available", "False", "Executed", "Entered one of the terminal phases"],
        ]
    );
}

#[test]
fn u03_a_plan_that_failed_is_degraded_and_keeps_why_until_everything_is_restored_and_after() {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model.phase() == Some(Phase::ISODownloading) && model.observed.iso_image.is_some()
    });
    model.observed.iso_image.as_mut().unwrap().imported = Some(false);
    run_one_step(&mut model);
    let why = ["Progressing", "True", "Failed", "ISO image download failed"];
    assert_eq!(conditions(&model)[0], why);
    let degraded = ["Degraded", "True", "UpgradeFailed", "ISO image download failed"];
    assert_eq!(
        conditions(&model)[1],
        degraded,
        "a failure must not look like a success"
    );
    assert_eq!(conditions(&model)[2], ["Available", "True", "Executable", ""]);
    until(&mut model, ended);
    let why = ["Progressing", "False", "Failed", "ISO image download failed"];
    assert_eq!(conditions(&model)[0], why);
    assert_eq!(conditions(&model)[1], degraded);
    assert_eq!(
        conditions(&model)[2],
        ["Available", "False", "Executed", "Entered one of the terminal phases"]
    );
}

#[test]
fn an_error_makes_the_plan_degraded_and_is_reported_once_until_another_one_comes_or_it_is_over() {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model.phase() == Some(Phase::ISODownloading) && model.observed.iso_image.is_some()
    });
    let reported = |decision: &Decision| {
        let warnings = decision
            .events
            .iter()
            .filter(|event| event.severity == Severity::Warning);
        warnings
            .map(|event| format!("{}: {}", event.reason, event.message))
            .collect::<Vec<_>>()
    };
    let (first, second) = ("failed to create Job a/b: quota", "failed to patch Node n: busy");
    model.observed.trouble = Some(first.into());
    let decision = model.decide();
    assert_eq!(degraded(&decision), ("True", "ReconcileError", first));
    assert_eq!(
        reported(&decision),
        [format!("ReconcileError: Pipeline error: {first}")]
    );
    model.apply(&decision);
    // The same again: neither an event nor a write.
    model.now += SignedDuration::from_secs(30);
    let again = model.decide();
    assert_eq!(reported(&again), [""; 0]);
    assert_eq!(again.status, decision.status);
    model.apply(&again);
    model.observed.trouble = Some(second.into());
    let other = model.decide();
    assert_eq!(reported(&other), [format!("ReconcileError: Pipeline error: {second}")]);
    model.apply(&other);
    model.observed.trouble = None;
    let over = model.decide();
    assert_eq!(degraded(&over), ("False", "ReconcileSuccess", ""));
    assert_eq!(reported(&over), [""; 0]);
    model.apply(&over);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Succeeded));
}

#[test]
fn a_known_situation_explains_a_wait_past_its_deadline_and_is_reported_once() {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model.phase() == Some(Phase::ISODownloading) && model.observed.iso_image.is_some()
    });
    let before = model.decide();
    model.apply(&before);
    let insight = Insight {
        id: "D31".into(),
        severity: "error".into(),
        object: Some("Pod harvester-system/importer-up-iso".into()),
        message: "the importer was killed for its memory".into(),
        remedy: "Raise its limit.".into(),
    };
    // Before the deadline it is not shown.
    model.observed.insights = vec![insight.clone()];
    assert_eq!(model.decide().status.insights, []);
    model.now = before.wake_at.unwrap();
    model.observed.insights.clear();
    let stalled = model.decide();
    model.apply(&stalled);
    let reasons_of = |decision: &Decision| {
        let events = decision.events.iter();
        events
            .map(|event| (event.reason.to_string(), event.message.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(reasons_of(&stalled).len(), 1, "{:?}", reasons_of(&stalled));
    model.observed.insights = vec![insight.clone()];
    let explained = model.decide();
    assert_eq!(
        reasons_of(&explained),
        [(
            "Insight".to_owned(),
            "D31: the importer was killed for its memory. Raise its limit.".to_owned()
        )]
    );
    assert!(
        degraded(&explained)
            .2
            .ends_with("; explained by D31: the importer was killed for its memory"),
        "{}",
        degraded(&explained).2
    );
    assert_eq!(explained.status.insights, [insight]);
    model.apply(&explained);
    // The same again: neither an event nor a write.
    let again = model.decide();
    assert_eq!(reasons_of(&again), []);
    assert_eq!(again.status, explained.status);
    // It is over: neither stays.
    model.observed.insights.clear();
    model.observed.iso_image.as_mut().unwrap().imported = Some(true);
    let over = model.decide();
    assert_eq!(over.status.insights, []);
}

#[test]
fn the_history_has_every_phase_once_in_order() {
    let mut model = Model::new(3);
    until(&mut model, ended);
    let history = model.observed.plan.status.clone().unwrap().phase_transition_timestamps;
    let phases: Vec<&str> = history.iter().map(|change| change.phase.as_str()).collect();
    let all: Vec<&str> = Phase::ALL.iter().map(|phase| phase.as_str()).take(17).collect();
    assert_eq!(phases, all);
    assert_eq!(phases.last(), Some(&"Succeeded"));
    let moments = history.iter().map(|change| change.phase_transition_timestamp.0);
    assert!(moments.is_sorted(), "{history:?}");
}

#[test]
fn the_finalizer_is_there_from_the_first_decision_and_gone_with_the_last() {
    let mut model = Model::new(3);
    assert!(model.decide().finalizer);
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
    until(&mut model, ended);
    assert_eq!(model.observed.plan.metadata.finalizers, None);
}

#[test]
fn a_failed_job_that_skips_manifests_fails_the_plan_before_any_node_is_touched() {
    let mut model = Model::new(3);
    let of_apply = |model: &Model| {
        let mut jobs = model.observed.jobs.values();
        jobs.any(|job| job.component == Component::SkipManifestsApply)
    };
    until(&mut model, of_apply);
    let job = model
        .observed
        .jobs
        .values_mut()
        .find(|job| job.component == Component::SkipManifestsApply);
    job.unwrap().outcome = JobOutcome::Failed {
        reason: "BackoffLimitExceeded".into(),
        message: String::new(),
    };
    run_one_step(&mut model);
    assert_eq!(model.phase(), Some(Phase::Failed));
    assert_eq!(
        conditions(&model)[0][3],
        "skip-manifest apply plan job(s) failed: node-1: BackoffLimitExceeded"
    );
    let status = model.observed.plan.status.clone().unwrap();
    assert_eq!(status.provision_generation, None, "Rancher was not reported");
    let history = status.phase_transition_timestamps;
    let last: Vec<&str> = history
        .iter()
        .rev()
        .take(2)
        .map(|change| change.phase.as_str())
        .collect();
    assert_eq!(last, ["Failed", "ClusterUpgraded"]);
    until(&mut model, ended);
    assert!(at(Phase::Failed)(&model));
}

#[test]
fn what_is_still_to_be_restored_is_named_with_its_deadline() {
    let mut model = Model::new(3);
    until(&mut model, at(Phase::CleanedUp));
    let decision = model.decide();
    let waits = &decision.status.waiting_for;
    let wait = waits.iter().find(|wait| wait.what == "PutBack").unwrap();
    let message = wait.message.as_deref().unwrap();
    let begin = "being restored or removed: Setting longhorn-system/replica-replenishment-wait-interval, ";
    assert!(message.starts_with(begin), "{message}");
    let limit = wait.deadline.as_ref().unwrap().0.duration_since(wait.since.0);
    assert_eq!(limit, SignedDuration::from_mins(5));
}
