//! What is recorded before the first change, and when it is compared after the end. Neither holds an upgrade up.

use std::time::Duration;

use api::{CheckSummary, Insight, Phase, reasons};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plan::{
    Action, Need,
    announce::check_events,
    look_back::{Aftermath, Comparison, LookBack, decide},
    observed::{Before, Fetched},
};
use rstest::rstest;

use crate::{
    model::Model,
    walk::{at, decide_and_apply, ended, until},
};

fn summary(at: Timestamp, findings: usize, warnings: i32) -> CheckSummary {
    let finding = |index| Insight {
        id: format!("P{index:02}"),
        severity: "warning".to_owned(),
        object: None,
        message: "a node is cordoned".to_owned(),
        remedy: "Uncordon it.".to_owned(),
    };
    CheckSummary {
        at: Time(at),
        errors: 0,
        not_checked: None,
        warnings,
        findings: (0..findings).map(finding).collect(),
    }
}

/// A plan that is asked what is there before its first change.
fn asked() -> Model {
    let mut model = Model::new(3);
    until(&mut model, |model| model.decide().needs.contains(&Need::Before));
    model
}

fn seen(model: &mut Model, not_stored: Option<&str>) {
    model.observed.facts.before = Fetched::Got(Before {
        preflight: summary(model.now, 1, 1),
        not_stored: not_stored.map(str::to_owned),
    });
}

#[test]
fn what_is_there_is_stored_before_the_first_change_and_what_checks_found_is_written_with_it() {
    let mut model = asked();
    assert_eq!(model.decide().actions, []);
    seen(&mut model, None);
    let decision = decide_and_apply(&mut model);
    assert_eq!(decision.actions, [Action::StoreRecord]);
    assert_eq!(decision.status.current_phase.as_deref(), Some("Initialized"));
    assert_eq!(decision.status.preflight, Some(summary(model.now, 1, 1)));
    // Until it is seen, nothing else is done.
    model.observed.recorded = false;
    assert_eq!(model.decide().actions, [Action::StoreRecord]);
    model.observed.recorded = true;
    assert_eq!(model.decide().status.current_phase.as_deref(), Some("ISODownloading"));
}

#[test]
fn a_record_that_cannot_be_stored_is_done_without_and_named() {
    let mut model = asked();
    seen(&mut model, Some("configmaps is forbidden"));
    let decision = model.decide();
    assert_eq!(decision.actions, []);
    assert_eq!(decision.status.current_phase.as_deref(), Some("ISODownloading"));
    let event = decision
        .events
        .iter()
        .find(|event| event.reason == reasons::NOT_RECORDED);
    assert!(event.unwrap().message.contains("configmaps is forbidden"));
}

#[test]
fn another_try_looks_again_at_what_checks_find_and_stores_no_other_record() {
    let mut model = asked();
    seen(&mut model, None);
    decide_and_apply(&mut model);
    // A manager that has just started has nothing in memory.
    model.observed.facts.before = Fetched::Unknown;
    let status = model.observed.plan.status.as_mut().unwrap();
    status.preflight = None;
    let decision = model.decide();
    assert!(decision.needs.contains(&Need::Before));
    seen(&mut model, Some("it is there"));
    let decision = model.decide();
    assert_eq!((decision.actions.len(), decision.events.len()), (0, 0));
    assert!(decision.status.preflight.is_some());
    assert_eq!(decision.status.current_phase.as_deref(), Some("ISODownloading"));
}

/// An upgrade that has ended, and when.
fn over() -> (Model, Timestamp) {
    let mut model = Model::new(1);
    until(&mut model, ended);
    until(&mut model, at(Phase::Succeeded));
    let history = &model.observed.plan.status.as_ref().unwrap().phase_transition_timestamps;
    let end = history.last().unwrap().phase_transition_timestamp.0;
    (model, end)
}

fn recorded() -> Aftermath {
    Aftermath {
        recorded: true,
        ..Aftermath::default()
    }
}

#[rstest]
#[case::without_record(Aftermath::default(), 60, None)]
#[case::soon_after(recorded(), 119, Some(120))]
#[case::long_enough(recorded(), 120, Some(0))]
#[case::overtaken(Aftermath { overtaken: true, ..recorded() }, 600, None)]
#[case::vms_start(Aftermath { unsettled: true, ..recorded() }, 1799, Some(1800))]
#[case::vms_do_not_start(Aftermath { unsettled: true, ..recorded() }, 1800, Some(0))]
#[case::under_way(Aftermath { comparison: Comparison::UnderWay, ..recorded() }, 600, None)]
#[case::damaged(Aftermath { comparison: Comparison::Impossible, ..recorded() }, 600, None)]
#[case::a_day_later(recorded(), 24 * 3600, None)]
fn an_upgrade_that_has_ended_is_compared_once_it_has_settled(
    #[case] seen: Aftermath,
    #[case] after: u64,
    #[case] expected: Option<u64>,
) {
    let (model, end) = over();
    let decided = decide(end + Duration::from_secs(after), &model.observed.plan, &seen);
    let expected = match expected {
        None => LookBack::Nothing,
        Some(0) => LookBack::Compare,
        Some(seconds) => LookBack::Wait(end + Duration::from_secs(seconds)),
    };
    assert_eq!(decided, expected);
}

#[test]
fn vms_that_were_started_late_get_their_time_too() {
    let (model, end) = over();
    let seen = Aftermath {
        restored_at: Some(end + Duration::from_secs(600)),
        ..recorded()
    };
    let decided = decide(end + Duration::from_secs(601), &model.observed.plan, &seen);
    assert_eq!(decided, LookBack::Wait(end + Duration::from_secs(720)));
}

#[test]
fn the_result_is_written_once_and_nothing_else_with_it() {
    let (mut model, end) = over();
    let found = summary(end, 1, 1);
    let seen = Aftermath {
        comparison: Comparison::Made(found.clone()),
        ..recorded()
    };
    let now = end + Duration::from_secs(121);
    let LookBack::Report(decision) = decide(now, &model.observed.plan, &seen) else {
        panic!("it is reported")
    };
    let mut expected = model.observed.plan.status.clone().unwrap();
    expected.postflight = Some(found);
    assert_eq!((&decision.status, decision.finalizer), (&expected, false));
    assert!(decision.actions.is_empty() && decision.annotations.is_empty());
    model.observed.plan.status = Some(expected);
    assert_eq!(decide(now, &model.observed.plan, &seen), LookBack::Nothing);
}

#[test]
fn each_finding_is_one_event_and_those_that_are_not_shown_are_counted() {
    let (mut model, end) = over();
    let status = model.observed.plan.status.as_mut().unwrap();
    status.preflight = None;
    status.postflight = Some(summary(end, 2, 5));
    let now = end + Duration::from_secs(60);
    let events = check_events(&model.observed.plan, now);
    let texts: Vec<&str> = events.iter().map(|(_, event)| event.message.as_str()).collect();
    assert_eq!(
        texts,
        [
            "P00: a node is cordoned. Uncordon it.",
            "P01: a node is cordoned. Uncordon it.",
            "3 more checks have found something: see `upgrade-toolkit postflight`"
        ]
    );
    assert!(events.iter().all(|(_, event)| event.reason == reasons::POSTFLIGHT));
    let much_later = end + Duration::from_secs(3600);
    assert_eq!(check_events(&model.observed.plan, much_later), []);
}
