//! What programs say that they wait for shows in the status of the plan.

use api::{Component, JobType, Phase, WaitingFor, names, reasons};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plan::observed::{JobOutcome, ObservedJob, ObservedPod};

use crate::{model::Model, walk::until};

/// A cluster whose first node is being emptied.
fn pre_draining() -> Model {
    let mut model = Model::new(3);
    let job = names::node_job("up", JobType::PreDrain, "node-1");
    until(&mut model, |model| model.observed.jobs.contains_key(&job));
    // It runs, and the plan sees it.
    let decision = model.decide();
    model.apply(&decision);
    model
}

fn entry(name: &str, since: Timestamp, message: &str) -> WaitingFor {
    WaitingFor {
        what: "VMEvacuation".to_owned(),
        object: Some(format!("VirtualMachine default/{name}")),
        message: Some(message.to_owned()),
        since: Time(since),
        deadline: Some(Time(since + SignedDuration::from_mins(30))),
    }
}

fn speak(model: &mut Model, node: &str, said: Vec<WaitingFor>) {
    let pod = ObservedPod {
        name: format!("harvester-system/pre-drain-{node}"),
        component: Component::NodeUpgrade.to_owned(),
        job_type: Some(JobType::PreDrain.to_owned()),
        node: Some(node.to_owned()),
        said,
        ..ObservedPod::of(Component::NodeUpgrade)
    };
    model.observed.pods.insert(pod.name.clone(), pod);
}

#[test]
fn what_a_program_waits_for_is_shown_with_the_wait_for_its_job() {
    let mut model = pre_draining();
    let said = entry("web-1", model.now, "it moves to node-2");
    speak(&mut model, "node-1", vec![said.clone()]);
    // A pod of a node that is not being emptied has nothing to say to this phase.
    let other = entry("web-9", model.now, "left over");
    speak(&mut model, "node-3", vec![other]);
    let decision = model.decide();
    let waits = &decision.status.waiting_for;
    let words: Vec<&str> = waits.iter().map(|wait| wait.what.as_str()).collect();
    assert_eq!(words, ["PreDrainJob", "VMEvacuation"]);
    let shown = WaitingFor {
        message: Some("\"it moves to node-2\"".to_owned()),
        ..said
    };
    assert_eq!(waits[1], shown, "the words of a pod are shown as a quotation");
    model.apply(&decision);
    model.now += SignedDuration::from_mins(1);
    assert_eq!(model.decide().status, decision.status, "nothing changed");
    model.observed.pods.clear();
    assert_eq!(model.decide().status.waiting_for.len(), 1);
}

#[test]
fn a_program_that_waits_beyond_its_own_deadline_makes_the_plan_degraded() {
    let mut model = pre_draining();
    let said = entry("web-1", model.now - SignedDuration::from_mins(31), "it does not move");
    speak(&mut model, "node-1", vec![said]);
    let decision = model.decide();
    let degraded = decision
        .status
        .conditions
        .iter()
        .find(|one| one.type_ == reasons::DEGRADED);
    let degraded = degraded.unwrap();
    assert_eq!(
        (degraded.status.as_str(), degraded.reason.as_str()),
        ("True", reasons::STALLED)
    );
    assert!(
        degraded.message.starts_with("\"it does not move\" (stalled"),
        "{}",
        degraded.message
    );
}

#[test]
fn of_very_many_things_some_are_named_and_the_others_counted() {
    let mut model = pre_draining();
    let now = model.now;
    let said = (0..25)
        .map(|number| entry(&format!("vm-{number}"), now, "it moves"))
        .collect();
    speak(&mut model, "node-1", said);
    let waits = model.decide().status.waiting_for;
    assert_eq!(waits.len(), 1 + 10 + 1);
    assert_eq!(waits[11].message.as_deref(), Some("waiting for 15 more objects"));
}

