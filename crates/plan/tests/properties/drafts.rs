//! How a draft becomes a decision: conditions, waits, warnings, and when to look again.

use std::time::Duration;

use api::{RepositoryAccess, UpgradePlanStatus, Wait, WaitingFor, reasons};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use plan::{Decision, Need, draft::Draft, observed::Fetched};
use rstest::rstest;

use crate::model::Model;

const EXECUTABLE: (bool, &str, &str) = (true, reasons::EXECUTABLE, "");

fn finish(draft: Draft<'_>) -> Decision {
    draft.finish(EXECUTABLE, true, None)
}

fn degraded(status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        type_: reasons::DEGRADED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: Some(1),
    }
}

/// A model whose status has these conditions and waits.
fn model(conditions: Vec<Condition>, waiting_for: Vec<WaitingFor>) -> Model {
    let mut model = Model::new(1);
    model.observed.plan.status = Some(UpgradePlanStatus {
        current_phase: Some("NodeUpgrading".to_owned()),
        conditions,
        waiting_for,
        ..UpgradePlanStatus::default()
    });
    model
}

fn wait(model: &Model, what: Wait, age: i64) -> WaitingFor {
    WaitingFor {
        what: what.to_string(),
        object: Some("o".to_owned()),
        message: Some("before".to_owned()),
        since: Time(model.now - SignedDuration::from_secs(age)),
        deadline: None,
    }
}

fn condition<'a>(decision: &'a Decision, type_: &str) -> &'a Condition {
    decision.status.conditions.iter().find(|c| c.type_ == type_).unwrap()
}

#[test]
fn all_waits_stand_in_one_line_of_progressing() {
    let model = model(Vec::new(), Vec::new());
    let mut draft = Draft::new(model.now, &model.observed);
    draft.wait(Wait::Reboot, None, "it reboots");
    draft.wait(Wait::Pod, None, "a pod cannot start");
    let decision = finish(draft);
    let progressing = condition(&decision, reasons::PROGRESSING);
    assert_eq!(progressing.message, "it reboots; a pod cannot start");
    assert_eq!(
        (progressing.status.as_str(), progressing.reason.as_str()),
        ("True", "NodeUpgrading")
    );
    assert_eq!(decision.status.waiting_for.len(), 2);
    assert_eq!(
        decision.wake_at,
        Some(model.now + SignedDuration::from_mins(5)),
        "the earliest deadline"
    );
}

#[rstest]
#[case(59, false)]
#[case(60, true)]
#[case(61, true)]
fn a_wait_is_overdue_from_its_deadline_on_and_no_reason_to_wake_then(#[case] age: i64, #[case] overdue: bool) {
    let mut model = model(Vec::new(), Vec::new());
    let known = wait(&model, Wait::Reboot, age);
    model.observed.plan.status.as_mut().unwrap().waiting_for = vec![known];
    let mut draft = Draft::new(model.now, &model.observed);
    assert_eq!(
        draft.is_overdue_after(Wait::Reboot, "o", Duration::from_secs(60)),
        overdue
    );
    assert!(!draft.is_overdue_after(Wait::Reboot, "other", Duration::from_secs(60)));
    let noted = draft.wait_within(Wait::Reboot, Some("o".to_owned()), "now", Duration::from_secs(60));
    assert_eq!(noted.is_overdue(), overdue);
    assert!(draft.waiting_for().is_some());
    let decision = finish(draft);
    let next = (!overdue).then(|| model.now + SignedDuration::from_secs(60 - age));
    assert_eq!(decision.wake_at, next);
    assert_eq!(
        condition(&decision, reasons::DEGRADED).status,
        if overdue { "True" } else { "False" }
    );
    assert_eq!(decision.events.len(), usize::from(overdue));
    if overdue {
        let said = &condition(&decision, reasons::DEGRADED).message;
        assert!(
            said.starts_with("now (stalled: waiting since 2026-03-13T03:56:"),
            "{said}"
        );
    }
}

#[test]
fn what_is_not_waited_for_any_longer_is_shown_and_holds_nothing_up() {
    for (age, overdue) in [(299, false), (300, true)] {
        let mut model = model(Vec::new(), Vec::new());
        let known = wait(&model, Wait::Setting, age);
        model.observed.plan.status.as_mut().unwrap().waiting_for = vec![known];
        let mut draft = Draft::new(model.now, &model.observed);
        assert_eq!(draft.is_overdue(Wait::Setting, "o"), overdue);
        assert_eq!(draft.wait_at_most(Wait::Setting, Some("o".to_owned()), "now"), overdue);
        assert_eq!(draft.waiting_for().is_none(), overdue);
        assert_eq!(finish(draft).status.waiting_for.len(), 1);
    }
}

#[test]
fn what_progresses_has_its_time_from_its_last_progress() {
    let mut model = model(Vec::new(), Vec::new());
    let known = wait(&model, Wait::PreDrainJob, 7200);
    model.observed.plan.status.as_mut().unwrap().waiting_for = vec![known];
    for (minutes, overdue) in [(Some(29), false), (Some(30), true), (Some(10_000), true), (None, true)] {
        let mut draft = Draft::new(model.now, &model.observed);
        let progressed = minutes.map(|minutes| model.now - SignedDuration::from_mins(minutes));
        let object = Some("o".to_owned());
        let noted = draft.wait_while_it_progresses(Wait::PreDrainJob, object, "now", progressed);
        assert_eq!(noted.is_overdue(), overdue, "{minutes:?}");
    }
}

