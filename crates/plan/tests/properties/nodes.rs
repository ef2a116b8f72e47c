//! What the real Rancher, kubelets and programs do to nodes, and what follows from it (rows R-05 … R-60 of the reading of
//! their sources).

use api::{JobType, NodeState, Phase, annotations};
use plan::{
    Action, Child, Decision,
    observed::{JobOutcome, ObservedNode},
};

use crate::{
    model::{Model, OS},
    walk::{at, decide_and_apply, ended, fail, is_at, job, run_one_step, state, until},
};

fn created(decision: &Decision) -> Vec<(JobType, &str)> {
    let actions = decision.actions.iter();
    actions
        .filter_map(|action| match action {
            Action::Create(Child::NodeJob { job_type, node, .. }) => Some((*job_type, node.as_str())),
            _ => None,
        })
        .collect()
}

fn ask(model: &mut Model, node: &str, pre: &str) {
    let plans = &mut model.observed.machine_plans;
    let plan = plans.iter_mut().find(|plan| plan.node.as_deref() == Some(node));
    plan.unwrap().pre_drain = Some(pre.to_owned());
}

#[test]
fn r05_no_hook_job_starts_while_another_node_is_in_flight_and_the_wait_names_it() {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model.observed.jobs.contains_key(&job(JobType::PreDrain, "node-1"))
    });
    // Rancher lets a machine past its limit.
    ask(&mut model, "node-2", "past");
    for _ in 0..3 {
        assert_eq!(created(&decide_and_apply(&mut model)), []);
    }
    let waits = &model.observed.plan.status.as_ref().unwrap().waiting_for;
    let turn = waits.iter().find(|wait| wait.what == "Turn").unwrap();
    assert_eq!(turn.object.as_deref(), Some("Node node-2"));
    assert!(turn.message.as_ref().unwrap().contains("node-1"), "{turn:?}");
    assert!(turn.deadline.is_some());
    // Until the first has its last answer.
    until(&mut model, |model| {
        let is_through = model.observed.machine_plans[0].post_hook.is_some();
        let begun = model.observed.jobs.contains_key(&job(JobType::PreDrain, "node-2"));
        assert!(
            is_through || !begun,
            "node-2 was begun while node-1 was {:?}",
            state(model, "node-1")
        );
        begun
    });
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Succeeded));
}

#[test]
fn r05_a_node_that_is_done_is_not_drained_once_more_while_another_is_in_flight() {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model.observed.jobs.contains_key(&job(JobType::PreDrain, "node-2"))
    });
    assert_eq!(state(&model, "node-1"), Some(NodeState::PostDrained));
    let plan = &mut model.observed.machine_plans[0];
    (plan.pre_hook, plan.post_drain, plan.post_hook) = (None, None, None);
    ask(&mut model, "node-1", "once more");
    for _ in 0..3 {
        decide_and_apply(&mut model);
        assert_eq!(model.observed.machine_plans[0].pre_hook, None);
    }
    let waits = &model.observed.plan.status.as_ref().unwrap().waiting_for;
    assert!(waits.iter().any(|wait| wait.what == "Turn"), "{waits:?}");
    // The node that was in flight is gone: now it is its turn. What would be killed with it goes first.
    model.observed.nodes.remove("node-2");
    model
        .observed
        .immovable_vms
        .insert("node-1".into(), vec!["default/gpu".into()]);
    for _ in 0..3 {
        decide_and_apply(&mut model);
        assert_eq!(model.observed.machine_plans[0].pre_hook, None);
    }
    let waits = &model.observed.plan.status.as_ref().unwrap().waiting_for;
    let said = waits.iter().find(|wait| wait.what == "ImmovableVMs").unwrap();
    assert!(said.message.as_ref().unwrap().contains("default/gpu"), "{said:?}");
    model.observed.immovable_vms.remove("node-1");
    until(&mut model, |model| model.observed.machine_plans[0].pre_hook.is_some());
}

#[test]
fn r05_two_nodes_that_are_in_flight_already_continue_one_after_the_other() {
    let mut model = Model::new(3);
    until(&mut model, is_at("node-1", NodeState::PreDrained));
    for node in ["node-1", "node-2"] {
        let plan = model
            .observed
            .machine_plans
            .iter_mut()
            .find(|plan| plan.node.as_deref() == Some(node));
        let plan = plan.unwrap();
        (plan.pre_drain, plan.pre_hook) = (Some("x".into()), Some("x".into()));
        plan.post_drain = Some("x".into());
    }
    let decision = decide_and_apply(&mut model);
    assert_eq!(created(&decision), [(JobType::PostDrain, "node-1")]);
    let decision = decide_and_apply(&mut model);
    assert_eq!(created(&decision), []);
    model
        .observed
        .jobs
        .get_mut(&job(JobType::PostDrain, "node-1"))
        .unwrap()
        .outcome = JobOutcome::Complete;
    decide_and_apply(&mut model);
    let node = model.observed.nodes.get_mut("node-1").unwrap();
    (node.os_image, node.boot_id) = (OS.into(), "again".into());
    // The answer first, then the next node.
    assert_eq!(created(&decide_and_apply(&mut model)), []);
    assert_eq!(created(&decide_and_apply(&mut model)), [(JobType::PostDrain, "node-2")]);
}