#[test]
fn r33_an_evacuation_of_hours_is_not_stalled_while_vms_leave_and_is_when_none_does() {
    let mut model = pre_draining();
    let left = |since: Timestamp| WaitingFor {
        what: "VMsLeft".to_owned(),
        object: Some("Node node-1".to_owned()),
        message: Some("40 VMs are still on node node-1".to_owned()),
        since: Time(since),
        deadline: None,
    };
    let is_stalled = |model: &mut Model| {
        let decision = model.decide();
        model.apply(&decision);
        let conditions = decision.status.conditions.iter();
        let mut degraded = conditions.filter(|one| one.type_ == reasons::DEGRADED && one.status == "True");
        degraded.any(|one| one.reason == reasons::STALLED)
    };
    assert!(!is_stalled(&mut model));
    for _ in 0..12 {
        model.now += SignedDuration::from_mins(20);
        let now = model.now;
        speak(&mut model, "node-1", vec![left(now)]);
        assert!(!is_stalled(&mut model), "{now}");
    }
    model.now += SignedDuration::from_mins(29);
    assert!(!is_stalled(&mut model));
    model.now += SignedDuration::from_mins(2);
    assert!(is_stalled(&mut model));
}

/// The most that the definition of UpgradePlans lets a condition say.
const MOST_OF_A_CONDITION: usize = 32_768;

#[test]
fn s01_however_many_pods_cannot_start_the_status_stays_one_that_the_api_server_takes() {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model.phase() == Some(Phase::ImagePreloading) && !model.observed.jobs.is_empty()
    });
    for index in 0..100 {
        let pod = ObservedPod {
            name: format!("cattle-system/apply-{index:03}"),
            component: Component::ImagePreload,
            node: Some(format!("node-{index:03}")),
            problem: Some(format!("ErrImagePull: {}", "x".repeat(1_000))),
            missing_image: (index % 2 == 0).then(|| "me/toolkit:v1".to_owned()),
            ..ObservedPod::of(Component::NodeUpgrade)
        };
        model.observed.pods.insert(pod.name.clone(), pod);
    }
    let status = model.decide().status;
    assert!(status.waiting_for.len() < 20, "{}", status.waiting_for.len());
    let more = status.waiting_for.iter().find(|wait| wait.what == "More").unwrap();
    assert_eq!(more.message.as_deref(), Some("waiting for 90 more objects"));
    for condition in &status.conditions {
        assert!(condition.message.chars().count() <= MOST_OF_A_CONDITION);
    }
}

#[test]
fn s01_a_failure_on_very_many_nodes_still_fails_the_plan() {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model.phase() == Some(Phase::ImagePreloading) && !model.observed.jobs.is_empty()
    });
    for index in 0..100 {
        let job = ObservedJob {
            component: Component::ImagePreload,
            node: Some(format!("node-{index:03}")),
            outcome: JobOutcome::Failed {
                reason: "DeadlineExceeded".to_owned(),
                message: "x".repeat(1_000),
            },
            ..ObservedJob::of(Component::NodeUpgrade)
        };
        model.observed.jobs.insert(format!("apply-{index:03}"), job);
    }
    let status = model.decide().status;
    assert_eq!(status.current_phase.as_deref(), Some("Failed"));
    let history = status.phase_transition_timestamps.iter();
    let messages = history.filter_map(|change| change.message.as_ref());
    let all = messages.chain(status.conditions.iter().map(|condition| &condition.message));
    for text in all {
        assert!(text.chars().count() <= MOST_OF_A_CONDITION, "{}", text.len());
    }
}

#[test]
fn s01_a_program_that_says_it_began_tomorrow_keeps_no_wait_from_stalling() {
    let mut model = pre_draining();
    let tomorrow = model.now + SignedDuration::from_hours(24);
    speak(&mut model, "node-1", vec![entry("web-1", tomorrow, "soon")]);
    let decision = model.decide();
    let said = decision
        .status
        .waiting_for
        .iter()
        .find(|wait| wait.what == "VMEvacuation");
    assert_eq!(said.unwrap().since.0, model.now);
}
