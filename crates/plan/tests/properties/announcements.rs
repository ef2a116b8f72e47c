//! Events that follow from a plan's recorded history, and changes that are too old to be reported.

use api::{Phase, PhaseTransition, UpgradePlan, UpgradePlanStatus, annotations, reasons};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use plan::announce::{FailedRestore, late_restore_events, override_events, phase_events, restore_failed};
use rstest::rstest;
use rules::{PlanEvent, Severity};

fn now() -> Timestamp {
    "2026-03-13T04:00:00Z".parse().unwrap()
}

/// A plan whose history has these phases, all of them a minute old.
fn plan(history: &[(Phase, Option<&str>)]) -> UpgradePlan {
    let mut plan = UpgradePlan::new("up", Default::default());
    let changes = history.iter().map(|(phase, why)| PhaseTransition {
        phase: phase.to_string(),
        phase_transition_timestamp: Time(now() - SignedDuration::from_mins(1)),
        message: why.map(str::to_owned),
    });
    plan.status = Some(UpgradePlanStatus {
        phase_transition_timestamps: changes.collect(),
        ..UpgradePlanStatus::default()
    });
    plan
}

fn reported(plan: &UpgradePlan) -> Vec<String> {
    let text = |(_, event): (Timestamp, PlanEvent)| format!("{}: {} #{}", event.reason, event.message, event.attempt);
    phase_events(plan, now()).into_iter().map(text).collect()
}

#[test]
fn the_two_newest_changes_are_reported() {
    use Phase::*;
    let history = [
        (RepoCreated, None),
        (MetadataPopulating, None),
        (MetadataPopulated, None),
    ];
    assert_eq!(
        reported(&plan(&history)),
        [
            "PhaseTransition: Entering phase MetadataPopulate #0",
            "PhaseCompleted: Completed phase MetadataPopulate #0"
        ]
    );
    assert_eq!(reported(&UpgradePlan::new("up", Default::default())), [""; 0]);
}

#[test]
fn the_first_phase_is_not_reported() {
    assert_eq!(
        reported(&plan(&[(Phase::Initializing, None), (Phase::Initialized, None)])),
        [""; 0]
    );
}

#[test]
fn a_retry_reports_from_which_phase_it_continues_and_counts_earlier_failures() {
    use Phase::*;
    let after_completed = plan(&[(Failed, Some("it broke")), (ClusterUpgraded, None)]);
    assert_eq!(
        reported(&after_completed),
        [
            "UpgradeFailed: Upgrade failed: it broke #0",
            "PhaseTransition: Trying again from phase NodeUpgrade #1"
        ]
    );
    let from_the_beginning = plan(&[(Failed, Some("it broke")), (Initializing, None)]);
    assert_eq!(
        reported(&from_the_beginning)[1],
        "PhaseTransition: Trying again from phase Initialize #1"
    );
}

#[test]
fn the_end_is_reported_with_the_reason_of_a_failure_if_it_is_known() {
    use Phase::*;
    assert_eq!(
        reported(&plan(&[(Succeeded, None)])),
        ["UpgradeSucceeded: Upgrade completed successfully #0"]
    );
    assert_eq!(reported(&plan(&[(Failed, None)])), ["UpgradeFailed: Upgrade failed #0"]);
    assert_eq!(
        reported(&plan(&[(Failed, Some(""))])),
        ["UpgradeFailed: Upgrade failed #0"]
    );
    let mut by_condition = plan(&[(Failed, None)]);
    by_condition.status.as_mut().unwrap().conditions.push(Condition {
        type_: reasons::PROGRESSING.to_owned(),
        status: "True".to_owned(),
        reason: "Failed".to_owned(),
        message: "node node-1 upgrade failed".to_owned(),
        last_transition_time: Time(now()),
        observed_generation: None,
    });
    assert_eq!(
        reported(&by_condition),
        ["UpgradeFailed: Upgrade failed: node node-1 upgrade failed #0"]
    );
}

#[rstest]
#[case(0, true)]
#[case(599, true)]
#[case(600, false)]
#[case(86_400, false)]
fn what_is_ten_minutes_old_is_not_reported_again(#[case] seconds: i64, #[case] expected: bool) {
    let at = now() - SignedDuration::from_secs(seconds);
    let mut plan = plan(&[(Phase::Succeeded, None)]);
    plan.status.as_mut().unwrap().phase_transition_timestamps[0].phase_transition_timestamp = Time(at);
    let moments: Vec<Timestamp> = phase_events(&plan, now()).into_iter().map(|(at, _)| at).collect();
    assert_eq!(moments, if expected { vec![at] } else { Vec::new() });
    let failed = FailedRestore {
        job: "up-restore-vm-node-1".to_owned(),
        node: "node-1".to_owned(),
        why: "BackoffLimitExceeded".to_owned(),
        at,
    };
    let event = restore_failed(&failed.job, &failed.node, &failed.why);
    assert_eq!(event.severity, Severity::Warning);
    assert!(event.message.contains("VM of node node-1") && event.message.contains("BackoffLimitExceeded"));
    let expected = if expected { vec![(at, event)] } else { Vec::new() };
    assert_eq!(late_restore_events(&plan, &[failed], now()), expected);
}

#[test]
fn a_late_failure_belongs_to_the_attempt_that_it_follows() {
    use Phase::*;
    let plan = plan(&[(Failed, None), (ClusterUpgraded, None), (Succeeded, None)]);
    let failed = FailedRestore {
        job: "j".to_owned(),
        node: "node-1".to_owned(),
        why: "w".to_owned(),
        at: now(),
    };
    assert_eq!(late_restore_events(&plan, &[failed], now())[0].1.attempt, 1);
}

#[test]
fn every_use_of_a_permission_is_reported_with_user_value_and_time_however_old() {
    let mut plan = UpgradePlan::new("up", Default::default());
    assert_eq!(override_events(&plan), []);
    let noted =
        r#"[{"by": "alice", "what": ["spec.force=\"true\"", "spec.upgrade=\"dev\""], "at": "2020-01-01T00:00:00Z"}]"#;
    plan.metadata.annotations = Some([(annotations::OVERRIDES.to_owned(), noted.to_owned())].into());
    let events = override_events(&plan);
    assert_eq!(events.len(), 1);
    let (at, event) = &events[0];
    assert_eq!(*at, "2020-01-01T00:00:00Z".parse().unwrap());
    assert_eq!(
        (event.severity, event.reason.as_str()),
        (Severity::Warning, reasons::OVERRIDE_USED)
    );
    assert_eq!(
        event.message,
        r#"User "alice" uses spec.force="true", spec.upgrade="dev" at 2020-01-01T00:00:00Z"#
    );
}
