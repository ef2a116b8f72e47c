//! Programs that still run when a plan ends, and those that start VMs again.

use api::{Component, JobType, Phase, annotations};
use jiff::SignedDuration;
use plan::{
    Action, Child,
    observed::{JobOutcome, ObservedJob, ObservedPod},
};
use rstest::rstest;

use crate::{
    model::Model,
    restore_at_end::{
        Ending::{self, Deletion, Failure, Success},
        ending, is_over,
    },
    small::{add_job, failed, node_job, note, pod, status, waits, waits_for},
};

/// A world in which VMs of node-1 were stopped.
fn stopped_vms(end: Ending) -> Model {
    let mut model = ending(end);
    model.observed.restore_list = [("node-1".to_owned(), "default/web".to_owned())].into();
    model
}

#[rstest]
fn vms_that_were_stopped_are_started_again_unless_the_upgrade_succeeded(
    #[values(Success, Failure, Deletion)] end: Ending,
) {
    let create = Action::Create(Child::RestoreJob {
        node: "node-1".to_owned(),
    });
    let mut model = stopped_vms(end);
    assert_eq!(model.decide().actions.contains(&create), end != Success);
    for spoil in [
        (|model: &mut Model| model.observed.plan.spec.restore_vm = None) as fn(&mut Model),
        |model| model.observed.restore_list = [("node-1".to_owned(), String::new())].into(),
        |model| model.observed.nodes.get_mut("node-1").unwrap().witness = true,
        // First everything else is restored.
        |model| model.observed.repo.deployment_ready = Some(true),
    ] {
        let mut model = stopped_vms(end);
        spoil(&mut model);
        assert!(!model.decide().actions.contains(&create));
    }
    add_job(&mut model, JobType::RestoreVm, "node-1", JobOutcome::Running);
    let decision = model.decide();
    assert_eq!(
        is_over(&decision),
        end != Deletion,
        "the list of VMs goes with the plan"
    );
    assert_eq!(waits_for(&decision).contains(&"RestoreVM"), end == Deletion);
    if end == Deletion {
        model.apply(&decision);
        model.now += SignedDuration::from_mins(20);
        assert!(is_over(&model.decide()), "but not for ever");
    }
    add_job(&mut model, JobType::RestoreVm, "node-1", failed());
    assert!(is_over(&model.decide()));
}

#[test]
fn nothing_is_restored_while_a_pod_may_still_change_it() {
    let mut model = ending(Deletion);
    let mut working = pod(JobType::PreDrain, "node-1");
    working.works = true;
    model.observed.pods.insert("p".to_owned(), working);
    note(&mut model, annotations::DESCHEDULER_WAS_ENABLED, "true");
    model.observed.descheduler_enabled = Some(false);
    let decision = model.decide();
    assert_eq!(decision.actions, []);
    assert_eq!(waits_for(&decision), ["StillRunning"]);
    assert!(waits(&decision)[0].contains("Pod pre-drain-node-1 on node node-1"));
    model.apply(&decision);
    model.now += SignedDuration::from_mins(10);
    let given_up = model.decide();
    assert_eq!(given_up.actions, [Action::EnableDescheduler { enabled: true }]);
}

/// What is said to run still, in a plan that ends so.
fn still_running(model: &Model) -> String {
    let decision = model.decide();
    let said = waits(&decision)
        .into_iter()
        .find(|wait| wait.starts_with("StillRunning"))
        .unwrap_or_default();
    let names = said
        .split_once("have ended: ")
        .map(|(_, names)| names.to_owned())
        .unwrap_or_default();
    names
        .split_once(';')
        .map(|(names, _)| names.to_owned())
        .unwrap_or_default()
}

fn with_job(end: Ending, change: impl Fn(&mut ObservedJob)) -> Model {
    let mut model = ending(end);
    let mut job = node_job(JobType::PreDrain, "node-1");
    change(&mut job);
    model.observed.jobs.insert("j".to_owned(), job);
    model
}