#[test]
fn a_wait_without_a_limit_has_no_deadline() {
    let model = model(Vec::new(), Vec::new());
    let mut draft = Draft::new(model.now, &model.observed);
    draft.wait(Wait::Paused, None, "paused");
    let decision = finish(draft);
    assert_eq!(decision.status.waiting_for[0].deadline, None);
    assert_eq!(decision.wake_at, None);
}

#[rstest]
#[case::the_same(degraded("True", reasons::RECONCILE_ERROR, "it broke"), 0)]
#[case::was_well(degraded("False", reasons::RECONCILE_ERROR, "it broke"), 1)]
#[case::another_reason(degraded("True", reasons::STALLED, "it broke"), 1)]
#[case::other_words(degraded("True", reasons::RECONCILE_ERROR, "something"), 1)]
fn a_warning_is_given_when_the_condition_changes(#[case] before: Condition, #[case] events: usize) {
    let moved = before.status != "True";
    let model = model(vec![before], Vec::new());
    let mut draft = Draft::new(model.now, &model.observed);
    draft.degrade("it broke");
    let decision = finish(draft);
    assert_eq!(decision.events.len(), events);
    let now = condition(&decision, reasons::DEGRADED);
    assert_eq!((now.status.as_str(), now.message.as_str()), ("True", "it broke"));
    let since = if moved { model.now } else { Timestamp::UNIX_EPOCH };
    assert_eq!(now.last_transition_time.0, since);
    if events > 0 {
        assert_eq!(decision.events[0].message, "Pipeline error: it broke");
    }
}

#[test]
fn a_trouble_of_the_manager_is_said() {
    let mut model = model(Vec::new(), Vec::new());
    model.observed.trouble = Some("the API server is away".to_owned());
    let decision = finish(Draft::new(model.now, &model.observed));
    assert_eq!(
        condition(&decision, reasons::DEGRADED).message,
        "the API server is away"
    );
}

#[test]
fn of_a_plan_that_has_ended_a_stall_ends_with_the_wait_and_nothing_else_is_said() {
    let stalled = || vec![degraded("True", reasons::STALLED, "it stalls")];
    let status = |model: &Model, waits: bool| {
        let mut draft = Draft::new(model.now, &model.observed);
        if waits {
            draft.wait(Wait::OtherUpgrade, None, "another runs");
        }
        let decision = draft.still_ended();
        (
            condition(&decision, reasons::DEGRADED).status.clone(),
            decision.status.waiting_for.len(),
        )
    };
    let mut waited = model(stalled(), Vec::new());
    let known = wait(&waited, Wait::OtherUpgrade, 60);
    waited.observed.plan.status.as_mut().unwrap().waiting_for = vec![known];
    assert_eq!(
        status(&waited, false),
        ("False".to_owned(), 0),
        "nothing waits any more"
    );
    assert_eq!(status(&waited, true), ("True".to_owned(), 1), "it is still waited for");
    let never = model(stalled(), Vec::new());
    assert_eq!(
        status(&never, false),
        ("True".to_owned(), 0),
        "it failed so, and says so"
    );
    assert_eq!(status(&never, true), ("True".to_owned(), 1));
    let overdue = {
        let mut draft = Draft::new(waited.now, &waited.observed);
        draft.wait_within(Wait::OtherUpgrade, Some("o".to_owned()), "again", Duration::ZERO);
        draft.still_ended()
    };
    assert!(
        condition(&overdue, reasons::DEGRADED)
            .message
            .starts_with("again (stalled")
    );
}

#[test]
fn the_repository_is_where_its_record_says() {
    let mut model = model(Vec::new(), Vec::new());
    let url = |model: &Model| Draft::new(model.now, &model.observed).repo_url();
    assert_eq!(url(&model), "http://up-repo.harvester-system/harvester-iso");
    model.observed.plan.status.as_mut().unwrap().repository = Some(RepositoryAccess {
        secret: "s".to_owned(),
        certificate: "c".to_owned(),
        in_use: true,
    });
    assert_eq!(url(&model), "https://up-repo.harvester-system/harvester-iso");
}

#[test]
fn a_question_is_asked_and_asked_again_ten_seconds_after_it_failed() {
    let ask = |fetched: &Fetched<u32>| {
        let model = model(Vec::new(), Vec::new());
        let mut draft = Draft::new(model.now, &model.observed);
        let answer = draft.ask(
            Need::Release,
            kept(fetched),
            (Wait::ReleaseMetadata, "o".to_owned(), "asked"),
        );
        let answer = answer.copied().ok();
        let decision = finish(draft);
        let said = decision
            .status
            .waiting_for
            .first()
            .and_then(|wait| wait.message.clone());
        (
            answer,
            decision.needs,
            said,
            decision.wake_at.map(|at| at.duration_since(model.now).as_secs()),
        )
    };
    let now = Model::new(1).now;
    let failed = |age: i64| Fetched::Failed {
        error: "no route".to_owned(),
        at: now - SignedDuration::from_secs(age),
        attempts: 1,
    };
    assert_eq!(ask(&Fetched::Got(7)), (Some(7), vec![], None, None));
    let asked = Some("asked".to_owned());
    let error = Some("no route".to_owned());
    assert_eq!(ask(&Fetched::Unknown), (None, vec![Need::Release], asked, Some(600)));
    assert_eq!(ask(&failed(9)), (None, vec![], error.clone(), Some(1)));
    assert_eq!(ask(&failed(10)), (None, vec![Need::Release], error.clone(), Some(600)));
    assert_eq!(ask(&failed(11)), (None, vec![Need::Release], error, Some(600)));
}

/// What is fetched outlives the draft that asks for it.
fn kept(fetched: &Fetched<u32>) -> &'static Fetched<u32> {
    Box::leak(Box::new(fetched.clone()))
}
