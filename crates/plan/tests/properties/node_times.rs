//! What is recorded of a node, and what keeps its pods.

use api::{NodeState, Wait};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plan::{
    Need,
    draft::{Draft, Outcome, Waits},
    node::{is_failure, is_upgrade_failure},
    observed::{Fetched, KeptPods},
};
use rstest::rstest;

use crate::{
    model::Model,
    small::{set_state, status, upgrading},
};

#[rstest]
#[case(NodeState::ImagePreloaded, false, false)]
#[case(NodeState::UpgradePaused, false, false)]
#[case(NodeState::PreDraining, true, false)]
#[case(NodeState::PreDrained, true, false)]
#[case(NodeState::PreDrainFailed, true, false)]
#[case(NodeState::WaitingReboot, true, false)]
#[case(NodeState::PostDrained, true, true)]
#[case(NodeState::PostDrainFailed, true, false)]
#[case(NodeState::SingleNodeUpgraded, true, true)]
#[case(NodeState::ImageCleaning, false, false)]
#[case(NodeState::ImageCleaned, false, false)]
fn a_node_starts_with_its_first_job_and_finishes_when_it_is_upgraded(
    #[case] state: NodeState,
    #[case] started: bool,
    #[case] finished: bool,
) {
    let model = Model::new(1);
    let mut draft = Draft::new(model.now, &model.observed);
    draft.reach("node-1", state, Some("R"), Some("words"));
    let entry = &draft.status().node_upgrade_statuses["node-1"];
    assert_eq!(entry.state(), Some(state.as_str()));
    assert_eq!(
        (entry.reason.as_deref(), entry.message.as_deref()),
        (Some("R"), Some("words"))
    );
    let at = |is: bool| is.then_some(Time(model.now));
    assert_eq!((&entry.started_at, &entry.finished_at), (&at(started), &at(finished)));
}

#[test]
fn times_are_those_of_the_first_observation_and_a_stale_one_changes_nothing() {
    let mut model = Model::new(1);
    model.observed.plan.status = Some(Default::default());
    set_state(&mut model, "node-1", NodeState::PostDrained);
    let nodes = &mut status(&mut model).node_upgrade_statuses;
    let epoch = || Some(Time(Timestamp::UNIX_EPOCH));
    nodes.record_times("node-1", epoch(), epoch());
    let before = nodes["node-1"].clone();
    let mut draft = Draft::new(model.now, &model.observed);
    draft.reach("node-1", NodeState::PreDraining, Some("R"), Some("stale"));
    assert_eq!(draft.status().node_upgrade_statuses["node-1"], before);
    draft.reach("node-1", NodeState::PostDrained, None, None);
    assert_eq!(draft.status().node_upgrade_statuses["node-1"], before);
}

#[test]
fn a_failure_is_one_of_five_states_and_three_of_them_end_the_plan() {
    let all = |is: fn(NodeState) -> bool| {
        NodeState::ALL
            .into_iter()
            .filter(|state| is(*state))
            .collect::<Vec<_>>()
    };
    let of_upgrade = [
        NodeState::PreDrainFailed,
        NodeState::PostDrainFailed,
        NodeState::SingleNodeUpgradeFailed,
    ];
    let found = all(is_upgrade_failure);
    assert!(
        found.len() == 3 && of_upgrade.iter().all(|state| found.contains(state)),
        "{found:?}"
    );
    let found = all(is_failure);
    assert!(
        found.len() == 5 && of_upgrade.iter().all(|state| found.contains(state)),
        "{found:?}"
    );
    assert!(found.contains(&NodeState::ImagePreloadFailed) && found.contains(&NodeState::ImageCleanFailed));
}