/// A plan that begins where another one was deleted: node-1 is through, node-2 is past its first hook and asked for its
/// second.
fn taking_over() -> Model {
    let mut model = Model::new(3);
    until(&mut model, at(Phase::ClusterUpgraded));
    let cluster = model.observed.cluster.as_mut().unwrap();
    cluster.kubernetes_version = Some("v1.35.2+rke2r1".into());
    cluster.provision_generation = 1;
    cluster.upgrade_strategy = Some(serde_json::json!({"controlPlaneDrainOptions": {"preDrainHooks": [
        {"annotation": annotations::PRE_HOOK}]}}));
    cluster.saved_upgrade_strategy = Some("null".into());
    let node = model.observed.nodes.get_mut("node-1").unwrap();
    (node.os_image, node.kubelet_version) = (OS.into(), "v1.35.2+rke2r1".into());
    model.observed.machine_plans[0].post_hook = Some("node-1-post".into());
    let plan = &mut model.observed.machine_plans[1];
    (plan.pre_drain, plan.pre_hook) = (Some("token".into()), Some("token".into()));
    plan.post_drain = Some("token".into());
    model.observed.nodes.get_mut("node-2").unwrap().kubelet_version = "v1.35.2+rke2r1".into();
    model
}

#[test]
fn r07_a_plan_that_takes_over_is_where_the_answered_hook_says_and_continues() {
    let mut model = taking_over();
    until(&mut model, |model| {
        model.observed.jobs.contains_key(&job(JobType::PostDrain, "node-2"))
    });
    assert_eq!(state(&model, "node-1"), Some(NodeState::PostDrained));
    assert!(
        !model.observed.jobs.contains_key(&job(JobType::PreDrain, "node-2")),
        "it is past that"
    );
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Succeeded));
}

#[test]
fn r07_a_node_that_is_current_already_is_answered_for_without_a_job() {
    let mut model = taking_over();
    model.observed.nodes.get_mut("node-2").unwrap().os_image = OS.into();
    until(&mut model, is_at("node-2", NodeState::PostDrained));
    until(&mut model, |model| {
        model.observed.machine_plans[1].post_hook.as_deref() == Some("token")
    });
    assert!(!model.observed.jobs.contains_key(&job(JobType::PostDrain, "node-2")));
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Succeeded));
}

#[test]
fn r07_a_node_that_is_still_tainted_has_its_job_though_it_is_current() {
    let mut model = taking_over();
    let node = model.observed.nodes.get_mut("node-2").unwrap();
    node.os_image = OS.into();
    node.drain_taint = true;
    until(&mut model, |model| {
        model.observed.jobs.contains_key(&job(JobType::PostDrain, "node-2"))
    });
}

#[test]
fn r07_from_a_version_to_itself_a_node_is_through_only_when_rancher_says_so() {
    let mut model = taking_over();
    for node in model.observed.nodes.values_mut() {
        (node.os_image, node.kubelet_version) = (OS.into(), "v1.35.2+rke2r1".into());
    }
    until(&mut model, |model| model.observed.machine_plans[1].post_hook.is_some());
    for _ in 0..3 {
        decide_and_apply(&mut model);
    }
    assert_eq!(
        state(&model, "node-3"),
        Some(NodeState::ImagePreloaded),
        "Rancher has not come to it yet"
    );
    model.observed.cluster.as_mut().unwrap().ready = true;
    decide_and_apply(&mut model);
    assert_eq!(state(&model, "node-3"), Some(NodeState::PostDrained));
}

#[test]
fn r09_a_node_that_harvester_does_not_manage_yet_is_waited_for_by_name() {
    let mut model = Model::new(1);
    let joined = ObservedNode {
        ready: true,
        ..ObservedNode::default()
    };
    model.observed.nodes.insert("node-9".into(), joined);
    for _ in 0..4 {
        decide_and_apply(&mut model);
    }
    assert_eq!(model.phase(), Some(Phase::Initializing));
    let waits = &model.observed.plan.status.as_ref().unwrap().waiting_for;
    assert_eq!(waits[0].object.as_deref(), Some("Node node-9"));
    model.observed.nodes.get_mut("node-9").unwrap().managed = true;
    until(&mut model, at(Phase::Initialized));
    assert_eq!(
        model.observed.plan.status.as_ref().unwrap().single_node,
        None,
        "two nodes are not one"
    );
}

