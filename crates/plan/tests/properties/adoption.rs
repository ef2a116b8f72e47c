//! Plans that another manager has looked at before ours.

use api::{Phase, annotations, reasons};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use plan::decide::is_active;

use crate::{
    model::Model,
    walk::{ended, until},
};

/// A plan as the existing toolkit leaves one that it does not start: conditions, and no phase.
fn left() -> Model {
    let mut model = Model::new(3);
    let message = "another upgrade \"older\" is in progress";
    let condition = |type_: &str, status: &str, reason: &str| Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(model.now),
        observed_generation: Some(1),
    };
    let conditions = vec![
        condition(reasons::AVAILABLE, "False", reasons::CONCURRENT_UPGRADE_BLOCKED),
        condition(reasons::PROGRESSING, "True", "Initializing"),
    ];
    let status = model.observed.plan.status.get_or_insert_default();
    status.conditions = conditions;
    status.current_phase = Some(String::new());
    model
}

fn condition(model: &Model, type_: &str) -> (String, String) {
    let found = model.observed.plan.condition(type_).unwrap();
    (found.status.clone(), found.reason.clone())
}

#[test]
fn r12_a_plan_that_another_manager_left_is_not_started_and_says_how_it_can_be() {
    let mut model = left();
    for _ in 0..3 {
        let decision = model.decide();
        assert_eq!(decision.actions, []);
        assert!(!decision.finalizer && decision.annotations.is_empty() && decision.needs.is_empty());
        model.apply(&decision);
    }
    assert_eq!(model.phase(), None);
    let before = model.observed.plan.status.clone().unwrap();
    assert_eq!(model.decide().status, before, "said once, it is not written again");
    let wait = &before.waiting_for[0];
    assert_eq!(
        (wait.what.as_str(), wait.object.as_deref()),
        ("StartRequest", Some("UpgradePlan up"))
    );
    assert!(wait.message.as_ref().unwrap().contains(annotations::RETRY), "{wait:?}");
    assert_eq!(wait.deadline, None);
    let not_started = ("False".to_owned(), reasons::NOT_STARTED.to_owned());
    assert_eq!(condition(&model, reasons::AVAILABLE), not_started);
    assert_eq!(
        condition(&model, reasons::PROGRESSING),
        not_started,
        "it keeps no other plan from being created"
    );
    assert!(!is_active(&model.observed.plan), "and from running");
}

#[test]
fn r12_a_plan_that_was_left_starts_on_request() {
    let mut model = left();
    let decision = model.decide();
    model.apply(&decision);
    let known = model.observed.plan.metadata.annotations.get_or_insert_default();
    known.insert(annotations::RETRY.to_owned(), "1".to_owned());
    assert!(is_active(&model.observed.plan));
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Succeeded));
    assert_eq!(model.observed.plan.note(annotations::RETRIED), Some("1"));
}

#[test]
fn r12_a_plan_that_no_manager_has_processed_is_started_and_so_is_one_that_was_begun() {
    let mut new = Model::new(3);
    new.observed.plan.status = Some(api::UpgradePlanStatus::default());
    let mut begun = left();
    begun.observed.plan.status.get_or_insert_default().current_phase = Some("Initializing".to_owned());
    for mut model in [new, begun] {
        until(&mut model, ended);
        assert_eq!(model.phase(), Some(Phase::Succeeded));
    }
}