#[test]
fn what_is_waited_for_keeps_its_names() {
    let model = Model::new(1);
    let mut draft = Draft::new(model.now, &model.observed);
    let first = Waits::from(draft.wait(Wait::Reboot, None, "a"));
    assert_eq!(first.names(), [Wait::Reboot]);
    let both = Waits::joined(Some(first), draft.wait(Wait::Pod, None, "b"));
    assert_eq!(both.names(), [Wait::Reboot, Wait::Pod]);
    assert_eq!(draft.waiting_for(), Some(both.clone()));
    assert_eq!(Waits::joined(None, both.clone()), both);
    assert_ne!(Outcome::Wait(both), Outcome::Done);
}

/// A node that Rancher has been draining for so many seconds, and what is known of pods that are kept.
fn draining(seconds: i64, kept: Fetched<KeptPods>) -> Model {
    let mut model = upgrading(3);
    set_state(&mut model, "node-1", NodeState::PreDrained);
    model.observed.machine_plans[0].pre_drain = Some("t".to_owned());
    model.observed.machine_plans[0].pre_hook = Some("t".to_owned());
    let decision = model.decide();
    model.apply(&decision);
    model.now += SignedDuration::from_secs(seconds);
    model.observed.facts.kept_pods = kept;
    model
}

fn kept(at: Timestamp) -> Fetched<KeptPods> {
    Fetched::Got(KeptPods {
        at,
        by_node: [("node-1".to_owned(), vec!["Pod default/db (budget db)".to_owned()])].into(),
    })
}

#[rstest]
#[case::quick(119, false)]
#[case::slow(120, true)]
fn who_keeps_pods_is_asked_once_a_drain_takes_two_minutes(#[case] seconds: i64, #[case] asked: bool) {
    let model = draining(seconds, Fetched::Unknown);
    let decision = model.decide();
    assert_eq!(decision.needs.contains(&Need::KeptPods), asked);
    let said = decision.status.waiting_for[0].message.clone().unwrap_or_default();
    assert_eq!(said, "node node-1: Rancher drains it and updates RKE2");
    if !asked {
        assert_eq!(
            decision.wake_at,
            Some(model.now + SignedDuration::from_secs(120 - seconds))
        );
    }
}

#[rstest]
#[case(119, false)]
#[case(120, true)]
fn the_answer_is_shown_and_asked_for_again_after_as_long(#[case] age: i64, #[case] asked: bool) {
    let mut model = draining(600, Fetched::Unknown);
    model.observed.facts.kept_pods = kept(model.now - SignedDuration::from_secs(age));
    let decision = model.decide();
    assert_eq!(decision.needs.contains(&Need::KeptPods), asked);
    let said = decision.status.waiting_for[0].message.clone().unwrap_or_default();
    assert_eq!(
        said,
        "node node-1: Rancher drains it and updates RKE2; Pod default/db (budget db)"
    );
    model.observed.facts.kept_pods = Fetched::Failed {
        error: "e".to_owned(),
        at: model.now - SignedDuration::from_secs(age),
        attempts: 1,
    };
    assert_eq!(model.decide().needs.contains(&Need::KeptPods), asked);
}

#[test]
fn of_several_questions_the_one_that_is_due_first_wakes() {
    for (first, second, expected) in [(3, 5, 5), (5, 3, 5), (4, 4, 6)] {
        let model = Model::new(1);
        let failed = |age: i64| Fetched::<u32>::Failed {
            error: "e".to_owned(),
            at: model.now - SignedDuration::from_secs(age),
            attempts: 1,
        };
        let (one, other) = (failed(first), failed(second));
        let mut observed = model.observed.clone();
        observed.facts = Default::default();
        let mut draft = Draft::new(model.now, leak(observed));
        for fetched in [one, other] {
            let waiting = (Wait::Paused, "o".to_owned(), "asked");
            assert!(draft.ask(Need::Release, leak(fetched), waiting).is_err());
        }
        let decision = draft.still_ended();
        assert_eq!(
            decision.wake_at,
            Some(model.now + SignedDuration::from_secs(expected)),
            "{first} {second}"
        );
    }
}

/// A draft borrows what it is made of.
fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}