#[test]
fn r09_the_only_node_of_all_is_a_single_node() {
    let mut model = Model::new(1);
    until(&mut model, at(Phase::Initialized));
    assert_eq!(
        model.observed.plan.status.as_ref().unwrap().single_node.as_deref(),
        Some("node-1")
    );
}

#[test]
fn r09_a_node_that_joins_before_a_single_node_stops_its_vms_fails_the_plan() {
    let joined = ObservedNode {
        ready: true,
        managed: true,
        ..ObservedNode::default()
    };
    let mut model = Model::new(1);
    until(&mut model, at(Phase::ClusterUpgraded));
    model.observed.nodes.insert("node-9".into(), joined.clone());
    until(&mut model, at(Phase::Failed));
    assert!(
        model.observed.jobs.is_empty()
            || !model
                .observed
                .jobs
                .contains_key(&job(JobType::SingleNodeUpgrade, "node-1"))
    );
    let why = model.observed.plan.condition(api::reasons::PROGRESSING).unwrap();
    assert!(why.message.contains("Node node-9 joined"), "{}", why.message);
    // What has begun continues.
    let mut model = Model::new(1);
    let name = job(JobType::SingleNodeUpgrade, "node-1");
    until(&mut model, |model| model.observed.jobs.contains_key(&name));
    model.observed.nodes.insert("node-9".into(), joined);
    decide_and_apply(&mut model);
    assert_eq!(model.phase(), Some(Phase::NodeUpgrading));
}

#[test]
fn r22_the_taint_that_a_pre_drain_job_set_goes_with_a_failed_or_deleted_plan() {
    for (deleted, noted) in [(false, true), (true, true), (true, false)] {
        let mut model = Model::new(3);
        let name = job(JobType::PreDrain, "node-1");
        until(&mut model, |model| model.observed.jobs.contains_key(&name));
        // A manager that dies when it has created the Job has not noted that it runs.
        if noted {
            decide_and_apply(&mut model);
            assert_eq!(state(&model, "node-1"), Some(NodeState::PreDraining));
        }
        for node in ["node-1", "node-3"] {
            model.observed.nodes.get_mut(node).unwrap().drain_taint = true;
        }
        if deleted {
            let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(model.now);
            model.observed.plan.metadata.deletion_timestamp = Some(now);
            for _ in 0..20 {
                run_one_step(&mut model);
            }
            assert!(
                model.observed.plan.metadata.finalizers.is_none(),
                "{:#?}",
                model.observed.plan.status
            );
        } else {
            fail(&mut model, &name);
            until(&mut model, ended);
        }
        assert!(!model.observed.nodes["node-1"].drain_taint, "deleted: {deleted}");
        assert!(
            model.observed.nodes["node-3"].drain_taint,
            "of another client: deleted: {deleted}"
        );
    }
}

#[test]
fn r23_a_node_with_the_kubelet_of_a_candidate_is_recognised() {
    let mut model = taking_over();
    until(&mut model, at(Phase::ClusterUpgraded));
    let candidate = "v1.35.2-rc3+rke2r1";
    let mut status = model.observed.plan.status.clone().unwrap();
    status.release_metadata.as_mut().unwrap().kubernetes = Some(candidate.into());
    model.observed.plan.status = Some(status);
    model.observed.cluster.as_mut().unwrap().kubernetes_version = Some(candidate.into());
    until(&mut model, is_at("node-1", NodeState::PostDrained));
}

#[test]
fn r60_the_answer_is_to_the_question_that_is_asked_now() {
    let mut model = Model::new(3);
    until(&mut model, |model| model.observed.machine_plans[0].pre_hook.is_some());
    // A user changes the drain options: Rancher starts over and sets the hook with another token.
    ask(&mut model, "node-1", "other options");
    decide_and_apply(&mut model);
    assert_eq!(
        model.observed.machine_plans[0].pre_hook.as_deref(),
        Some("other options")
    );
    // The same while its VMs leave: the answer is to the newest question.
    until(&mut model, |model| {
        model.observed.jobs.contains_key(&job(JobType::PreDrain, "node-2"))
    });
    ask(&mut model, "node-2", "newer");
    until(&mut model, |model| model.observed.machine_plans[1].pre_hook.is_some());
    assert_eq!(model.observed.machine_plans[1].pre_hook.as_deref(), Some("newer"));
    until(&mut model, |model| model.observed.machine_plans[1].post_hook.is_some());
    model.observed.machine_plans[1].post_drain = Some("newest".into());
    decide_and_apply(&mut model);
    assert_eq!(model.observed.machine_plans[1].post_hook.as_deref(), Some("newest"));
}
