//! The weaknesses of the existing toolkit (W-01 … W-33) that a decision could have: each test fails when the rule that
//! answers it is taken away.

use api::{JobType, NodeState, Phase, annotations, names, reasons};
use jiff::SignedDuration;
use plan::{
    Action, Child, Decision,
    observed::{Fetched, JobOutcome},
};
use rules::Severity;

use crate::{
    environment::Step,
    model::Model,
    walk::{at, ended, run_one_step, until},
};

fn state(model: &Model, node: &str) -> Option<NodeState> {
    let status = model.observed.plan.status.as_ref()?;
    NodeState::parse(status.node_upgrade_statuses.get(node)?.state()?)
}

fn condition<'a>(decision: &'a Decision, type_: &str) -> &'a k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition {
    decision.status.conditions.iter().find(|c| c.type_ == type_).unwrap()
}

fn note<'a>(model: &'a Model, key: &str) -> Option<&'a str> {
    model.observed.plan.note(key)
}

/// Applies only what a decision records, as if the manager died before it acted.
fn record_only(model: &mut Model, decision: &Decision) {
    let recorded = Decision {
        actions: Vec::new(),
        ..decision.clone()
    };
    model.apply(&recorded);
}

#[test]
fn w02_the_provision_generation_is_recorded_before_rancher_gets_it_and_is_given_once() {
    let mut model = Model::new(3);
    let provisions = |decision: &Decision| {
        let mut actions = decision.actions.iter();
        actions.any(|action| matches!(action, Action::ProvisionCluster { .. }))
    };
    until(&mut model, |model| provisions(&model.decide()));
    let decision = model.decide();
    assert_eq!(decision.status.provision_generation, Some(1));
    // Dead between record and patch: the same generation again.
    record_only(&mut model, &decision);
    assert!(provisions(&model.decide()));
    // Dead after the patch: nothing more to give.
    let again = model.decide();
    model.apply(&again);
    assert!(!provisions(&model.decide()));
    until(&mut model, ended);
    assert_eq!(model.observed.cluster.unwrap().provision_generation, 1);
}

#[test]
fn w03_what_a_setting_was_is_recorded_before_it_is_changed() {
    let mut model = Model::new(3);
    let changes = |decision: &Decision| {
        let mut actions = decision.actions.iter();
        actions.any(|action| matches!(action, Action::SetReplenishmentInterval { .. }))
    };
    until(&mut model, |model| changes(&model.decide()));
    let decision = model.decide();
    let notes = decision.status.notes.clone().unwrap_or_default();
    assert_eq!(
        notes.get(annotations::SAVED_REPLENISHMENT_INTERVAL).map(String::as_str),
        Some("600")
    );
    // The change was made and everything else forgotten but the record: 1800 is not taken for the original.
    model.apply(&decision);
    model.observed.replenishment_interval = Some("1800".into());
    run_one_step(&mut model);
    assert_eq!(note(&model, annotations::SAVED_REPLENISHMENT_INTERVAL), Some("600"));
    until(&mut model, ended);
    assert_eq!(model.observed.replenishment_interval.as_deref(), Some("600"));
}

#[test]
fn w07_a_condition_keeps_its_transition_time_until_its_status_changes() {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model.phase() == Some(Phase::ISODownloading) && model.observed.iso_image.is_some()
    });
    let before = model.decide();
    model.apply(&before);
    model.now += SignedDuration::from_secs(60);
    let after = model.decide();
    assert_eq!(after.status, before.status, "a minute later, nothing is written");
    // To the end: reason and message change all the time, the time of a condition only with its status.
    while !ended(&model) {
        let before = model.observed.plan.status.clone().unwrap_or_default().conditions;
        run_one_step(&mut model);
        let after = model.observed.plan.status.clone().unwrap_or_default().conditions;
        for (one, next) in before.iter().zip(&after) {
            let moved = one.status != next.status;
            assert_eq!(
                one.last_transition_time != next.last_transition_time,
                moved,
                "{one:?} {next:?}"
            );
        }
    }
}

#[test]
fn w09_a_node_that_is_paused_after_its_job_started_is_not_stopped() {
    let mut model = Model::new(1);
    let job = names::node_job("up", JobType::SingleNodeUpgrade, "node-1");
    until(&mut model, |model| model.observed.jobs.contains_key(&job));
    model.observed.plan.spec.node_upgrade_option = Some(api::NodeUpgradeOption {
        pause_nodes: Some(vec!["node-1".into()]),
    });
    let decision = model.decide();
    model.apply(&decision);
    assert_eq!(state(&model, "node-1"), Some(NodeState::SingleNodeUpgrading));
    assert!(!model.observed.jobs[&job].suspended);
    until(&mut model, ended);
    assert_eq!(model.phase(), Some(Phase::Succeeded));
}

