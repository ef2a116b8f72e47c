//! Which changes of a status say nothing but what is waited for: every other field counts, each by itself.

use api::{
    NodeState, PhaseTransition, ReleaseDigests, ReleaseMetadata, RepositoryAccess, UpgradePlanStatus, VersionSnapshot,
    WaitingFor, reasons,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use plan::Decision;

fn time(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

fn condition(type_: &str) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: "Executable".to_owned(),
        message: "as before".to_owned(),
        last_transition_time: time(1),
        observed_generation: Some(1),
    }
}

fn before() -> UpgradePlanStatus {
    UpgradePlanStatus {
        conditions: vec![condition(reasons::PROGRESSING), condition(reasons::AVAILABLE)],
        ..UpgradePlanStatus::default()
    }
}

/// Whether a decision that changes the status so changes only its waits.
fn changes_only_waits(change: impl FnOnce(&mut UpgradePlanStatus)) -> bool {
    let mut status = before();
    change(&mut status);
    let decision = Decision {
        annotations: Default::default(),
        finalizer: true,
        status,
        events: Vec::new(),
        actions: Vec::new(),
        needs: Vec::new(),
        wake_at: None,
    };
    decision.changes_only_waits(&before())
}

fn wait() -> WaitingFor {
    WaitingFor {
        what: "Reboot".to_owned(),
        object: None,
        message: None,
        since: time(1),
        deadline: None,
    }
}

#[test]
fn what_is_waited_for_and_the_words_of_progressing_are_only_waits() {
    assert!(changes_only_waits(|status| status.waiting_for.push(wait())));
    assert!(changes_only_waits(
        |status| status.conditions[0].message = "two VMs left".to_owned()
    ));
    assert!(changes_only_waits(|status| {
        status.waiting_for.push(wait());
        status.conditions[0].message.clear();
    }));
}

#[test]
fn a_status_that_does_not_change_changes_no_waits_either() {
    assert!(!changes_only_waits(|_| ()));
}

#[test]
fn every_other_field_is_more_than_a_wait() {
    type Change = fn(&mut UpgradePlanStatus);
    let changes: [(&str, Change); 12] = [
        ("currentPhase", |status| {
            status.current_phase = Some("Failed".to_owned())
        }),
        ("isoImageID", |status| status.iso_image_id = Some("up-iso".to_owned())),
        ("nodeUpgradeStatuses", |status| {
            status.node_upgrade_statuses.reach("node-1", NodeState::ImagePreloading);
        }),
        ("notes", |status| status.notes = Some(Default::default())),
        ("phaseTransitionTimestamps", |status| {
            status.phase_transition_timestamps.push(PhaseTransition {
                phase: "Initializing".to_owned(),
                phase_transition_timestamp: time(1),
                message: None,
            });
        }),
        ("previousVersion", |status| {
            status.previous_version = Some("v1.7.1".to_owned())
        }),
        ("provisionGeneration", |status| status.provision_generation = Some(1)),
        ("releaseDigests", |status| {
            status.release_digests = Some(ReleaseDigests::default())
        }),
        ("releaseMetadata", |status| {
            status.release_metadata = Some(ReleaseMetadata::default())
        }),
        ("repository", |status| {
            status.repository = Some(RepositoryAccess {
                secret: "s".to_owned(),
                certificate: "c".to_owned(),
                in_use: false,
            });
        }),
        ("singleNode", |status| status.single_node = Some("node-1".to_owned())),
        ("version", |status| status.version = Some(VersionSnapshot::default())),
    ];
    for (field, change) in changes {
        assert!(!changes_only_waits(change), "{field}");
        let with_wait = |status: &mut UpgradePlanStatus| {
            change(status);
            status.waiting_for.push(wait());
        };
        assert!(!changes_only_waits(with_wait), "{field} beside a wait");
    }
}

#[test]
fn of_conditions_only_the_message_of_progressing_is_words() {
    type Change = fn(&mut Condition);
    let fields: [(&str, Change); 4] = [
        ("status", |condition| condition.status = "False".to_owned()),
        ("reason", |condition| condition.reason = "Executed".to_owned()),
        ("observedGeneration", |condition| {
            condition.observed_generation = Some(2)
        }),
        ("lastTransitionTime", |condition| {
            condition.last_transition_time = time(2)
        }),
    ];
    for at in [0, 1] {
        for (field, change) in fields {
            assert!(
                !changes_only_waits(|status| change(&mut status.conditions[at])),
                "{field} of {at}"
            );
        }
        assert!(
            !changes_only_waits(|status| drop(status.conditions.remove(at))),
            "{at} removed"
        );
    }
    assert!(!changes_only_waits(
        |status| status.conditions[1].message = "other".to_owned()
    ));
    assert!(!changes_only_waits(
        |status| status.conditions[1].type_ = "Other".to_owned()
    ));
    assert!(!changes_only_waits(|status| status
        .conditions
        .push(condition(reasons::DEGRADED))));
    assert!(!changes_only_waits(|status| status.conditions.swap(0, 1)));
}
