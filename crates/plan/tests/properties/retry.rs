//! A plan that failed, and what comes after it.

use api::{Component, JobType, Phase, annotations, names, reasons};
use plan::{
    Action, announce,
    decide::is_settled,
    observed::{JobOutcome, ObservedJob, OtherPlan},
};
use rules::{
    Severity,
    event_object::{EventReporter, build},
};
use serde_json::json;

use crate::{
    model::Model,
    walk::{ended, until},
};

fn failed() -> JobOutcome {
    JobOutcome::Failed {
        reason: "BackoffLimitExceeded".into(),
        message: "Job has reached the specified backoff limit".into(),
    }
}

/// An upgrade whose first pre-drain Job has failed, with everything restored.
fn failed_at_pre_drain() -> Model {
    let mut model = Model::new(3);
    let job = names::node_job("up", JobType::PreDrain, "node-1");
    until(&mut model, |model| model.observed.jobs.contains_key(&job));
    model.observed.jobs.get_mut(&job).unwrap().outcome = failed();
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    model
}

fn ask(model: &mut Model, value: &str) {
    let known = model.observed.plan.metadata.annotations.get_or_insert_default();
    known.insert(annotations::RETRY.to_owned(), value.to_owned());
}

#[test]
fn a_try_that_is_requested_is_not_lost_when_its_first_write_is_the_last() {
    let mut model = failed_at_pre_drain();
    ask(&mut model, "1");
    // Between the two writes of every decision the manager dies once.
    until(&mut model, |model| {
        let mut dead = model.clone();
        dead.apply_metadata(&model.decide());
        let again = dead.decide();
        assert_eq!(
            again.status,
            model.decide().status,
            "what was decided is not decided again"
        );
        model.phase() == Some(Phase::Succeeded)
    });
}

#[test]
fn one_request_is_one_attempt() {
    let mut model = failed_at_pre_drain();
    ask(&mut model, "1");
    let job = names::node_job("up", JobType::PreDrain, "node-1");
    until(&mut model, |model| {
        model.phase() == Some(Phase::NodeUpgrading) && model.observed.jobs.contains_key(&job)
    });
    model.observed.jobs.get_mut(&job).unwrap().outcome = failed();
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    let decision = model.decide();
    model.apply(&decision);
    assert_eq!(
        model.phase(),
        Some(Phase::Failed),
        "a request that was handled is handled again"
    );
    ask(&mut model, "2");
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
}

/// The names and messages of the events of the newest phase changes.
fn reported(model: &Model) -> Vec<(String, String)> {
    let reporter = EventReporter {
        component: reasons::SOURCE_MANAGER,
        host: None,
    };
    let metadata = &model.observed.plan.metadata;
    announce::phase_events(&model.observed.plan, model.now)
        .iter()
        .map(|(at, event)| {
            (
                build(metadata, reporter, *at, event).metadata.name.unwrap(),
                event.message.clone(),
            )
        })
        .collect()
}

#[test]
fn r26_every_failure_is_reported_with_its_own_reason_and_so_is_the_same_one_again() {
    let mut model = failed_at_pre_drain();
    let why = "Upgrade failed: ";
    let first = reported(&model).pop().unwrap();
    assert!(first.1.starts_with(why) && first.1.contains("node-1"), "{first:?}");
    ask(&mut model, "1");
    until(&mut model, |model| model.phase() != Some(Phase::Failed));
    // The condition in the meantime does not have the failure.
    let events = reported(&model);
    assert_eq!(events[0], first, "the failure keeps its words and its name");
    assert_eq!(events[1].1, "Trying again from phase NodeUpgrade");
    // The same node fails again, and in the same way.
    let job = names::node_job("up", JobType::PreDrain, "node-1");
    until(&mut model, |model| {
        model.phase() == Some(Phase::NodeUpgrading) && model.observed.jobs.contains_key(&job)
    });
    let entered = reported(&model).pop().unwrap();
    assert_eq!(entered.1, "Entering phase NodeUpgrade");
    model.observed.jobs.get_mut(&job).unwrap().outcome = failed();
    until(&mut model, ended);
    let second = reported(&model).pop().unwrap();
    assert_eq!(second.1, first.1);
    assert_ne!(second.0, first.0, "the same words in another try are another event");
    let history = &model.observed.plan.status.as_ref().unwrap().phase_transition_timestamps;
    let reasons: Vec<_> = history.iter().filter_map(|change| change.message.as_deref()).collect();
    assert_eq!(reasons, [first.1.strip_prefix(why).unwrap(); 2], "both are on record");
}