#[test]
fn w10_nodes_whose_preload_jobs_came_and_went_unseen_count_as_preloaded() {
    let mut model = Model::new(3);
    until(&mut model, at(Phase::ImagePreloading));
    let decision = model.decide();
    model.apply(&decision);
    // No manager ran while the Jobs ran and were removed.
    model.observed.jobs.clear();
    model
        .observed
        .suc_plans
        .values_mut()
        .for_each(|plan| plan.complete = true);
    until(&mut model, at(Phase::ImagePreloaded));
    for node in ["node-1", "node-2", "node-3"] {
        assert_eq!(state(&model, node), Some(NodeState::ImagePreloaded), "{node}");
    }
}

#[test]
fn w12_waiting_is_neither_an_error_nor_a_warning() {
    let mut model = Model::new(3);
    for _ in 0..2000 {
        let decision = model.decide();
        assert!(
            decision.events.iter().all(|event| event.severity == Severity::Normal),
            "{:?}",
            decision.events
        );
        assert_eq!(condition(&decision, reasons::DEGRADED).status, "False");
        model.apply(&decision);
        if ended(&model) {
            return;
        }
        if let Some(step) = model.possible().first().cloned() {
            model.happen(&step);
        }
    }
    panic!("the upgrade did not end");
}

#[test]
fn w13_a_repository_that_is_slow_to_serve_is_gone_on_with_as_soon_as_it_does() {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model.phase() == Some(Phase::RepoCreating) && model.observed.repo.service_ready.is_some()
    });
    model.observed.repo.deployment_ready = Some(true);
    let decision = model.decide();
    assert_eq!(
        decision
            .status
            .waiting_for
            .first()
            .and_then(|wait| wait.message.as_deref()),
        Some("upgrade-repo svc/ep not ready")
    );
    model.apply(&decision);
    model.happen(&Step::ServeRepo);
    assert_eq!(model.decide().status.current_phase.as_deref(), Some("RepoCreated"));
}

#[test]
fn w14_a_failed_preload_job_fails_the_plan_also_when_its_condition_says_so_no_more() {
    let mut model = Model::new(3);
    until(&mut model, |model| {
        model.phase() == Some(Phase::ImagePreloading) && !model.observed.jobs.is_empty()
    });
    let job = model.observed.jobs.values_mut().next().unwrap();
    job.outcome = JobOutcome::Failed {
        reason: "BackoffLimitExceeded".into(),
        message: "".into(),
    };
    assert!(model.observed.suc_plans.values().all(|plan| !plan.job_failed));
    run_one_step(&mut model);
    assert_eq!(model.phase(), Some(Phase::Failed));
}

#[test]
fn w16_kubevirts_methods_are_restored_to_what_they_were_and_only_if_we_changed_them() {
    let evict = |model: &mut Model| {
        model.observed.workload_update_methods = Some(vec!["Evict".into()]);
        let chart = model.observed.charts.get_mut(names::HARVESTER_CHART).unwrap();
        chart.methods = serde_json::json!(["Evict"]);
    };
    let mut model = Model::new(3);
    evict(&mut model);
    until(&mut model, at(Phase::NodeUpgrading));
    assert_eq!(model.observed.workload_update_methods, Some(vec![]));
    until(&mut model, ended);
    assert_eq!(model.observed.workload_update_methods, Some(vec!["Evict".into()]));

    let mut failed = Model::new(3);
    evict(&mut failed);
    until(&mut failed, |model| {
        model.phase() == Some(Phase::ISODownloading) && model.observed.iso_image.is_some()
    });
    failed.observed.iso_image.as_mut().unwrap().imported = Some(false);
    until(&mut failed, ended);
    assert_eq!(failed.phase(), Some(Phase::Failed));
    assert_eq!(failed.observed.workload_update_methods, Some(vec!["Evict".into()]));
}

#[test]
fn w17_a_longer_interval_of_the_users_is_kept() {
    let mut model = Model::new(3);
    model.observed.replenishment_interval = Some("3600".into());
    until(&mut model, |model| {
        assert_eq!(model.observed.replenishment_interval.as_deref(), Some("3600"));
        ended(model)
    });
}

#[test]
fn w18_release_metadata_that_later_phases_could_not_work_with_is_refused_at_once() {
    for field in ["harvester", "os", "kubernetes"] {
        let mut model = Model::new(3);
        until(&mut model, |model| {
            matches!(model.observed.facts.release, Fetched::Got(_))
        });
        let Fetched::Got(release) = &mut model.observed.facts.release else {
            unreachable!()
        };
        match field {
            "harvester" => release.harvester = None,
            "os" => release.os = Some(String::new()),
            _ => release.kubernetes = None,
        }
        let decision = model.decide();
        let degraded = condition(&decision, reasons::DEGRADED);
        assert_eq!(degraded.status, "True");
        assert!(
            degraded.message.contains(&format!("has no {field}")),
            "{}",
            degraded.message
        );
        model.apply(&decision);
        assert_eq!(model.phase(), Some(Phase::MetadataPopulating), "no node is touched");
    }
}

