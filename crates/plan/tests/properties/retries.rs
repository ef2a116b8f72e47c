//! Retries: what is removed before one starts, what refuses it, and from where it continues.

use api::{Component, JobType, NodeState, Phase, PhaseTransition, annotations, reasons};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use plan::{
    Action, Decision,
    decision::ChildKind,
    observed::{JobOutcome, ObservedJob, ObservedSucPlan, OtherPlan, StartedUpgrade},
};
use rstest::rstest;

use crate::{
    model::Model,
    small::{add_job, failed, in_phase, progressing, reached, set_state, status, waits_for, with_nodes},
};

/// A plan that failed a minute ago after it had entered `phase` an hour ago, with everything restored, and is to be retried.
fn asked_again(nodes: usize, phase: Phase) -> Model {
    let mut model = with_nodes(nodes, Phase::Failed);
    let change = |phase: Phase, minutes: i64| PhaseTransition {
        phase: phase.to_string(),
        phase_transition_timestamp: Time(model.now - SignedDuration::from_mins(minutes)),
        message: None,
    };
    let history = vec![change(phase, 60), change(Phase::Failed, 1)];
    status(&mut model).phase_transition_timestamps = history;
    status(&mut model).conditions = vec![Condition {
        type_: reasons::AVAILABLE.to_owned(),
        status: "False".to_owned(),
        reason: reasons::EXECUTED.to_owned(),
        message: String::new(),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }];
    model.observed.plan.metadata.finalizers = None;
    model.observed.plan.metadata.annotations = Some([(annotations::RETRY.to_owned(), "1".to_owned())].into());
    model
}

fn phase(decision: &Decision) -> &str {
    decision.status.current_phase.as_deref().unwrap_or_default()
}

#[rstest]
#[case(Phase::Initializing, "Initializing")]
#[case(Phase::Initialized, "Initialized")]
#[case(Phase::ISODownloading, "Initialized")]
#[case(Phase::RepoCreating, "ISODownloaded")]
#[case(Phase::ImagePreloading, "MetadataPopulated")]
#[case(Phase::ImagePreloaded, "ImagePreloaded")]
#[case(Phase::NodeUpgrading, "ClusterUpgraded")]
#[case(Phase::CleaningUp, "NodeUpgraded")]
#[case(Phase::CleanedUp, "CleanedUp")]
fn a_retry_continues_after_the_last_completed_phase(#[case] failed_in: Phase, #[case] resumed: &str) {
    let decision = asked_again(3, failed_in).decide();
    assert_eq!(phase(&decision), resumed);
    assert!(decision.finalizer);
    assert_eq!(decision.status.phase_transition_timestamps.len(), 3);
}

#[test]
fn without_a_new_value_of_the_annotation_nothing_begins() {
    let mut model = asked_again(3, Phase::NodeUpgrading);
    let notes = [(annotations::RETRIED.to_owned(), "1".to_owned())].into();
    status(&mut model).notes = Some(notes);
    let decision = model.decide();
    assert_eq!(phase(&decision), "Failed");
    assert!(!decision.finalizer && decision.actions.is_empty());
}

#[rstest]
#[case(Phase::ImagePreloading, false)]
#[case(Phase::ClusterUpgrading, true)]
fn what_nodes_have_not_read_yet_is_chosen_again(#[case] failed_in: Phase, #[case] kept: bool) {
    let mut model = asked_again(3, failed_in);
    let image = (
        annotations::TOOLKIT_IMAGE.to_owned(),
        "rancher/harvester-upgrade-toolkit:v1".to_owned(),
    );
    status(&mut model).notes = Some([image].into());
    status(&mut model).repository = Some(api::RepositoryAccess {
        secret: "s".to_owned(),
        certificate: "c".to_owned(),
        in_use: true,
    });
    let decision = model.decide();
    let notes = decision.status.notes.unwrap_or_default();
    assert_eq!(notes.contains_key(annotations::TOOLKIT_IMAGE), kept);
    assert_eq!(decision.status.repository.is_some(), kept);
}

#[rstest]
#[case::ours_and_broken(true, Some(false), true)]
#[case::of_the_user(false, Some(false), false)]
#[case::imported(true, Some(true), false)]
#[case::being_imported(true, None, false)]
fn only_an_image_of_ours_that_could_not_be_imported_is_imported_again(
    #[case] ours: bool,
    #[case] imported: Option<bool>,
    #[case] deleted: bool,
) {
    let mut model = asked_again(3, Phase::ISODownloading);
    let image = model.observed.iso_image.as_mut().unwrap();
    (image.ours, image.imported) = (ours, imported);
    let decision = model.decide();
    let delete = Action::Delete {
        kind: ChildKind::Image,
        component: Component::Iso,
        job_type: None,
    };
    assert_eq!(decision.actions.contains(&delete), deleted);
    assert_eq!(phase(&decision) == "Failed", deleted, "the try begins when it is gone");
}