#[rstest]
fn a_job_that_changes_the_cluster_and_runs_is_waited_for(#[values(Success, Failure, Deletion)] end: Ending) {
    let job = "Job harvester-system/j";
    assert_eq!(still_running(&with_job(end, |_| ())), job);
    assert_eq!(
        still_running(&with_job(end, |job| job.outcome = JobOutcome::Complete)),
        ""
    );
    assert_eq!(still_running(&with_job(end, |job| job.suspended = true)), "");
    assert_eq!(
        still_running(&with_job(end, |job| job.job_type = Some(JobType::RestoreVm))),
        ""
    );
    let of_cluster = |job: &mut ObservedJob| (job.component, job.job_type) = (Component::ClusterUpgrade, None);
    assert_eq!(still_running(&with_job(end, of_cluster)), job);
    // After a failure a node that installs its system is allowed to end, and nothing is restored meanwhile.
    let installs = |job: &mut ObservedJob| job.job_type = Some(JobType::PostDrain);
    let expected = if end == Failure { "" } else { job };
    assert_eq!(still_running(&with_job(end, installs)), expected);
    let goes = |job: &mut ObservedJob| (job.job_type, job.deleting) = (Some(JobType::PostDrain), true);
    assert_eq!(still_running(&with_job(end, goes)), job);
    let of_plan = |job: &mut ObservedJob| {
        (job.component, job.job_type, job.owner) = (Component::ImagePreload, None, Some("suc".to_owned()));
    };
    assert_eq!(still_running(&with_job(end, of_plan)), job);
}

#[rstest]
#[case(Component::ImagePreload, true)]
#[case(Component::ImageCleanup, true)]
#[case(Component::SuspendAgent, true)]
#[case(Component::SkipManifestsApply, true)]
#[case(Component::SkipManifestsRemove, false)]
#[case(Component::ImageCheck, false)]
#[case(Component::Repo, false)]
fn only_programs_that_change_the_cluster_are_waited_for(#[case] component: Component, #[case] expected: bool) {
    let of = |job: &mut ObservedJob| (job.component, job.job_type, job.owner) = (component, None, Some("s".to_owned()));
    assert_eq!(!still_running(&with_job(Deletion, of)).is_empty(), expected);
}

#[rstest]
#[case::runs(Failure, false, false, true)]
#[case::runs_at_another_end(Deletion, false, false, false)]
#[case::is_paused(Failure, true, false, false)]
#[case::goes_already(Failure, false, true, false)]
fn after_a_failure_a_job_whose_changes_are_restored_is_stopped(
    #[case] end: Ending,
    #[case] suspended: bool,
    #[case] deleting: bool,
    #[case] expected: bool,
) {
    for (component, step, stopped) in [
        (Component::NodeUpgrade, Some(JobType::PreDrain), true),
        (Component::ClusterUpgrade, None, true),
        (Component::NodeUpgrade, Some(JobType::PostDrain), false),
    ] {
        let model = with_job(end, |job| {
            (job.component, job.job_type, job.suspended, job.deleting) = (component, step, suspended, deleting);
        });
        let decision = model.decide();
        let deletes = decision
            .actions
            .iter()
            .any(|action| matches!(action, Action::DeleteJob { .. }));
        assert_eq!(deletes, expected && stopped, "{component} {step:?}");
        let ended = with_job(end, |job| {
            (job.component, job.job_type, job.outcome) = (component, step, failed())
        });
        let actions = ended.decide().actions;
        assert!(!actions.iter().any(|action| matches!(action, Action::DeleteJob { .. })));
    }
}

