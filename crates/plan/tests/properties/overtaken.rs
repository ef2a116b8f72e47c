//! A retry of a plan after another plan has upgraded the cluster further: it never downgrades, and it ends.

use api::{Component, JobType, NodeState, Phase, annotations, names, reasons};
use jiff::SignedDuration;
use plan::observed::{OtherPlan, StartedUpgrade};
use rstest::rstest;

use crate::{
    model::{Model, OS},
    walk::{at, decide_and_apply, ended, fail, is_at, job, retry, state, until},
};

const KUBERNETES: &str = "v1.35.2+rke2r1";

/// An upgrade to v1.8.0 whose Job of the cluster has failed.
fn failed_with_components() -> Model {
    let mut model = Model::new(3);
    let job = names::cluster_job("up");
    until(&mut model, |model| model.observed.jobs.contains_key(&job));
    fail(&mut model, &job);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    model
}

/// An upgrade to v1.8.0 that has failed at a step of node-2, with node-1 through and our hooks in place.
fn failed_at(step: JobType) -> Model {
    let mut model = Model::new(3);
    let job = job(step, "node-2");
    until(&mut model, |model| model.observed.jobs.contains_key(&job));
    fail(&mut model, &job);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    through(&mut model, "node-1");
    model
}

/// A node that was upgraded to the release, and that Rancher has uncordoned.
fn through(model: &mut Model, name: &str) {
    let node = model.observed.nodes.get_mut(name).unwrap();
    (node.os_image, node.kubelet_version) = (OS.into(), KUBERNETES.into());
    node.boot_id = format!("{name}-another");
    let mut plans = model.observed.machine_plans.iter_mut();
    let plan = plans.find(|plan| plan.node.as_deref() == Some(name)).unwrap();
    (plan.pre_drain, plan.pre_hook, plan.post_drain) = (None, None, None);
    plan.post_hook = Some("token".into());
}

/// A younger plan that has ended and had begun to upgrade components to a version.
fn another(model: &Model, harvester: &str, after: SignedDuration) -> OtherPlan {
    OtherPlan {
        name: "younger".into(),
        uid: "z".into(),
        created: Some(model.now),
        active: false,
        saved_upgrade_strategy: None,
        begun: Some(StartedUpgrade {
            at: model.now + after,
            harvester: harvester.into(),
            os: format!("Harvester {harvester}"),
            nodes_done_at: Some(model.now + after),
        }),
    }
}

fn final_messages(model: &Model) -> String {
    model
        .observed
        .plan
        .condition(reasons::PROGRESSING)
        .unwrap()
        .message
        .clone()
}

/// The retry ends at once: nothing is done, the plan has the reason, and the request is recorded.
fn is_refused(mut model: Model, words: &[&str]) {
    retry(&mut model, "1");
    let decision = decide_and_apply(&mut model);
    assert_eq!(decision.actions, []);
    assert_eq!(model.phase(), Some(Phase::Failed));
    for word in words {
        assert!(
            final_messages(&model).contains(word),
            "{word}: {}",
            final_messages(&model)
        );
    }
    assert!(ended(&model));
    assert!(plan::decide::is_settled(&model.observed.plan), "the request is refused");
    let status = model.observed.plan.status.as_ref().unwrap();
    let last = status.phase_transition_timestamps.last().unwrap();
    assert_eq!(
        last.message.as_deref(),
        Some(final_messages(&model).as_str()),
        "it is on record"
    );
    // Also for who never looks at a condition twice.
    assert_eq!(decide_and_apply(&mut model).actions, []);
    assert_eq!(model.phase(), Some(Phase::Failed));
}

#[rstest]
#[case::a_newer_release("v1.8.1")]
#[case::a_newer_line("v1.9.0-rc1")]
#[case::a_build_of_unknown_order("master-head")]
fn a_try_that_would_take_the_cluster_back_is_refused(#[case] runs: &str) {
    let mut model = failed_with_components();
    model.observed.server_version = Some(runs.into());
    is_refused(model.clone(), &[runs, "v1.8.0", "create"]);
    // Who skips the check of versions when the plan begins does not mean this.
    model.observed.plan.spec.force = Some(true);
    is_refused(model, &[runs]);
}