#[test]
fn w19_no_node_is_not_all_nodes() {
    let mut model = Model::new(3);
    until(&mut model, at(Phase::NodeUpgrading));
    let mut status = model.observed.plan.status.clone().unwrap();
    status.node_upgrade_statuses = Default::default();
    model.observed.plan.status = Some(status);
    model.observed.jobs.clear();
    let decision = model.decide();
    assert_eq!(decision.status.current_phase.as_deref(), Some("NodeUpgrading"));
}

#[test]
fn w24_every_wait_has_a_deadline_but_the_one_for_a_person() {
    let mut model = Model::new(3);
    model.observed.plan.spec.node_upgrade_option = Some(api::NodeUpgradeOption {
        pause_nodes: Some(vec!["node-2".into()]),
    });
    let (mut waits, mut paused) = (0, false);
    for _ in 0..2000 {
        let decision = model.decide();
        for wait in &decision.status.waiting_for {
            waits += 1;
            let person = ["Paused", "BehindPaused"].contains(&wait.what.as_str());
            assert_eq!(wait.deadline.is_none(), person, "{wait:?}");
            paused |= person;
        }
        model.apply(&decision);
        if ended(&model) {
            break;
        }
        match model.possible().first().cloned() {
            Some(step) => model.happen(&step),
            None if paused => model.observed.plan.spec.node_upgrade_option = None,
            None => {}
        }
    }
    assert!(waits > 10 && paused, "{waits} waits, paused: {paused}");
    assert_eq!(model.phase(), Some(Phase::Succeeded));
}

#[test]
fn w27_the_users_upgrade_strategy_is_what_it_was() {
    let mut model = Model::new(3);
    let before = model.observed.cluster.clone().unwrap().upgrade_strategy;
    until(&mut model, |model| {
        model
            .observed
            .cluster
            .as_ref()
            .is_some_and(|cluster| cluster.provision_generation == 1)
    });
    assert_ne!(model.observed.cluster.clone().unwrap().upgrade_strategy, before);
    until(&mut model, ended);
    assert_eq!(model.observed.cluster.unwrap().upgrade_strategy, before);
}

#[test]
fn w28_labels_that_system_upgrade_controller_leaves_on_nodes_are_removed() {
    let mut model = Model::new(3);
    until(&mut model, at(Phase::ImagePreloaded));
    for node in model.observed.nodes.values_mut() {
        node.leftover_labels = vec!["plan.upgrade.cattle.io/up-image-preload".into()];
    }
    until(&mut model, ended);
    assert!(
        model
            .observed
            .nodes
            .values()
            .all(|node| node.leftover_labels.is_empty())
    );
}

#[test]
fn w29_a_witness_runs_no_repository_and_its_vms_are_not_restored() {
    let mut model = Model::new(2);
    model.observed.nodes.get_mut("node-2").unwrap().witness = true;
    let deploys = |decision: &Decision| {
        decision.actions.iter().find_map(|action| match action {
            Action::Create(Child::RepoDeployment { replicas, .. }) => Some(*replicas),
            _ => None,
        })
    };
    until(&mut model, |model| deploys(&model.decide()).is_some());
    assert_eq!(deploys(&model.decide()), Some(1), "one node can run it");
    model.observed.restore_list = [("node-2".to_owned(), "default/vm".to_owned())].into();
    until(&mut model, ended);
    let restores = names::node_job("up", JobType::RestoreVm, "node-2");
    assert!(!model.observed.jobs.contains_key(&restores));
}

#[test]
fn w31_a_node_is_back_only_in_another_boot_with_the_new_system() {
    let mut model = Model::new(3);
    let waits = |model: &Model| state(model, "node-1") == Some(NodeState::WaitingReboot);
    until(&mut model, waits);
    // The text of the new system alone proves nothing.
    model.observed.nodes.get_mut("node-1").unwrap().os_image = crate::model::OS.into();
    let decision = model.decide();
    model.apply(&decision);
    assert!(waits(&model));
    // Another boot with the old system is a failure with a name, not a wait for ever.
    let node = model.observed.nodes.get_mut("node-1").unwrap();
    node.os_image = "Harvester v1.7.1".into();
    node.boot_id.push_str("-again");
    let decision = model.decide();
    let node = &decision.status.node_upgrade_statuses["node-1"];
    assert_eq!(node.reason.as_deref(), Some(reasons::OLD_OS_IMAGE));
    assert_eq!(decision.status.current_phase.as_deref(), Some("Failed"));
}