#[test]
fn where_the_pod_is_known_it_says_more_than_its_job() {
    let mut model = with_job(Deletion, |_| ());
    let mut working = pod(JobType::PreDrain, "node-1");
    working.works = true;
    model.observed.pods.insert("p".to_owned(), working.clone());
    assert_eq!(still_running(&model), "Pod pre-drain-node-1 on node node-1");
    model.observed.pods.insert(
        "p".to_owned(),
        ObservedPod {
            node: None,
            ..working.clone()
        },
    );
    assert_eq!(still_running(&model), "Pod pre-drain-node-1");
    let other = ObservedPod {
        owner: Some("other".to_owned()),
        ..working.clone()
    };
    model.observed.pods.insert("p".to_owned(), other);
    assert_eq!(
        still_running(&model),
        "Job harvester-system/j, Pod pre-drain-node-1 on node node-1"
    );
    model.observed.pods.insert(
        "p".to_owned(),
        ObservedPod {
            works: false,
            ..working.clone()
        },
    );
    assert_eq!(still_running(&model), "Job harvester-system/j");
    model.observed.pods.insert(
        "p".to_owned(),
        ObservedPod {
            component: Component::Repo,
            ..working.clone()
        },
    );
    assert_eq!(still_running(&model), "Job harvester-system/j");
    // The pod of a Job that runs on is that Job's affair.
    let mut kept = with_job(Failure, |job| job.job_type = Some(JobType::PostDrain));
    let of_kept = ObservedPod {
        owner: kept.observed.jobs["j"].uid.clone(),
        job_type: Some(JobType::PostDrain),
        ..working
    };
    kept.observed.pods.insert("p".to_owned(), of_kept);
    assert_eq!(still_running(&kept), "");
    kept.observed.jobs.get_mut("j").unwrap().outcome = JobOutcome::Complete;
    assert_eq!(
        still_running(&kept),
        "Pod pre-drain-node-1 on node node-1",
        "its Job has ended, and it has not"
    );
}

#[rstest]
#[case(5, "")]
#[case(6, ", 1 more")]
#[case(7, ", 2 more")]
fn of_many_programs_five_are_named(#[case] count: usize, #[case] more: &str) {
    let mut model = ending(Deletion);
    for number in 1..=count {
        let mut working = pod(JobType::PreDrain, &format!("node-{number}"));
        (working.works, working.node) = (true, None);
        model.observed.pods.insert(format!("p{number}"), working);
    }
    let named: Vec<String> = (1..=5).map(|number| format!("Pod pre-drain-node-{number}")).collect();
    assert_eq!(still_running(&model), format!("{}{more}", named.join(", ")));
}

#[test]
fn a_plan_that_has_ended_or_never_began_is_released_without_a_change() {
    let mut ended = ending(Deletion);
    status(&mut ended).current_phase = Some(Phase::Succeeded.to_string());
    status(&mut ended).conditions = vec![k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition {
        type_: api::reasons::AVAILABLE.to_owned(),
        status: "False".to_owned(),
        reason: api::reasons::EXECUTED.to_owned(),
        message: String::new(),
        last_transition_time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(ended.now),
        observed_generation: None,
    }];
    ended.observed.nodes.get_mut("node-1").unwrap().pending_os_image = Some("os".to_owned());
    let mut new = ended.clone();
    new.observed.plan.status = None;
    for model in [ended.clone(), new] {
        let decision = model.decide();
        assert!(
            !decision.finalizer && decision.actions.is_empty(),
            "{:?}",
            decision.actions
        );
    }
    status(&mut ended).conditions.clear();
    assert!(!ended.decide().actions.is_empty(), "it has not been restored yet");
}

#[test]
fn a_job_that_was_just_created_counts_when_the_plan_is_deleted() {
    let mut model = ending(Deletion);
    status(&mut model).current_phase = Some(Phase::NodeUpgrading.to_string());
    add_job(&mut model, JobType::PreDrain, "node-1", JobOutcome::Complete);
    model.observed.nodes.get_mut("node-1").unwrap().drain_taint = true;
    let untaint = Action::UntaintNode {
        node: "node-1".to_owned(),
    };
    assert!(model.decide().actions.contains(&untaint));
    status(&mut model).current_phase = Some(Phase::ImagePreloading.to_string());
    assert!(!model.decide().actions.contains(&untaint));
}