#[test]
fn a_retry_waits_for_a_younger_plan_that_runs_in_the_meantime() {
    let mut model = failed_at_pre_drain();
    model.observed.other_plans = vec![OtherPlan {
        name: "younger".into(),
        uid: "z".into(),
        created: Some(model.now),
        active: true,
        saved_upgrade_strategy: None,
        begun: None,
    }];
    ask(&mut model, "1");
    for _ in 0..3 {
        let decision = model.decide();
        assert_eq!(decision.actions, []);
        model.apply(&decision);
    }
    assert_eq!(model.phase(), Some(Phase::Failed));
    let waiting = model.observed.plan.status.as_ref().unwrap().waiting_for[0].clone();
    assert_eq!(waiting.object.as_deref(), Some("UpgradePlan younger"));
    assert_eq!(
        waiting.message.as_deref(),
        Some("the retry of this plan begins when the upgrade \"younger\" has ended")
    );
    let mut patient = model.clone();
    patient.observed.other_plans[0].active = false;
    until(&mut patient, |model| model.phase() == Some(Phase::Succeeded));
    // A withdrawn request does not leave a wait.
    let known = model.observed.plan.metadata.annotations.get_or_insert_default();
    known.remove(annotations::RETRY);
    assert!(!is_settled(&model.observed.plan));
    let decision = model.decide();
    model.apply(&decision);
    assert_eq!(model.observed.plan.status.as_ref().unwrap().waiting_for, []);
    assert!(is_settled(&model.observed.plan));
}

#[test]
fn a_new_plan_finds_what_a_deleted_one_replaced_on_the_cluster() {
    let mut failed = failed_at_pre_drain();
    let mut cluster = failed.observed.cluster.take().unwrap();
    cluster.upgrade_strategy = Some(json!({"controlPlaneDrainOptions": {"preDrainHooks": [
        {"annotation": annotations::PRE_HOOK}]}}));
    let mut model = Model::new(3);
    let before = model.observed.cluster.replace(cluster);
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
    let after = model.observed.cluster.unwrap();
    assert_eq!(after.upgrade_strategy, before.unwrap().upgrade_strategy);
    assert_eq!(after.saved_upgrade_strategy, None);
}

#[test]
fn vms_that_could_not_be_started_again_are_reported() {
    let mut model = Model::new(3);
    model
        .observed
        .restore_list
        .insert("node-1".into(), "default/vm-1".into());
    let job = names::node_job("up", JobType::RestoreVm, "node-1");
    until(&mut model, |model| model.observed.jobs.contains_key(&job));
    model.observed.jobs.get_mut(&job).unwrap().outcome = failed();
    let events = model.decide().events;
    let reported = events
        .iter()
        .find(|event| event.reason == reasons::RESTORE_VM_JOB_FAILED)
        .unwrap();
    assert_eq!(reported.severity, Severity::Warning);
    assert!(
        reported.message.contains(&job) && reported.message.contains("node-1"),
        "{}",
        reported.message
    );
    // The upgrade itself continues.
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
}

#[test]
fn a_paused_node_that_is_tried_again_is_shown_as_paused_until_it_is_resumed() {
    let mut model = failed_at_pre_drain();
    let hold = |model: &mut Model, nodes: &[&str]| {
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        model.observed.plan.spec.node_upgrade_option = Some(api::NodeUpgradeOption {
            pause_nodes: Some(nodes),
        });
    };
    hold(&mut model, &["node-1"]);
    ask(&mut model, "1");
    let job = names::node_job("up", JobType::PreDrain, "node-1");
    until(&mut model, |model| {
        model.phase() == Some(Phase::NodeUpgrading) && model.observed.jobs.get(&job).is_some_and(|job| job.suspended)
    });
    let decision = model.decide();
    let waits: Vec<&str> = decision
        .status
        .waiting_for
        .iter()
        .map(|wait| wait.what.as_str())
        .collect();
    assert!(waits.contains(&"Paused"), "{:?}", decision.status.waiting_for);
    assert!(!waits.contains(&"PreDrainJob"), "{:?}", decision.status.waiting_for);
    hold(&mut model, &[]);
    let waits_for_job = |model: &Model| {
        let status = model.observed.plan.status.as_ref().unwrap();
        status.waiting_for.iter().any(|wait| wait.what == "PreDrainJob")
    };
    until(&mut model, waits_for_job);
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
}