#[test]
fn a_try_after_another_plan_has_begun_with_a_newer_release_is_refused() {
    let mut model = failed_with_components();
    model.observed.other_plans = vec![another(&model, "v1.8.1", SignedDuration::from_mins(1))];
    is_refused(model, &["younger", "v1.8.1"]);
}

#[rstest]
#[case::long_before("v1.8.1", SignedDuration::from_hours(-24))]
#[case::with_the_same_release("v1.8.0", SignedDuration::from_mins(1))]
#[case::with_an_older_one("v1.7.2", SignedDuration::from_mins(1))]
fn a_plan_that_did_not_go_further_blocks_no_other(#[case] harvester: &str, #[case] after: SignedDuration) {
    let mut model = failed_with_components();
    model.observed.other_plans = vec![another(&model, harvester, after)];
    retry(&mut model, "1");
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
}

#[test]
fn a_try_after_a_smaller_upgrade_begins_at_the_beginning_from_what_runs_now() {
    let mut model = failed_with_components();
    model.observed.server_version = Some("v1.7.2".into());
    retry(&mut model, "1");
    until(&mut model, |model| model.phase() == Some(Phase::Initialized));
    let status = model.observed.plan.status.as_ref().unwrap();
    assert_eq!(status.previous_version.as_deref(), Some("v1.7.2"));
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
}

#[test]
fn a_try_after_its_own_release_runs_already_continues_where_it_was() {
    let mut model = failed_with_components();
    model.observed.server_version = Some("v1.8.0".into());
    retry(&mut model, "1");
    until(&mut model, |model| model.phase() != Some(Phase::Failed));
    assert_eq!(model.phase(), Some(Phase::ImagePreloaded));
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
}

#[rstest]
#[case(JobType::PreDrain)]
#[case(JobType::PostDrain)]
fn r07_a_node_that_another_plan_brought_through_is_done_for_a_retry(#[case] step: JobType) {
    let mut model = failed_at(step);
    // The other plan failed at node-3.
    through(&mut model, "node-2");
    retry(&mut model, "1");
    until(&mut model, at(Phase::NodeUpgrading));
    until(&mut model, is_at("node-2", NodeState::PostDrained));
    assert!(!model.observed.jobs.contains_key(&job(step, "node-2")), "it is done");
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Succeeded));
}

#[test]
fn r07_a_retry_after_another_plan_has_succeeded_finds_all_done() {
    let mut model = failed_at(JobType::PostDrain);
    through(&mut model, "node-2");
    through(&mut model, "node-3");
    model.observed.cluster.as_mut().unwrap().ready = true;
    retry(&mut model, "1");
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
    assert_eq!(state(&model, "node-3"), Some(NodeState::ImageCleaned));
    assert!(!model.observed.jobs.contains_key(&job(JobType::PreDrain, "node-3")));
}

#[test]
fn r07_a_hook_that_another_client_answered_is_behind_a_retry() {
    let mut model = failed_at(JobType::PreDrain);
    let plan = &mut model.observed.machine_plans[1];
    plan.pre_hook.clone_from(&plan.pre_drain);
    assert!(plan.pre_drain.is_some());
    retry(&mut model, "1");
    until(&mut model, at(Phase::NodeUpgrading));
    until(&mut model, is_at("node-2", NodeState::PreDrained));
    assert!(!model.observed.jobs.contains_key(&job(JobType::PreDrain, "node-2")));
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Succeeded));
}

#[test]
fn a_single_node_that_another_plan_upgraded_is_done_for_a_retry() {
    let mut model = Model::new(1);
    let job = job(JobType::SingleNodeUpgrade, "node-1");
    until(&mut model, |model| model.observed.jobs.contains_key(&job));
    fail(&mut model, &job);
    until(&mut model, ended);
    through(&mut model, "node-1");
    retry(&mut model, "1");
    until(&mut model, is_at("node-1", NodeState::SingleNodeUpgraded));
    assert!(!model.observed.jobs.contains_key(&job), "its VMs are not stopped again");
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Succeeded));
}

