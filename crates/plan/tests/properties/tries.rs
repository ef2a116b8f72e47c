//! Retries, and a node that is resumed: states never go back.

use api::{JobType, NodeState, Phase, reasons};
use plan::{node::Stage, observed::JobOutcome};

use crate::{
    model::Model,
    walk::{decide_and_apply, ended, fail, is_at, job, reason, retry, run_one_step, state, until},
};

/// Runs to the end; states never go back on the way.
fn to_the_end(model: &mut Model) {
    let stages = |model: &Model| -> Vec<Option<Stage>> {
        let nodes = ["node-1", "node-2", "node-3"];
        nodes.map(|node| state(model, node).map(Stage::of)).to_vec()
    };
    let last = std::cell::RefCell::new(stages(model));
    until(model, |model| {
        let now = stages(model);
        let before = last.replace(now.clone());
        assert!(
            before.iter().zip(&now).all(|(before, now)| before <= now),
            "{before:?} → {now:?}"
        );
        model.phase() == Some(Phase::Succeeded) && ended(model)
    });
}

#[test]
fn r10_a_node_that_is_resumed_before_its_turn_stays_where_it_is_and_says_so() {
    let mut model = Model::new(3);
    model.observed.plan.spec.node_upgrade_option = Some(api::NodeUpgradeOption {
        pause_nodes: Some(vec!["node-3".into()]),
    });
    until(&mut model, is_at("node-3", NodeState::UpgradePaused));
    assert_eq!(reason(&model, "node-3"), Some(reasons::ADMINISTRATIVELY_PAUSED));
    model.observed.plan.spec.node_upgrade_option = None;
    run_one_step(&mut model);
    assert_eq!(state(&model, "node-3"), Some(NodeState::UpgradePaused));
    assert_eq!(reason(&model, "node-3"), Some(reasons::RELEASED));
    let waits = &model.observed.plan.status.as_ref().unwrap().waiting_for;
    assert!(
        waits.iter().all(|wait| wait.what != "Paused"),
        "it is not paused any more: {waits:?}"
    );
    to_the_end(&mut model);
}

#[test]
fn r10_a_pre_drain_that_is_tried_again_keeps_its_state_until_it_has_succeeded() {
    let mut model = Model::new(3);
    let name = job(JobType::PreDrain, "node-2");
    until(&mut model, |model| model.observed.jobs.contains_key(&name));
    fail(&mut model, &name);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    retry(&mut model, "1");
    until(&mut model, |model| {
        model.phase() == Some(Phase::NodeUpgrading) && model.observed.jobs.contains_key(&name)
    });
    decide_and_apply(&mut model);
    assert_eq!(state(&model, "node-2"), Some(NodeState::PreDrainFailed));
    assert_eq!(reason(&model, "node-2"), Some(reasons::RETRYING));
    assert_eq!(model.observed.jobs[&name].outcome, JobOutcome::Running);
    // It fails again: that is another failure.
    fail(&mut model, &name);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Failed));
    assert_eq!(reason(&model, "node-2"), Some("BackoffLimitExceeded"));
    retry(&mut model, "2");
    to_the_end(&mut model);
}

#[test]
fn r10_a_post_drain_that_is_tried_again_installs_and_reboots_while_its_state_stays() {
    let mut model = Model::new(3);
    let name = job(JobType::PostDrain, "node-1");
    until(&mut model, |model| model.observed.jobs.contains_key(&name));
    fail(&mut model, &name);
    until(&mut model, ended);
    retry(&mut model, "1");
    until(&mut model, |model| {
        model.phase() == Some(Phase::NodeUpgrading) && model.observed.jobs.contains_key(&name)
    });
    model.observed.jobs.get_mut(&name).unwrap().outcome = JobOutcome::Complete;
    decide_and_apply(&mut model);
    assert_eq!(state(&model, "node-1"), Some(NodeState::PostDrainFailed));
    assert_eq!(reason(&model, "node-1"), Some(reasons::RETRYING));
    let waits = &model.observed.plan.status.as_ref().unwrap().waiting_for;
    assert!(waits.iter().any(|wait| wait.what == "Reboot"), "{waits:?}");
    to_the_end(&mut model);
}

#[test]
fn r10_a_node_that_came_back_old_is_tried_again_and_may_fail_again() {
    let mut model = Model::new(3);
    let come_back_old = |model: &mut Model, boot: &str| {
        until(model, |model| {
            let job = model.observed.jobs.get(&job(JobType::PostDrain, "node-1"));
            model.phase() == Some(Phase::NodeUpgrading) && job.is_some_and(|job| job.outcome == JobOutcome::Complete)
        });
        decide_and_apply(model);
        model.observed.nodes.get_mut("node-1").unwrap().boot_id = boot.into();
        until(model, ended);
        assert_eq!(model.phase(), Some(Phase::Failed));
        assert_eq!(reason(model, "node-1"), Some(reasons::OLD_OS_IMAGE));
        model.observed.nodes.get_mut("node-1").unwrap().os_image = "Harvester v1.7.1".into();
    };
    come_back_old(&mut model, "second");
    retry(&mut model, "1");
    come_back_old(&mut model, "third");
    retry(&mut model, "2");
    to_the_end(&mut model);
}

#[test]
fn r10_images_that_could_not_be_loaded_or_removed_are_tried_again_without_a_step_back() {
    for phase in [Phase::ImagePreloading, Phase::CleaningUp] {
        let mut model = Model::new(3);
        until(&mut model, |model| {
            let mut jobs = model.observed.jobs.values();
            model.phase() == Some(phase)
                && jobs.any(|job| job.component.as_str().starts_with("image") && job.outcome == JobOutcome::Running)
        });
        let name = model
            .observed
            .jobs
            .iter()
            .find(|(_, job)| job.outcome == JobOutcome::Running)
            .unwrap()
            .0
            .clone();
        fail(&mut model, &name);
        until(&mut model, ended);
        assert_eq!(model.phase(), Some(Phase::Failed), "{phase}");
        retry(&mut model, "1");
        to_the_end(&mut model);
    }
}