#[test]
fn workloads_run_the_image_of_the_first_one_and_another_preload_may_run_another() {
    let image = |model: &Model| model.observed.plan.note(annotations::TOOLKIT_IMAGE).map(str::to_owned);
    let own = |tag: &str| api::image::Image::parse(&format!("rancher/toolkit:{tag}")).unwrap();
    let mut model = Model::new(3);
    model.observed.settings.own_image = own("v1");
    until(&mut model, |model| {
        let is_none = image(model).is_none();
        assert!(is_none || model.decide().finalizer);
        model.observed.suc_plans.contains_key(&Component::ImagePreload)
    });
    let v1 = Some("rancher/toolkit:v1".to_owned());
    assert_eq!(image(&model), v1);
    // Another manager, in the middle of it.
    model.observed.settings.own_image = own("v2");
    let mut early = model.clone();
    let job = names::node_job("up", JobType::PreDrain, "node-1");
    until(&mut model, |model| model.observed.jobs.contains_key(&job));
    model.observed.jobs.get_mut(&job).unwrap().outcome = failed();
    until(&mut model, ended);
    ask(&mut model, "1");
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
    assert_eq!(image(&model), v1, "nodes have it, and have begun with it");
    let preload = early
        .observed
        .jobs
        .values_mut()
        .find(|job| job.component == Component::ImagePreload);
    preload.unwrap().outcome = failed();
    until(&mut early, ended);
    assert_eq!(early.phase(), Some(Phase::Failed));
    ask(&mut early, "1");
    until(&mut early, |model| model.phase() == Some(Phase::Succeeded));
    assert_eq!(image(&early).as_deref(), Some("rancher/toolkit:v2"));
}

#[test]
fn an_upgrade_that_runs_without_a_record_of_its_image_takes_the_managers_own() {
    let mut model = Model::new(3);
    until(&mut model, |model| model.phase() == Some(Phase::ClusterUpgrading));
    let known = model.observed.plan.status.as_mut().unwrap().notes.as_mut().unwrap();
    known.remove(annotations::TOOLKIT_IMAGE);
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
    let own = model.observed.settings.own_image.to_string();
    assert_eq!(model.observed.plan.note(annotations::TOOLKIT_IMAGE), Some(own.as_str()));
}

#[test]
fn a_job_is_deleted_by_the_uid_that_was_seen_and_one_that_a_plan_left_not_at_all() {
    let mut model = Model::new(3);
    let name = names::node_job("up", JobType::PreDrain, "node-1");
    until(&mut model, |model| model.observed.jobs.contains_key(&name));
    let job = model.observed.jobs.get_mut(&name).unwrap();
    job.uid = Some("first".to_owned());
    job.outcome = failed();
    until(&mut model, ended);
    let left = ObservedJob {
        uid: Some("anybody".to_owned()),
        owner: Some("gone".to_owned()),
        namespace: names::CATTLE_NAMESPACE.to_owned(),
        component: Component::ImagePreload,
        left_over: true,
        ..ObservedJob::of(Component::NodeUpgrade)
    };
    let key = plan::observed::key(names::CATTLE_NAMESPACE, "apply-x");
    model.observed.jobs.insert(key.clone(), left);
    ask(&mut model, "1");
    let decision = model.decide();
    let wanted = Action::DeleteJob {
        namespace: names::HARVESTER_NAMESPACE.to_owned(),
        name: name.clone(),
        uid: Some("first".to_owned()),
    };
    assert_eq!(decision.actions, [wanted]);
    model.apply(&decision);
    assert_eq!(model.phase(), Some(Phase::Failed), "it waits for both to be gone");
    model.observed.jobs.remove(&key);
    until(&mut model, |model| model.phase() != Some(Phase::Failed));
}
