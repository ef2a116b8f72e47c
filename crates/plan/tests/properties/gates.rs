//! Rancher's gate: which plans it blocks, which plan takes it over, and what is recorded before it is closed.

use api::{Component, NodeState, Phase, PhaseTransition, annotations};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plan::{
    Action, Decision,
    observed::{ObservedSucPlan, OtherPlan, StartedUpgrade},
};
use rstest::rstest;
use serde_json::json;

use crate::{
    model::{Model, OS},
    restore_at_end::notes,
    small::{KUBERNETES, gate, in_phase, note, progressing, reached, set_state, status, waits, waits_for, with_nodes},
};

/// A change of the observed state.
type Spoil = fn(&mut Model);

/// A plan that is to enter the preload, behind a gate that is closed for another release.
fn behind_gate() -> Model {
    let mut model = in_phase(Phase::MetadataPopulated);
    let cluster = model.observed.cluster.as_mut().unwrap();
    cluster.upgrade_strategy = Some(gate());
    cluster.kubernetes_version = Some("v1.34.1+rke2r1".to_owned());
    cluster.gated_release = Some("Harvester v1.7.9".to_owned());
    model
}

fn is_refused(model: &Model) -> bool {
    let decision = model.decide();
    let failed = decision.status.current_phase.as_deref() == Some("Failed");
    assert_eq!(
        failed,
        progressing(&decision).contains("has begun to upgrade nodes to"),
        "{}",
        progressing(&decision)
    );
    failed
}

#[test]
fn a_gate_that_is_closed_for_another_release_refuses_a_plan() {
    let model = behind_gate();
    assert!(is_refused(&model));
    let spoils: [(&str, Spoil); 4] = [
        ("the gate is not ours", |model| {
            model.observed.cluster.as_mut().unwrap().upgrade_strategy = Some(json!({}));
        }),
        ("there is no strategy", |model| {
            model.observed.cluster.as_mut().unwrap().upgrade_strategy = None;
        }),
        ("there is one node", |model| {
            status(model).single_node = Some("node-1".to_owned())
        }),
        ("it is closed for this release", |model| {
            let cluster = model.observed.cluster.as_mut().unwrap();
            cluster.kubernetes_version = Some(KUBERNETES.to_owned());
            cluster.gated_release = Some(OS.to_owned());
        }),
    ];
    for (why, spoil) in spoils {
        let mut allowed = model.clone();
        spoil(&mut allowed);
        assert!(!is_refused(&allowed), "{why}");
    }
    let mut other_system = model.clone();
    other_system.observed.cluster.as_mut().unwrap().kubernetes_version = Some(KUBERNETES.to_owned());
    assert!(is_refused(&other_system), "the system differs");
    let mut other_kubernetes = model;
    other_kubernetes.observed.cluster.as_mut().unwrap().gated_release = Some(OS.to_owned());
    assert!(is_refused(&other_kubernetes), "Kubernetes differs");
    other_kubernetes.observed.cluster.as_mut().unwrap().gated_release = None;
    assert!(is_refused(&other_kubernetes));
    other_kubernetes.observed.cluster.as_mut().unwrap().kubernetes_version = Some(KUBERNETES.to_owned());
    assert!(
        !is_refused(&other_kubernetes),
        "an older manager did not note the system"
    );
}

/// Another plan that has begun to upgrade nodes.
fn other(name: &str, os: &str, done: Option<jiff::Timestamp>) -> OtherPlan {
    OtherPlan {
        name: name.to_owned(),
        uid: name.to_owned(),
        created: None,
        active: false,
        saved_upgrade_strategy: None,
        begun: Some(StartedUpgrade {
            at: jiff::Timestamp::UNIX_EPOCH,
            harvester: "v1.7.9".to_owned(),
            os: os.to_owned(),
            nodes_done_at: done,
        }),
    }
}