/// An upgrade to v1.8.0 that has failed before it sent Rancher off: the Jobs that make RKE2 skip its manifests.
fn failed_before_rancher() -> Model {
    let mut model = Model::new(3);
    let job = format!("apply-{}-node-1", Component::SkipManifestsApply);
    until(&mut model, |model| model.observed.jobs.contains_key(&job));
    assert!(model.observed.plan.note(annotations::SAVED_UPGRADE_STRATEGY).is_some());
    fail(&mut model, &job);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    assert_eq!(model.observed.plan.status.as_ref().unwrap().provision_generation, None);
    model
}

#[test]
fn r07_a_retry_takes_over_from_a_plan_that_sent_rancher_off_in_the_meantime() {
    let mut model = failed_before_rancher();
    // The other plan failed at the pre-drain of node-2. Another generation would set Rancher on the first node again, which
    // waits for node-2, which waits for Rancher.
    gate_is_closed(&mut model, Some(OS), KUBERNETES);
    through(&mut model, "node-1");
    retry(&mut model, "1");
    until(&mut model, |model| {
        let status = model.observed.plan.status.as_ref().unwrap();
        status.provision_generation.is_some()
    });
    let cluster = model.observed.cluster.as_ref().unwrap();
    assert_eq!(cluster.provision_generation, 1, "Rancher is started once");
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Succeeded));
    let cluster = model.observed.cluster.as_ref().unwrap();
    assert_eq!(cluster.provision_generation, 1, "Rancher is started once");
    assert_eq!(
        cluster.upgrade_strategy,
        Some(serde_json::Value::Null),
        "as before both"
    );
}

#[rstest]
#[case::before_rancher(failed_before_rancher())]
#[case::in_the_middle_of_a_round(another_has_ended_the_round(failed_at(JobType::PreDrain)))]
fn what_a_user_changes_between_two_tries_is_restored_by_the_second(#[case] mut model: Model) {
    let changed = serde_json::json!({"workerConcurrency": "2"});
    model.observed.cluster.as_mut().unwrap().upgrade_strategy = Some(changed.clone());
    retry(&mut model, "1");
    until(&mut model, |model| {
        model.phase() == Some(Phase::Succeeded) && ended(model)
    });
    let cluster = model.observed.cluster.as_ref().unwrap();
    assert_eq!(cluster.upgrade_strategy, Some(changed));
}

/// Another plan has upgraded the other nodes, and restored what was there before both.
fn another_has_ended_the_round(mut model: Model) -> Model {
    let generation = model.observed.cluster.as_ref().unwrap().provision_generation;
    another_has_succeeded(&mut model);
    model.observed.cluster.as_mut().unwrap().provision_generation = generation;
    model
}

/// One that counts what runs now as what it began with, and another plan that has begun since it failed.
fn failed_first_of_two() -> Model {
    let mut model = failed_with_components();
    model.observed.plan.status.as_mut().unwrap().previous_version = Some("v1.8.0".into());
    model.observed.other_plans = vec![another(&model, "v1.8.0", SignedDuration::from_mins(1))];
    model
}

/// All nodes run the release, Rancher has uncordoned them, and no hooks are left: another plan has succeeded.
fn another_has_succeeded(model: &mut Model) {
    for node in ["node-1", "node-2", "node-3"] {
        through(model, node);
    }
    model.observed.server_version = Some("v1.8.0".into());
    let cluster = model.observed.cluster.as_mut().unwrap();
    (cluster.provision_generation, cluster.ready) = (1, true);
    cluster.kubernetes_version = Some(KUBERNETES.into());
}

#[rstest]
#[case::before_rancher(failed_before_rancher())]
#[case::components(failed_with_components())]
#[case::begun_again_from_what_runs_now(failed_first_of_two())]
fn r07_a_retry_after_another_plan_has_succeeded_drains_no_node(#[case] mut model: Model) {
    another_has_succeeded(&mut model);
    retry(&mut model, "1");
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
    assert_eq!(state(&model, "node-3"), Some(NodeState::ImageCleaned));
    let cluster = model.observed.cluster.as_ref().unwrap();
    assert_eq!(cluster.provision_generation, 1, "Rancher is not started again");
}

