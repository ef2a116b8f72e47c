//! What a plan that did not come to its end leaves for the one after it.

use api::{JobType, Phase, annotations, names};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plan::observed::JobOutcome;

use crate::{
    model::Model,
    walk::{at, ended, until},
};

fn failed() -> JobOutcome {
    JobOutcome::Failed {
        reason: "BackoffLimitExceeded".into(),
        message: "Job has reached the specified backoff limit".into(),
    }
}

/// An upgrade whose first pre-drain Job has stopped a VM.
fn with_a_stopped_vm() -> Model {
    let mut model = Model::new(3);
    let job = names::node_job("up", JobType::PreDrain, "node-1");
    until(&mut model, |model| model.observed.jobs.contains_key(&job));
    model
        .observed
        .restore_list
        .insert("node-1".into(), "default/vm-1".into());
    model
}

#[test]
fn a_failed_plan_leaves_no_labels_of_system_upgrade_controller_on_nodes() {
    let mut model = Model::new(3);
    until(&mut model, at(Phase::ClusterUpgrading));
    for node in model.observed.nodes.values_mut() {
        node.leftover_labels = vec!["plan.upgrade.cattle.io/up-image-preload".into()];
    }
    let job = names::cluster_job("up");
    until(&mut model, |model| model.observed.jobs.contains_key(&job));
    model.observed.jobs.get_mut(&job).unwrap().outcome = failed();
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    assert!(
        model
            .observed
            .nodes
            .values()
            .all(|node| node.leftover_labels.is_empty())
    );
}

#[test]
fn a_retry_imports_the_iso_again_when_its_import_failed() {
    let mut model = Model::new(3);
    until(&mut model, |model| model.observed.iso_image.is_some());
    model.observed.iso_image.as_mut().unwrap().imported = Some(false);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    let known = model.observed.plan.metadata.annotations.get_or_insert_default();
    known.insert(annotations::RETRY.to_owned(), "1".to_owned());
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
}

#[test]
fn vms_that_were_stopped_start_again_when_the_plan_fails_and_once_more_after_a_retry() {
    let mut model = with_a_stopped_vm();
    let pre_drain = names::node_job("up", JobType::PreDrain, "node-1");
    model.observed.jobs.get_mut(&pre_drain).unwrap().outcome = failed();
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    let restore = names::node_job("up", JobType::RestoreVm, "node-1");
    assert!(model.observed.jobs.contains_key(&restore), "nothing starts the VM");
    model.observed.jobs.get_mut(&restore).unwrap().outcome = JobOutcome::Complete;
    let known = model.observed.plan.metadata.annotations.get_or_insert_default();
    known.insert(annotations::RETRY.to_owned(), "1".to_owned());
    // The node is emptied again, so the Job that started the VM must make room.
    until(&mut model, |model| !model.observed.jobs.contains_key(&restore));
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
    assert!(model.observed.jobs.contains_key(&restore), "the VM stays off");
}

#[test]
fn a_deleted_plan_stays_until_the_vms_that_it_stopped_are_started_or_their_time_is_up() {
    let mut model = with_a_stopped_vm();
    model.observed.plan.metadata.deletion_timestamp = Some(Time(model.now));
    let restore = names::node_job("up", JobType::RestoreVm, "node-1");
    until(&mut model, |model| model.observed.jobs.contains_key(&restore));
    let waits = |model: &Model| {
        let status = model.observed.plan.status.as_ref().unwrap();
        status.waiting_for.iter().any(|wait| wait.what == "RestoreVM")
    };
    until(&mut model, waits);
    assert!(model.observed.plan.metadata.finalizers.is_some());
    let mut started = model.clone();
    started.observed.jobs.get_mut(&restore).unwrap().outcome = JobOutcome::Complete;
    let gone = |model: &Model| model.observed.plan.metadata.finalizers.is_none();
    until(&mut started, gone);
    model.now += SignedDuration::from_mins(21);
    until(&mut model, gone);
}