#[rstest]
#[case::before(-1, false)]
#[case::same_moment(0, false)]
#[case::after(1, true)]
fn a_plan_that_has_taken_the_cluster_further_since_the_failure_refuses_the_try(
    #[case] seconds: i64,
    #[case] refused: bool,
) {
    let mut model = asked_again(3, Phase::NodeUpgrading);
    let failed_at = model.now - SignedDuration::from_mins(1);
    let other = |harvester: &str| OtherPlan {
        name: "newer".to_owned(),
        uid: "z".to_owned(),
        created: None,
        active: false,
        saved_upgrade_strategy: None,
        begun: Some(StartedUpgrade {
            at: failed_at + SignedDuration::from_secs(seconds),
            harvester: harvester.to_owned(),
            os: "Harvester v1.9.0".to_owned(),
            nodes_done_at: None,
        }),
    };
    model.observed.other_plans = vec![other("v1.9.0")];
    let decision = model.decide();
    assert_eq!(phase(&decision) == "Failed", refused);
    assert_eq!(
        progressing(&decision).contains("UpgradePlan newer has begun to upgrade the cluster to v1.9.0"),
        refused
    );
    if refused {
        assert!(!decision.finalizer);
        let notes = decision.status.notes.unwrap_or_default();
        assert_eq!(
            notes.get(annotations::RETRIED).map(String::as_str),
            Some("1"),
            "it is not asked for again"
        );
    }
    model.observed.other_plans = vec![other("v1.8.0")];
    assert_ne!(phase(&model.decide()), "Failed", "to the same release it may go on");
}

#[rstest]
#[case::as_it_began("v1.7.1", "ClusterUpgraded")]
#[case::at_the_release("v1.8.0", "ClusterUpgraded")]
#[case::moved_a_little("v1.7.2", "Initializing")]
#[case::unknown("", "ClusterUpgraded")]
#[case::beyond("v1.8.1", "Failed")]
fn a_cluster_that_has_changed_is_checked_again_and_one_beyond_the_release_is_left(
    #[case] running: &str,
    #[case] expected: &str,
) {
    let mut model = asked_again(3, Phase::NodeUpgrading);
    model.observed.server_version = Some(running.to_owned());
    let decision = model.decide();
    assert_eq!(phase(&decision), expected);
    assert_eq!(
        progressing(&decision).contains("would downgrade it to v1.8.0"),
        expected == "Failed"
    );
}

#[test]
fn another_plan_that_runs_goes_first() {
    let mut model = asked_again(3, Phase::NodeUpgrading);
    model.observed.other_plans = vec![OtherPlan {
        name: "other".to_owned(),
        uid: "z".to_owned(),
        created: None,
        active: true,
        saved_upgrade_strategy: None,
        begun: None,
    }];
    let decision = model.decide();
    assert_eq!(
        (phase(&decision), waits_for(&decision)),
        ("Failed", vec!["OtherUpgrade"])
    );
    model.observed.other_plans[0].active = false;
    assert_eq!(phase(&model.decide()), "ClusterUpgraded");
}

/// Whether a Job that stands so on a node of that state is in the way of another try.
fn is_deleted(nodes: usize, state: NodeState, step: JobType, outcome: JobOutcome) -> bool {
    let mut model = asked_again(nodes, Phase::NodeUpgrading);
    set_state(&mut model, "node-1", state);
    add_job(&mut model, step, "node-1", outcome);
    let decision = model.decide();
    let deletes = decision
        .actions
        .iter()
        .any(|action| matches!(action, Action::DeleteJob { .. }));
    assert_eq!(waits_for(&decision) == ["StillRunning"], deletes);
    assert_eq!(phase(&decision) == "Failed", deletes);
    deletes
}

