//! Upgrades that fail: with the documented message, with everything restored, and with Rancher's hooks kept.

use api::{Component, JobType, NodeState, Phase, UpgradePlan, annotations, reasons};
use rstest::rstest;
use serde_json::json;
use world::{
    Troubles,
    troubles::{JobFailure, JobTrouble, RebootTrouble},
};

use crate::{
    run::{Case, Ended, run},
    user::User,
};

pub(crate) fn failing_job(component: Component, job_type: Option<JobType>) -> Troubles {
    let trouble = JobTrouble {
        component,
        job_type,
        node: None,
        failure: JobFailure::Fails(100),
    };
    Troubles {
        jobs: vec![trouble],
        ..Troubles::default()
    }
}

pub(crate) fn old_system() -> Troubles {
    Troubles {
        reboots: [("node-1".to_owned(), RebootTrouble::OldSystem)].into(),
        ..Troubles::default()
    }
}

fn case(troubles: Troubles) -> Case {
    let mut case = Case::three_nodes();
    case.scenario.troubles = troubles;
    case
}

fn plan(ended: &Ended) -> &UpgradePlan {
    ended.plan.as_ref().unwrap()
}

/// The settings that an upgrade changes on its way are what they were.
fn assert_restored(ended: &Ended) {
    let digest = &ended.digest;
    assert_eq!(digest["longhorn"], "600");
    assert_eq!(digest["descheduler"], true);
    assert_eq!(
        digest["kubevirt"]["workloadUpdateStrategy"]["workloadUpdateMethods"],
        json!(["LiveMigrate"])
    );
    for (name, chart) in digest["charts"].as_object().unwrap() {
        let untouched = json!({"paused": false, "pausedBy": null, "diff": null, "kubevirt": null});
        assert_eq!(*chart, untouched, "{name}");
    }
    for kind in ["plans", "deployments", "services"] {
        assert_eq!(digest[kind], json!([]), "{kind} are left");
    }
    for (name, node) in digest["nodes"].as_object().unwrap() {
        assert_eq!(node["annotations"], json!([]), "{name}");
    }
}

#[rstest]
#[case::disk(Troubles { full_disks: ["node-2".to_owned()].into(), ..Troubles::default() }, "Node node-2 will reach")]
#[case::certificates(Troubles { certificate_days: Some(3), ..Troubles::default() }, "Please rotate RKE2 certificates")]
#[case::iso(Troubles { iso_failures: 100, ..Troubles::default() }, "ISO image download failed")]
#[case::preload(failing_job(Component::ImagePreload, None), "image-preload plan job(s) failed")]
#[case::cluster(failing_job(Component::ClusterUpgrade, None), "cluster-upgrade job failed")]
#[case::pre_drain(
    failing_job(Component::NodeUpgrade, Some(JobType::PreDrain)),
    "node node-1 upgrade failed: "
)]
#[case::post_drain(
    failing_job(Component::NodeUpgrade, Some(JobType::PostDrain)),
    "node node-1 upgrade failed: "
)]
#[case::old_system(old_system(), "node node-1 upgrade failed: it came back with")]
#[case::cleanup(failing_job(Component::ImageCleanup, None), "image-cleanup plan job(s) failed")]
fn every_failure_has_its_message_and_puts_everything_back(#[case] troubles: Troubles, #[case] message: &str) {
    let ended = run(&case(troubles));
    assert_eq!(ended.violations, [""; 0]);
    let plan = plan(&ended);
    assert_eq!(plan.phase(), Some(Phase::Failed));
    let progressing = plan.condition(reasons::PROGRESSING).unwrap();
    assert_eq!(
        (progressing.status.as_str(), progressing.reason.as_str()),
        ("False", "Failed")
    );
    assert!(
        progressing.message.starts_with(message) || progressing.message.ends_with(message),
        "{}",
        progressing.message
    );
    let available = plan.condition(reasons::AVAILABLE).unwrap();
    assert_eq!(
        (available.status.as_str(), available.reason.as_str()),
        ("False", "Executed")
    );
    let events: Vec<String> = serde_json::from_value(ended.digest["events"].clone()).unwrap();
    assert!(
        events.iter().any(|event| event.contains("Upgrade failed: ")),
        "{events:#?}"
    );
    assert_restored(&ended);
}

#[rstest]
#[case(3, failing_job(Component::ImagePreload, None), NodeState::ImagePreloadFailed)]
#[case(
    3,
    failing_job(Component::NodeUpgrade, Some(JobType::PreDrain)),
    NodeState::PreDrainFailed
)]
#[case(
    3,
    failing_job(Component::NodeUpgrade, Some(JobType::PostDrain)),
    NodeState::PostDrainFailed
)]
#[case(
    1,
    failing_job(Component::NodeUpgrade, Some(JobType::SingleNodeUpgrade)),
    NodeState::SingleNodeUpgradeFailed
)]
#[case(3, failing_job(Component::ImageCleanup, None), NodeState::ImageCleanFailed)]
fn a_failed_job_is_its_nodes_state_and_the_end_of_the_plan(
    #[case] nodes: usize,
    #[case] troubles: Troubles,
    #[case] state: NodeState,
) {
    let mut case = case(troubles);
    case.scenario.shape.nodes = nodes;
    let ended = run(&case);
    assert_eq!(ended.violations, [""; 0]);
    assert_eq!(plan(&ended).phase(), Some(Phase::Failed));
    let statuses = &plan(&ended).status.as_ref().unwrap().node_upgrade_statuses;
    let failed = statuses.values().find(|node| node.state() == Some(state.as_str()));
    let failed = failed.unwrap_or_else(|| panic!("no node is {state}: {statuses:#?}"));
    assert!(failed.reason.is_some() && failed.message.is_some(), "{failed:#?}");
    assert_restored(&ended);
}

