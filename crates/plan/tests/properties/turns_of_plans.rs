//! Which plan is over, which may still change the cluster, and which of several goes first.

use api::{Phase, UpgradePlan, UpgradePlanStatus, WaitingFor, annotations, reasons};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use plan::{
    decide::{is_active, is_settled, waits_for_request},
    observed::OtherPlan,
};
use rstest::rstest;

use crate::model::Model;

fn condition(type_: &str, reason: &str) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: "False".to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}

/// A plan in a phase that says that it was executed, without our finalizer.
fn ended(phase: Phase) -> UpgradePlan {
    let mut plan = UpgradePlan::new("up", Default::default());
    plan.status = Some(UpgradePlanStatus {
        current_phase: Some(phase.to_string()),
        conditions: vec![condition(reasons::AVAILABLE, reasons::EXECUTED)],
        ..UpgradePlanStatus::default()
    });
    plan
}

fn with_finalizer(mut plan: UpgradePlan, finalizer: &str) -> UpgradePlan {
    plan.metadata.finalizers = Some(vec![finalizer.to_owned()]);
    plan
}

fn asked(mut plan: UpgradePlan, request: &str) -> UpgradePlan {
    plan.metadata.annotations = Some([(annotations::RETRY.to_owned(), request.to_owned())].into());
    plan
}

fn heard(mut plan: UpgradePlan, request: &str) -> UpgradePlan {
    let notes = [(annotations::RETRIED.to_owned(), request.to_owned())].into();
    plan.status.as_mut().unwrap().notes = Some(notes);
    plan
}

fn waiting(mut plan: UpgradePlan) -> UpgradePlan {
    plan.status.as_mut().unwrap().waiting_for.push(WaitingFor {
        what: "OtherUpgrade".to_owned(),
        object: None,
        message: None,
        since: Time(Timestamp::UNIX_EPOCH),
        deadline: None,
    });
    plan
}

#[rstest]
#[case::succeeded(ended(Phase::Succeeded), true)]
#[case::failed(ended(Phase::Failed), true)]
#[case::runs(ended(Phase::NodeUpgrading), false)]
#[case::not_started(UpgradePlan::new("up", Default::default()), false)]
#[case::still_ours(with_finalizer(ended(Phase::Failed), annotations::FINALIZER), false)]
#[case::of_another(with_finalizer(ended(Phase::Failed), "example.com/theirs"), true)]
#[case::tried_again(asked(ended(Phase::Failed), "1"), false)]
#[case::tried(heard(asked(ended(Phase::Failed), "1"), "1"), true)]
#[case::asked_once_more(heard(asked(ended(Phase::Failed), "2"), "1"), false)]
#[case::request_withdrawn(heard(ended(Phase::Failed), "1"), true)]
#[case::done_is_not_tried_again(asked(ended(Phase::Succeeded), "1"), true)]
#[case::leaves_a_wait(waiting(ended(Phase::Failed)), false)]
fn a_plan_is_settled_when_nothing_is_left_to_decide(#[case] plan: UpgradePlan, #[case] expected: bool) {
    assert_eq!(is_settled(&plan), expected);
}

#[test]
fn only_the_condition_that_says_executed_settles_a_plan() {
    for (type_, reason, expected) in [
        (reasons::AVAILABLE, reasons::EXECUTED, true),
        (reasons::AVAILABLE, reasons::EXECUTABLE, false),
        (reasons::DEGRADED, reasons::EXECUTED, false),
    ] {
        let mut plan = ended(Phase::Succeeded);
        plan.status.as_mut().unwrap().conditions = vec![condition(type_, reason)];
        assert_eq!(is_settled(&plan), expected, "{type_} {reason}");
    }
}