#[test]
fn the_message_names_the_plan_that_closed_the_gate_and_the_nodes_between_releases() {
    let mut model = behind_gate();
    let says = |model: &Model| progressing(&model.decide()).to_owned();
    let gone = says(&model);
    assert!(
        gone.starts_with("an UpgradePlan that is gone has begun to upgrade nodes to Harvester v1.7.9 (v1.34.1+rke2r1)")
    );
    assert!(
        gone.contains("not all nodes run it. create an UpgradePlan for Harvester v1.7.9"),
        "{gone}"
    );
    assert!(gone.ends_with("upgrade to Harvester v1.8.0"), "{gone}");
    model.observed.other_plans = vec![
        other("first", "Harvester v1.7.9", None),
        other("last", "Harvester v1.7.8", None),
    ];
    model.observed.machine_plans[1].pre_drain = Some("t".to_owned());
    let one = says(&model);
    assert!(
        one.starts_with("UpgradePlan first has begun") && one.contains("Node node-2 is between both releases"),
        "{one}"
    );
    assert!(
        one.contains("try first again (annotation management.harvesterhci.io/retry), or create"),
        "{one}"
    );
    model.observed.machine_plans[0].post_drain = Some("t".to_owned());
    assert!(
        says(&model).contains("Nodes node-1, node-2 are between both releases"),
        "{}",
        says(&model)
    );
}

/// A plan that is to begin with the nodes, where everything else is prepared.
fn prepared(nodes: usize) -> Model {
    let mut model = with_nodes(nodes, Phase::ClusterUpgraded);
    model.observed.descheduler_enabled = Some(false);
    model.observed.replenishment_interval = Some("1800".to_owned());
    let done = ObservedSucPlan {
        complete: true,
        ..ObservedSucPlan::default()
    };
    model.observed.suc_plans.insert(Component::SkipManifestsApply, done);
    model
}

fn enters(decision: &Decision) -> bool {
    decision.status.current_phase.as_deref() == Some("NodeUpgrading")
}

#[test]
fn nodes_whose_images_are_loaded_or_not_needed_begin_as_loaded() {
    let mut model = prepared(3);
    set_state(&mut model, "node-1", NodeState::ImagePreloadFailed);
    set_state(&mut model, "node-2", NodeState::PostDrained);
    let decision = model.decide();
    assert!(enters(&decision));
    assert_eq!(reached(&decision, "node-1").0, Some(NodeState::ImagePreloaded));
    assert_eq!(reached(&decision, "node-2").0, Some(NodeState::PostDrained));
    assert_eq!(reached(&decision, "node-3").0, Some(NodeState::ImagePreloaded));
}

#[rstest]
fn the_descheduler_is_disabled_and_that_is_recorded(#[values(1, 3)] nodes: usize) {
    let key = annotations::DESCHEDULER_WAS_ENABLED;
    let mut model = prepared(nodes);
    assert_eq!(notes(&model.decide(), key), None);
    model.observed.descheduler_enabled = None;
    assert!(enters(&model.decide()));
    model.observed.descheduler_enabled = Some(true);
    let decision = model.decide();
    assert_eq!(decision.actions, [Action::EnableDescheduler { enabled: false }]);
    assert_eq!(notes(&decision, key).as_deref(), Some("true"));
    assert_eq!(
        waits(&decision),
        ["Setting Addon kube-system/descheduler: Addon kube-system/descheduler is being changed"]
    );
}

#[rstest]
#[case("600", true)]
#[case("1799", true)]
#[case("1800", false)]
#[case("3600", false)]
#[case("soon", true)]
fn a_short_interval_of_longhorn_is_made_longer(#[case] now: &str, #[case] changed: bool) {
    let key = annotations::SAVED_REPLENISHMENT_INTERVAL;
    let mut model = prepared(3);
    model.observed.replenishment_interval = Some(now.to_owned());
    let decision = model.decide();
    let set = Action::SetReplenishmentInterval {
        value: "1800".to_owned(),
    };
    assert_eq!(decision.actions.contains(&set), changed);
    assert_eq!(notes(&decision, key), changed.then(|| now.to_owned()));
    note(&mut model, key, "300");
    assert_eq!(
        notes(&model.decide(), key).as_deref(),
        Some("300"),
        "the first record counts"
    );
    let mut single = prepared(1);
    single.observed.replenishment_interval = Some(now.to_owned());
    assert!(!single.decide().actions.contains(&set), "nothing is rebuilt elsewhere");
}

