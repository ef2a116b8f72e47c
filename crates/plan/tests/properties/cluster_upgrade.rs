//! The Job of the cluster, and the Jobs that it has system-upgrade-controller run.

use api::{Component, Phase, names};
use plan::observed::{JobOutcome, ObservedJob, ObservedPod, TerminationMessage};

use crate::{
    model::Model,
    walk::{at, until},
};

/// A cluster whose components are being upgraded, after its agents have been suspended on a node.
fn agents_suspended(component: Component, outcome: JobOutcome) -> Model {
    let mut model = Model::new(3);
    let job = names::cluster_job("up");
    until(&mut model, |model| model.observed.jobs.contains_key(&job));
    let paused = ObservedJob {
        uid: None,
        namespace: names::CATTLE_NAMESPACE.to_owned(),
        component,
        node: Some("node-1".to_owned()),
        outcome,
        ..ObservedJob::of(Component::NodeUpgrade)
    };
    let name = names::suc_plan("up", Component::SuspendAgent);
    model.observed.jobs.insert(format!("apply-{name}-on-node-1"), paused);
    model
}

#[test]
fn only_the_job_of_the_cluster_ends_the_upgrade_of_the_cluster() {
    let failed = JobOutcome::Failed {
        reason: "BackoffLimitExceeded".to_owned(),
        message: String::new(),
    };
    // Jobs carry the labels of their Plan, whatever these are.
    for component in [Component::SuspendAgent, Component::ClusterUpgrade] {
        for outcome in [JobOutcome::Complete, failed.clone()] {
            let mut model = agents_suspended(component, outcome);
            let decision = model.decide();
            assert_eq!(decision.status.current_phase.as_deref(), Some("ClusterUpgrading"));
            model.apply(&decision);
        }
    }
    let mut model = agents_suspended(Component::SuspendAgent, JobOutcome::Complete);
    until(&mut model, at(Phase::ClusterUpgraded));
}

#[test]
fn a_pod_that_suspends_an_agent_and_cannot_start_is_named() {
    let mut model = agents_suspended(Component::SuspendAgent, JobOutcome::Running);
    let pod = ObservedPod {
        name: "cattle-system/apply-up-x".to_owned(),
        component: Component::SuspendAgent,
        node: Some("node-1".to_owned()),
        problem: Some("ErrImagePull".to_owned()),
        ..ObservedPod::of(Component::NodeUpgrade)
    };
    model.observed.pods.insert(pod.name.clone(), pod);
    let decision = model.decide();
    let named = decision.status.waiting_for.iter().any(|wait| wait.what == "Pod");
    assert!(named, "{:?}", decision.status.waiting_for);
}

#[test]
fn u04_the_failure_names_the_pod_and_the_last_message_of_its_program() {
    let mut model = agents_suspended(Component::SuspendAgent, JobOutcome::Complete);
    let name = names::cluster_job("up");
    let job = model.observed.jobs.get_mut(&name).unwrap();
    job.uid = Some("uid-of-the-job".to_owned());
    job.outcome = JobOutcome::Failed {
        reason: "BackoffLimitExceeded".to_owned(),
        message: "Job has reached the specified backoff limit".to_owned(),
    };
    let ended = |text: &str, at: &str| ObservedPod {
        name: format!("harvester-system/up-cluster-upgrade-{at}"),
        owner: Some("uid-of-the-job".to_owned()),
        termination_message: Some(TerminationMessage {
            at: format!("2026-03-13T05:00:0{at}Z").parse().unwrap(),
            text: text.to_owned(),
        }),
        ..ObservedPod::of(Component::ClusterUpgrade)
    };
    for pod in [
        ended("failed to apply the charts", "1"),
        ended("failed to upgrade Rancher", "2"),
    ] {
        model.observed.pods.insert(pod.name.clone(), pod);
    }
    let decision = model.decide();
    let why = decision.status.conditions.iter().find(|one| one.type_ == "Progressing");
    assert_eq!(
        why.unwrap().message,
        "cluster-upgrade job failed: pod harvester-system/up-cluster-upgrade-2: \"failed to upgrade Rancher\""
    );
}