#[rstest]
#[case::of_the_step_that_failed(3, NodeState::PreDrainFailed, JobType::PreDrain, true)]
#[case::of_another_step(3, NodeState::PostDrainFailed, JobType::PreDrain, false)]
#[case::came_back_old(3, NodeState::PostDrainFailed, JobType::PostDrain, true)]
#[case::on_a_single_node(1, NodeState::SingleNodeUpgradeFailed, JobType::SingleNodeUpgrade, true)]
#[case::went_well(3, NodeState::PostDrained, JobType::PostDrain, false)]
#[case::starts_vms_of_a_node_that_is_done(3, NodeState::PostDrained, JobType::RestoreVm, false)]
#[case::starts_vms_of_a_node_that_is_not(3, NodeState::PreDrained, JobType::RestoreVm, true)]
fn a_job_that_ended_well_is_in_the_way_when_its_step_is_repeated(
    #[case] nodes: usize,
    #[case] state: NodeState,
    #[case] step: JobType,
    #[case] expected: bool,
) {
    assert_eq!(is_deleted(nodes, state, step, JobOutcome::Complete), expected);
    assert!(is_deleted(nodes, state, step, failed()), "one that failed always is");
}

#[test]
fn what_is_being_deleted_is_waited_for_and_not_deleted_again() {
    let mut model = asked_again(3, Phase::NodeUpgrading);
    add_job(&mut model, JobType::PreDrain, "node-1", failed());
    for job in model.observed.jobs.values_mut() {
        job.deleting = true;
    }
    let decision = model.decide();
    assert_eq!(decision.actions, []);
    assert_eq!(waits_for(&decision), ["StillRunning"]);
}

#[rstest]
#[case::its_plan_is_there(Some(false), 1)]
#[case::its_plan_goes(Some(true), 0)]
#[case::its_plan_is_gone(None, 0)]
fn a_job_of_a_plan_goes_with_the_plan(#[case] deleting: Option<bool>, #[case] deletions: usize) {
    let mut model = asked_again(3, Phase::ImagePreloading);
    let job = ObservedJob {
        namespace: "cattle-system".to_owned(),
        component: Component::ImagePreload,
        owner: Some("suc".to_owned()),
        outcome: failed(),
        ..ObservedJob::default()
    };
    model.observed.jobs.insert("cattle-system/apply-x".to_owned(), job);
    if let Some(deleting) = deleting {
        let plan = ObservedSucPlan {
            uid: Some("suc".to_owned()),
            deleting,
            ..ObservedSucPlan::default()
        };
        model.observed.suc_plans.insert(Component::ImagePreload, plan);
    }
    let decision = model.decide();
    assert_eq!(decision.actions.len(), deletions, "{:?}", decision.actions);
    let said = decision.status.waiting_for[0].message.clone().unwrap_or_default();
    assert!(said.contains("cattle-system/apply-x"), "{said}");
}

#[test]
fn a_left_over_job_is_in_the_way_whatever_it_says() {
    let mut model = asked_again(3, Phase::ImagePreloading);
    let job = ObservedJob {
        component: Component::ImagePreload,
        owner: Some("gone".to_owned()),
        left_over: true,
        ..ObservedJob::default()
    };
    model.observed.jobs.insert("cattle-system/apply-x".to_owned(), job);
    assert_eq!(waits_for(&model.decide()), ["StillRunning"]);
}

#[rstest]
#[case(NodeState::PreDrainFailed, true)]
#[case(NodeState::ImagePreloadFailed, true)]
#[case(NodeState::ImageCleanFailed, true)]
#[case(NodeState::PreDrained, false)]
#[case(NodeState::PostDrained, false)]
fn only_a_node_whose_step_failed_says_that_it_is_tried_again(#[case] state: NodeState, #[case] expected: bool) {
    let mut model = asked_again(3, Phase::NodeUpgrading);
    set_state(&mut model, "node-1", state);
    let entry = status(&mut model).node_upgrade_statuses.get_mut("node-1").unwrap();
    entry.message = Some("tried again after: it broke".to_owned());
    let decision = model.decide();
    assert_eq!(
        reached(&decision, "node-1"),
        (Some(state), expected.then_some(reasons::RETRYING))
    );
    let said = decision.status.node_upgrade_statuses["node-1"].message.clone();
    assert_eq!(
        said.as_deref(),
        Some("tried again after: it broke"),
        "once, however often"
    );
}

#[test]
fn a_plan_that_runs_records_which_request_it_is_for() {
    let mut model = in_phase(Phase::ISODownloading);
    let retried = |model: &Model| {
        model
            .decide()
            .status
            .notes
            .unwrap_or_default()
            .remove(annotations::RETRIED)
    };
    assert_eq!(retried(&model), None);
    model.observed.plan.metadata.annotations = Some([(annotations::RETRY.to_owned(), "1".to_owned())].into());
    assert_eq!(retried(&model).as_deref(), Some("1"));
}