#[rstest]
#[case::a_node_is_old(|model: &mut Model| model.observed.nodes.get_mut("node-3").unwrap().os_image = "Harvester v1.7.1".into())]
#[case::a_kubelet_is_old(|model: &mut Model| model.observed.nodes.get_mut("node-3").unwrap().kubelet_version = "v1.34.0".into())]
#[case::rancher_is_at_work(|model: &mut Model| model.observed.cluster.as_mut().unwrap().ready = false)]
#[case::rancher_is_elsewhere(|model: &mut Model| {
    model.observed.cluster.as_mut().unwrap().kubernetes_version = Some("v1.34.0".into());
})]
// From a version to itself all nodes run it from the beginning.
#[case::to_itself(|model: &mut Model| {
    model.observed.plan.status.as_mut().unwrap().previous_version = Some("v1.8.0".into());
})]
// Another plan that failed with its components has upgraded no node.
#[case::to_itself_beside_one_that_failed(|model: &mut Model| {
    model.observed.plan.status.as_mut().unwrap().previous_version = Some("v1.8.0".into());
    let mut other = another(model, "v1.8.0", SignedDuration::from_mins(1));
    other.begun.as_mut().unwrap().nodes_done_at = None;
    model.observed.other_plans = vec![other];
})]
fn a_retry_sends_rancher_off_unless_all_is_done(#[case] change: fn(&mut Model)) {
    let mut model = failed_with_components();
    another_has_succeeded(&mut model);
    change(&mut model);
    retry(&mut model, "1");
    until(&mut model, |model| model.phase() != Some(Phase::Failed));
    until(&mut model, |model| {
        model.observed.cluster.as_ref().unwrap().provision_generation == 2 || ended(model)
    });
    assert!(!ended(&model), "Rancher is yet to be started");
}

/// A plan for v1.8.0 that begins where another plan has left Rancher's gate closed for a release.
fn behind_a_gate(os: Option<&str>, kubernetes: &str) -> Model {
    let mut model = Model::new(3);
    gate_is_closed(&mut model, os, kubernetes);
    model
}

/// Another plan has sent Rancher off to a release and failed at the pre-drain of node-2.
fn gate_is_closed(model: &mut Model, os: Option<&str>, kubernetes: &str) {
    let cluster = model.observed.cluster.as_mut().unwrap();
    cluster.kubernetes_version = Some(kubernetes.into());
    cluster.provision_generation = 1;
    cluster.upgrade_strategy = Some(serde_json::json!({"controlPlaneDrainOptions": {"preDrainHooks": [
        {"annotation": annotations::PRE_HOOK}]}}));
    cluster.saved_upgrade_strategy = Some("null".into());
    cluster.gated_release = os.map(str::to_owned);
    let plan = &mut model.observed.machine_plans[1];
    plan.pre_drain = Some("token".into());
}

#[rstest]
#[case::another_rke2("Harvester v1.7.9", "v1.34.9+rke2r1")]
#[case::another_system("Harvester v1.8.0-rc1", KUBERNETES)]
fn r07_a_plan_for_another_release_than_the_one_that_has_begun_with_nodes_changes_nothing(
    #[case] os: &str,
    #[case] kubernetes: &str,
) {
    let mut model = behind_a_gate(Some(os), kubernetes);
    let mut begun = another(&model, "v1.7.9", SignedDuration::ZERO);
    begun.begun.as_mut().unwrap().os = os.into();
    begun.name = "broken-off".into();
    model.observed.other_plans = vec![begun];
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    let said = final_messages(&model);
    for word in ["broken-off", os, kubernetes, "node-2", annotations::RETRY, "create"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    let history = &model.observed.plan.status.as_ref().unwrap().phase_transition_timestamps;
    assert!(!history.iter().any(|change| change.phase == "ImagePreloading"));
    // Another try is refused as well, until the release that has begun has come to its end.
    is_refused(model.clone(), &["broken-off", "node-2"]);
    let cluster = model.observed.cluster.as_mut().unwrap();
    (
        cluster.upgrade_strategy,
        cluster.saved_upgrade_strategy,
        cluster.gated_release,
    ) = (None, None, None);
    model.observed.machine_plans[1].pre_drain = None;
    retry(&mut model, "2");
    until(&mut model, |model| model.phase() == Some(Phase::Succeeded));
}

#[rstest]
#[case::on_record(Some(OS))]
#[case::of_an_older_manager(None)]
fn r07_a_plan_for_the_release_that_has_begun_continues(#[case] os: Option<&str>) {
    let mut model = behind_a_gate(os, KUBERNETES);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Succeeded));
}