#[test]
fn a_release_that_may_not_be_upgraded_to_is_refused_before_anything_is_loaded() {
    let mut case = Case::three_nodes();
    case.scenario.shape.to = "v1.7.0".to_owned();
    let ended = run(&case);
    let progressing = plan(&ended).condition(reasons::PROGRESSING).unwrap();
    assert!(
        progressing.message.contains("downgrading is prohibited"),
        "{}",
        progressing.message
    );
    assert!(plan(&ended).status.as_ref().unwrap().node_upgrade_statuses.is_empty());
    assert_restored(&ended);
}

#[test]
fn w04_a_failed_plan_keeps_ranchers_gate_closed_and_its_job_for_its_log() {
    let ended = run(&case(failing_job(Component::NodeUpgrade, Some(JobType::PreDrain))));
    let strategy = &ended.digest["cluster"]["rkeConfig"]["upgradeStrategy"];
    let hook = &strategy["controlPlaneDrainOptions"]["preDrainHooks"][0]["annotation"];
    assert_eq!(hook, annotations::PRE_HOOK);
    let others = ended.digest["nodes"].as_object().unwrap();
    assert!(
        others.values().all(|node| node["osImage"] == "Harvester v1.7.1"),
        "{others:#?}"
    );
    let jobs: Vec<String> = serde_json::from_value(ended.digest["jobs"].clone()).unwrap();
    assert!(jobs.iter().any(|job| job.contains("pre-drain-node-1")), "{jobs:?}");
}

#[rstest]
#[case::preload(failing_job(Component::ImagePreload, None))]
#[case::cluster(failing_job(Component::ClusterUpgrade, None))]
#[case::pre_drain(failing_job(Component::NodeUpgrade, Some(JobType::PreDrain)))]
#[case::post_drain(failing_job(Component::NodeUpgrade, Some(JobType::PostDrain)))]
#[case::disk(Troubles { full_disks: ["node-2".to_owned()].into(), ..Troubles::default() })]
#[case::cleanup(failing_job(Component::ImageCleanup, None))]
#[case::old_system(old_system())]
fn a_failed_plan_that_is_tried_again_continues_where_it_failed(#[case] troubles: Troubles) {
    let ended = run(&Case {
        user: vec![User::FixesAndRetries],
        ..case(troubles)
    });
    assert_eq!(ended.violations, [""; 0]);
    let clean = run(&Case::three_nodes());
    for part in [
        "nodes",
        "cluster",
        "longhorn",
        "descheduler",
        "kubevirt",
        "chart",
        "plans",
        "deployments",
        "images",
    ] {
        assert_eq!(ended.digest[part], clean.digest[part], "{part}");
    }
    let status = plan(&ended).status.as_ref().unwrap();
    assert!(
        status
            .node_upgrade_statuses
            .values()
            .all(|node| node.state() == Some("ImageCleaned"))
    );
    assert_eq!(status.provision_generation, Some(1), "Rancher is started once");
}

#[rstest]
#[case::job(failing_job(Component::NodeUpgrade, Some(JobType::SingleNodeUpgrade)))]
#[case::old_system(old_system())]
#[case::cleanup(failing_job(Component::ImageCleanup, None))]
fn a_failed_single_node_is_tried_again(#[case] troubles: Troubles) {
    let mut case = Case {
        user: vec![User::FixesAndRetries],
        ..case(troubles)
    };
    case.scenario.shape.nodes = 1;
    let ended = run(&case);
    assert_eq!(ended.violations, [""; 0]);
    assert_eq!(plan(&ended).phase(), Some(Phase::Succeeded));
    assert_eq!(ended.digest["nodes"]["node-1"]["osImage"], "Harvester v1.8.0");
}

#[test]
fn what_the_gate_replaced_stays_on_the_clusters_record_until_it_is_restored() {
    let record = |ended: &Ended| {
        let clusters = ended
            .store
            .list("provisioning.cattle.io", "clusters", Some("fleet-local"));
        clusters[0]["metadata"]["annotations"][annotations::SAVED_UPGRADE_STRATEGY].clone()
    };
    let failed = run(&case(failing_job(Component::NodeUpgrade, Some(JobType::PreDrain))));
    let saved: serde_json::Value = serde_json::from_str(record(&failed).as_str().unwrap()).unwrap();
    assert_eq!(saved["workerConcurrency"], "10%", "{saved}");
    let done = run(&Case::three_nodes());
    assert_eq!(record(&done), serde_json::Value::Null);
    assert_eq!(done.digest["cluster"]["rkeConfig"]["upgradeStrategy"], saved);
}

#[rstest]
#[case(Phase::Initializing)]
#[case(Phase::ISODownloading)]
#[case(Phase::RepoCreating)]
#[case(Phase::ImagePreloading)]
#[case(Phase::ImagePreloaded)]
#[case(Phase::ClusterUpgraded)]
#[case(Phase::NodeUpgraded)]
#[case(Phase::CleaningUp)]
fn a_deleted_plan_puts_everything_back_and_is_gone(#[case] phase: Phase) {
    let ended = run(&Case {
        user: vec![User::DeletesAt(phase)],
        ..Case::three_nodes()
    });
    assert!(ended.plan.is_none());
    assert_restored(&ended);
    for kind in ["images", "jobs"] {
        assert_eq!(ended.digest[kind], json!([]), "{kind} are left");
    }
}
