//! Programs of the upgrade are stopped, and observed to be gone, before anything is restored.

use api::{Component, JobType, Phase, WaitingFor, names, reasons};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plan::{
    Action, Decision,
    observed::{JobOutcome, ObservedPod},
};

use crate::{
    model::Model,
    walk::{ended, fail, job, retry, until},
};

const STOP: &str = "StillRunning";

/// A plan whose cluster Job runs, with its pod.
fn upgrading() -> Model {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model.observed.jobs.contains_key(&names::cluster_job("up"))
    });
    let job = model.observed.jobs.get_mut(&names::cluster_job("up")).unwrap();
    job.uid = Some("job".into());
    let pod = ObservedPod {
        name: "harvester-system/up-cluster-upgrade-1".into(),
        component: Component::ClusterUpgrade,
        owner: Some("job".into()),
        works: true,
        ..ObservedPod::of(Component::NodeUpgrade)
    };
    model.observed.pods.insert("up-cluster-upgrade-1".into(), pod);
    model
}

fn delete(model: &mut Model) {
    model.observed.plan.metadata.deletion_timestamp = Some(Time(model.now));
}

fn wait_for<'a>(decision: &'a Decision, what: &str) -> Option<&'a WaitingFor> {
    decision.status.waiting_for.iter().find(|wait| wait.what == what)
}

fn restores(decision: &Decision) -> bool {
    let removes = |action: &Action| matches!(action, Action::Delete { .. } | Action::DeleteJob { .. });
    decision.actions.iter().any(|action| !removes(action))
}

#[test]
fn nothing_is_restored_while_the_pod_of_a_job_that_is_gone_still_runs() {
    let mut model = upgrading();
    delete(&mut model);
    let decision = model.decide();
    let cluster_job = Action::Delete {
        kind: plan::decision::ChildKind::Job,
        component: Component::ClusterUpgrade,
        job_type: None,
    };
    assert!(decision.actions.contains(&cluster_job), "{:?}", decision.actions);
    assert!(!restores(&decision), "{:?}", decision.actions);
    // Deleted in the foreground, it is there until its pod is gone; deleted otherwise, the pod outlives it.
    let mut deleting = model.clone();
    deleting
        .observed
        .jobs
        .get_mut(&names::cluster_job("up"))
        .unwrap()
        .deleting = true;
    model.apply(&decision);
    assert!(!model.observed.jobs.contains_key(&names::cluster_job("up")));
    for model in [&mut model, &mut deleting] {
        let decision = model.decide();
        assert!(decision.finalizer && !restores(&decision), "{:?}", decision.actions);
        assert!(!decision.actions.contains(&cluster_job), "it is being deleted");
        let message = wait_for(&decision, STOP).unwrap().message.clone().unwrap();
        assert!(
            message.contains("Pod harvester-system/up-cluster-upgrade-1"),
            "{message}"
        );
        assert!(message.contains("kubectl delete pod --force"), "{message}");
        model.observed.pods.clear();
        model.observed.jobs.remove(&names::cluster_job("up"));
        let decision = model.decide();
        assert!(restores(&decision), "{:?}", decision.actions);
        assert_eq!(wait_for(&decision, STOP), None);
        until(model, |model| model.observed.plan.metadata.finalizers.is_none());
    }
}

#[test]
fn a_pod_that_cannot_end_is_not_waited_for_longer_than_its_deadline() {
    let mut model = upgrading();
    delete(&mut model);
    model.observed.jobs.get_mut(&names::cluster_job("up")).unwrap().deleting = true;
    let decision = model.decide();
    model.apply(&decision);
    let wait = wait_for(&decision, STOP).unwrap();
    let (since, deadline) = (wait.since.0, wait.deadline.as_ref().unwrap().0);
    assert_eq!(deadline.duration_since(since).as_secs(), 600);
    assert!(
        decision.wake_at.is_some_and(|at| at <= deadline),
        "nothing else need change"
    );
    model.now = deadline;
    let decision = model.decide();
    assert!(restores(&decision), "{:?}", decision.actions);
    assert_eq!(decision.events.len(), 1, "one event: {:?}", decision.events);
    // Pod and Job stay, and the plan goes.
    until(&mut model, |model| model.observed.plan.metadata.finalizers.is_none());
    assert_eq!(
        model.observed.charts[names::HARVESTER_CHART].methods,
        serde_json::Value::Null
    );
    assert!(model.observed.jobs.contains_key(&names::cluster_job("up")));
}

#[test]
fn a_job_that_empties_a_node_is_stopped_by_a_failure_though_it_has_not_tainted_its_node_yet() {
    let mut model = Model::new(3);
    let (first, second) = (job(JobType::PreDrain, "node-1"), job(JobType::PreDrain, "node-2"));
    until(&mut model, |model| model.observed.jobs.contains_key(&first));
    let mut running = model.observed.jobs[&first].clone();
    running.node = Some("node-2".into());
    running.outcome = JobOutcome::Running;
    model.observed.jobs.insert(second.clone(), running);
    let mut installing = model.observed.jobs[&second].clone();
    installing.node = Some("node-3".into());
    installing.job_type = Some(JobType::PostDrain);
    model
        .observed
        .jobs
        .insert(job(JobType::PostDrain, "node-3"), installing);
    fail(&mut model, &first);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    assert!(model.observed.jobs.contains_key(&first), "kept for its log");
    assert!(!model.observed.jobs.contains_key(&second));
    assert!(
        model.observed.jobs.contains_key(&job(JobType::PostDrain, "node-3")),
        "an installation is let end"
    );
}

#[test]
fn a_retry_begins_when_jobs_that_are_being_deleted_are_gone() {
    let mut model = upgrading();
    model.observed.pods.clear();
    fail(&mut model, &names::cluster_job("up"));
    until(&mut model, ended);
    retry(&mut model, "1");
    let decision = model.decide();
    assert!(matches!(decision.actions.as_slice(), [Action::DeleteJob { .. }]));
    model.observed.jobs.get_mut(&names::cluster_job("up")).unwrap().deleting = true;
    let decision = model.decide();
    assert_eq!(decision.actions, []);
    assert_eq!(decision.status.current_phase.as_deref(), Some("Failed"));
    let message = wait_for(&decision, STOP).unwrap().message.clone().unwrap();
    assert!(message.contains("harvester-system/up-cluster-upgrade"), "{message}");
    model.apply(&decision);
    // Past its deadline it is reported, once, and the plan keeps waiting.
    let is_degraded = |decision: &Decision| {
        let mut conditions = decision.status.conditions.iter();
        conditions.any(|one| one.type_ == reasons::DEGRADED && one.status == "True" && one.reason == reasons::STALLED)
    };
    assert!(!is_degraded(&decision));
    model.now = decision.wake_at.unwrap();
    let decision = model.decide();
    assert!(is_degraded(&decision), "{:?}", decision.status.conditions);
    assert_eq!(decision.events.len(), 1, "{:?}", decision.events);
    model.apply(&decision);
    let decision = model.decide();
    assert!(
        is_degraded(&decision) && decision.events.is_empty(),
        "{:?}",
        decision.events
    );
    model.observed.jobs.remove(&names::cluster_job("up"));
    until(&mut model, |model| model.phase() != Some(Phase::Failed));
    let status = model.observed.plan.status.as_ref().unwrap();
    let degraded = status.conditions.iter().find(|one| one.type_ == reasons::DEGRADED);
    assert_eq!(degraded.unwrap().status, "False");
    model.observed.jobs.remove(&names::cluster_job("up"));
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
}