#[test]
fn manifests_are_skipped_on_all_nodes_at_once() {
    let mut model = prepared(3);
    model.observed.suc_plans.clear();
    let decision = model.decide();
    let concurrency = decision.actions.iter().find_map(|action| match action {
        Action::Create(plan::Child::SucPlan { concurrency, .. }) => Some(*concurrency),
        _ => None,
    });
    assert_eq!(concurrency, Some(3));
    assert_eq!(waits_for(&decision), ["SkipManifestsApply"]);
    assert_eq!(
        notes(&decision, annotations::SKIP_MANIFESTS_APPLIED).as_deref(),
        Some("true")
    );
    model.observed.suc_plans.insert(
        Component::SkipManifestsApply,
        ObservedSucPlan {
            job_failed: true,
            ..ObservedSucPlan::default()
        },
    );
    let decision = model.decide();
    assert_eq!(waits_for(&decision), ["FailedJob"]);
    model.apply(&decision);
    model.now += SignedDuration::from_mins(5);
    assert_eq!(progressing(&model.decide()), "skip-manifest apply plan job(s) failed");
}

const STRATEGY: &str = annotations::SAVED_UPGRADE_STRATEGY;

#[test]
fn the_existing_strategy_is_recorded_before_it_is_replaced() {
    let mut model = prepared(3);
    let found = r#"{"workerConcurrency":"10%"}"#;
    assert_eq!(notes(&model.decide(), STRATEGY).as_deref(), Some(found));
    note(&mut model, STRATEGY, "null");
    assert_eq!(
        notes(&model.decide(), STRATEGY).as_deref(),
        Some(found),
        "users may have changed it since"
    );
    model.observed.cluster.as_mut().unwrap().upgrade_strategy = Some(gate());
    assert_eq!(
        notes(&model.decide(), STRATEGY).as_deref(),
        Some("null"),
        "our gate is no original"
    );
    model.observed.cluster = None;
    assert_eq!(waits_for(&model.decide()), ["Cluster"]);
}