#[rstest]
#[case::new(UpgradePlan::new("up", Default::default()), true)]
#[case::runs(ended(Phase::NodeUpgrading), true)]
#[case::succeeded(ended(Phase::Succeeded), false)]
#[case::failed(ended(Phase::Failed), false)]
#[case::not_restored(with_finalizer(ended(Phase::Failed), annotations::FINALIZER), true)]
#[case::of_another(with_finalizer(ended(Phase::Failed), "example.com/theirs"), false)]
#[case::left_by_another(left_by_another(), false)]
#[case::started(asked(left_by_another(), "1"), true)]
fn a_plan_is_active_until_it_has_ended_and_its_changes_are_restored(#[case] plan: UpgradePlan, #[case] expected: bool) {
    assert_eq!(is_active(&plan), expected);
}

/// A plan that a manager has looked at and not given a phase.
fn left_by_another() -> UpgradePlan {
    let mut plan = ended(Phase::Initializing);
    plan.status.as_mut().unwrap().current_phase = None;
    plan
}

#[test]
fn only_a_plan_with_conditions_and_no_phase_waits_for_a_request() {
    assert!(waits_for_request(&left_by_another()));
    let mut empty_phase = left_by_another();
    empty_phase.status.as_mut().unwrap().current_phase = Some(String::new());
    assert!(waits_for_request(&empty_phase));
    assert!(!waits_for_request(&asked(left_by_another(), "1")));
    assert!(waits_for_request(&heard(asked(left_by_another(), "1"), "1")));
    assert!(!waits_for_request(&ended(Phase::Initializing)));
    assert!(!waits_for_request(&UpgradePlan::new("up", Default::default())));
    let mut unseen = left_by_another();
    unseen.status.as_mut().unwrap().conditions.clear();
    assert!(!waits_for_request(&unseen));
}

fn other(created: Option<&str>, uid: &str, active: bool) -> OtherPlan {
    OtherPlan {
        name: "other".to_owned(),
        uid: uid.to_owned(),
        created: created.map(|text| text.parse().unwrap()),
        active,
        saved_upgrade_strategy: None,
        begun: None,
    }
}

#[rstest]
#[case::older(Some("2026-03-12T00:00:00Z"), "z", true, true)]
#[case::older_that_has_ended(Some("2026-03-12T00:00:00Z"), "z", false, false)]
#[case::younger(Some("2026-03-14T00:00:00Z"), "a", true, false)]
#[case::same_moment_lower_uid(Some("2026-03-13T00:00:00Z"), "a", true, true)]
#[case::same_moment_same_uid(Some("2026-03-13T00:00:00Z"), "uid", true, false)]
#[case::same_moment_higher_uid(Some("2026-03-13T00:00:00Z"), "z", true, false)]
fn of_two_plans_the_older_goes_first(
    #[case] created: Option<&str>,
    #[case] uid: &str,
    #[case] active: bool,
    #[case] waits: bool,
) {
    let mut model = Model::new(1);
    model.observed.plan.metadata.creation_timestamp = Some(Time("2026-03-13T00:00:00Z".parse().unwrap()));
    model.observed.other_plans = vec![other(created, uid, active)];
    let decision = model.decide();
    let waiting = decision
        .status
        .waiting_for
        .iter()
        .any(|wait| wait.what == "OlderUpgrade");
    assert_eq!(waiting, waits);
    // Also one that waits has a phase, and our finalizer.
    assert_eq!(decision.status.current_phase.as_deref(), Some("Initializing"));
    assert!(decision.finalizer);
    assert_eq!(decision.events.len(), usize::from(waits));
    if waits {
        assert_eq!(decision.events[0].message, "Blocked by in-progress upgrade \"other\"");
        let available = decision
            .status
            .conditions
            .iter()
            .find(|c| c.type_ == reasons::AVAILABLE)
            .unwrap();
        assert_eq!(available.message, "another upgrade \"other\" is in progress");
        assert_eq!(
            (available.status.as_str(), available.reason.as_str()),
            ("False", reasons::CONCURRENT_UPGRADE_BLOCKED)
        );
        model.apply(&decision);
        assert_eq!(model.decide().events, [], "it is reported once");
        model.observed.other_plans[0].name = "third".to_owned();
        assert_eq!(
            model.decide().events.len(),
            1,
            "and again when another one is in the way"
        );
    }
}