#[test]
fn behind_a_closed_gate_the_earlier_strategy_is_recorded() {
    let mut model = prepared(3);
    let cluster = model.observed.cluster.as_mut().unwrap();
    cluster.upgrade_strategy = Some(gate());
    assert_eq!(notes(&model.decide(), STRATEGY).as_deref(), Some("null"));
    let mut with_record = other("first", OS, None);
    with_record.saved_upgrade_strategy = Some(r#"{"a":1}"#.to_owned());
    model.observed.other_plans = vec![with_record];
    assert_eq!(notes(&model.decide(), STRATEGY).as_deref(), Some(r#"{"a":1}"#));
    model.observed.cluster.as_mut().unwrap().saved_upgrade_strategy = Some(r#"{"b":1}"#.to_owned());
    assert_eq!(notes(&model.decide(), STRATEGY).as_deref(), Some(r#"{"b":1}"#));
    assert_eq!(notes(&model.decide(), annotations::TAKEN_OVER), None);
    model.observed.cluster.as_mut().unwrap().kubernetes_version = Some(KUBERNETES.to_owned());
    assert_eq!(notes(&model.decide(), annotations::TAKEN_OVER).as_deref(), Some("true"));
}

/// A retry of a plan that never started Rancher's upgrade, after all nodes have come to run its release.
fn done_by_another() -> Model {
    let mut model = prepared(3);
    let failed = PhaseTransition {
        phase: Phase::Failed.to_string(),
        phase_transition_timestamp: Time(model.now - SignedDuration::from_mins(60)),
        message: None,
    };
    status(&mut model).phase_transition_timestamps.insert(0, failed);
    for node in model.observed.nodes.values_mut() {
        node.os_image = OS.to_owned();
        node.kubelet_version = KUBERNETES.to_owned();
    }
    let cluster = model.observed.cluster.as_mut().unwrap();
    (cluster.ready, cluster.kubernetes_version) = (true, Some(KUBERNETES.to_owned()));
    model
}

#[test]
fn rancher_is_not_started_again_for_nodes_that_another_plan_has_upgraded() {
    let is_taken_over = |model: &Model| notes(&model.decide(), annotations::TAKEN_OVER).is_some();
    let model = done_by_another();
    assert!(is_taken_over(&model));
    let spoils: [(&str, Spoil); 9] = [
        ("it is the first try", |model| {
            drop(status(model).phase_transition_timestamps.remove(0))
        }),
        ("it began with its own release", |model| {
            status(model).previous_version = Some("v1.8.0".to_owned())
        }),
        ("the release that it began with is unknown", |model| {
            status(model).previous_version = None
        }),
        ("Rancher is at work", |model| {
            model.observed.cluster.as_mut().unwrap().ready = false
        }),
        ("Rancher has another version", |model| {
            model.observed.cluster.as_mut().unwrap().kubernetes_version = None;
        }),
        ("a node is not ready", |model| {
            model.observed.nodes.get_mut("node-2").unwrap().ready = false
        }),
        ("a node has another system", |model| {
            model.observed.nodes.get_mut("node-2").unwrap().os_image = "Harvester v1.7.1".to_owned();
        }),
        ("a node has another kubelet", |model| {
            model.observed.nodes.get_mut("node-2").unwrap().kubelet_version = "v1.34.0".to_owned();
        }),
        ("a node is in drain", |model| {
            model.observed.machine_plans[1].pre_drain = Some("t".to_owned())
        }),
    ];
    for (why, spoil) in spoils {
        let mut spoilt = model.clone();
        spoil(&mut spoilt);
        assert!(!is_taken_over(&spoilt), "{why}");
    }
    let mut unmanaged = model;
    let node = unmanaged.observed.nodes.get_mut("node-2").unwrap();
    (node.ready, node.managed) = (false, false);
    assert!(
        is_taken_over(&unmanaged),
        "one that Harvester does not manage does not count"
    );
}

#[rstest]
#[case::after_the_failure(59, OS, true)]
#[case::at_the_failure(60, OS, false)]
#[case::before_the_failure(61, OS, false)]
#[case::with_another_system(59, "Harvester v1.7.9", false)]
fn from_a_version_to_itself_another_plan_must_have_upgraded_all_nodes_since(
    #[case] minutes_ago: i64,
    #[case] os: &str,
    #[case] expected: bool,
) {
    let mut model = done_by_another();
    status(&mut model).previous_version = Some("v1.8.0".to_owned());
    let done = model.now - SignedDuration::from_mins(minutes_ago);
    model.observed.other_plans = vec![other("other", os, Some(done))];
    assert_eq!(notes(&model.decide(), annotations::TAKEN_OVER).is_some(), expected);
}

#[test]
fn rancher_is_started_once_from_the_known_generation() {
    let mut model = in_phase(Phase::NodeUpgrading);
    model.observed.cluster.as_mut().unwrap().provision_generation = 4;
    note(&mut model, STRATEGY, "{}");
    let provision = Action::ProvisionCluster {
        kubernetes_version: KUBERNETES.to_owned(),
        from: 4,
        to: 5,
        saved_strategy: "{}".to_owned(),
        os: OS.to_owned(),
    };
    let decision = model.decide();
    assert_eq!(decision.actions, [provision]);
    assert_eq!(decision.status.provision_generation, Some(5));
    status(&mut model).provision_generation = Some(4);
    assert_eq!(model.decide().actions, []);
    status(&mut model).provision_generation = None;
    note(&mut model, annotations::TAKEN_OVER, "true");
    assert_eq!(model.decide().actions.len(), 1, "the note alone proves nothing");
    model.observed.cluster.as_mut().unwrap().kubernetes_version = Some(KUBERNETES.to_owned());
    let taken_over = model.decide();
    assert_eq!(
        (taken_over.actions.len(), taken_over.status.provision_generation),
        (0, Some(4))
    );
    model.observed.cluster = None;
    assert_eq!(waits_for(&model.decide()), ["Cluster"]);
    status(&mut model).release_metadata = None;
    model.observed.cluster = in_phase(Phase::NodeUpgrading).observed.cluster;
    assert_eq!(
        progressing(&model.decide()),
        "kubernetes version not found in release metadata"
    );
}
