//! What an upgrade runs on nodes: which image, how often, and what happens when it cannot.

use std::{collections::BTreeSet, sync::Arc};

use api::{Component, JobType, Phase, labels, names, reasons};
use plan::observed::Settings;
use serde_json::Value;
use world::{
    Troubles,
    troubles::{JobFailure, JobTrouble},
};

use crate::{
    failure::failing_job,
    run::{Case, Ended, run},
    timeline::versions,
    user::User,
};

fn is_of(object: &Value, component: Component) -> bool {
    object["metadata"]["labels"][labels::UPGRADE_COMPONENT] == component.as_str()
}

/// Every image that the pods of a component ran.
fn images(ended: &Ended, component: Component) -> BTreeSet<String> {
    let objects = ["plans", "jobs", "deployments"].into_iter();
    let objects = objects.flat_map(|kind| versions(&ended.store, kind));
    let of = objects.filter(|(_, object)| is_of(object, component));
    of.filter_map(|(_, object)| {
        let in_plan = object["spec"]["upgrade"]["image"].as_str();
        let in_template = object["spec"]["template"]["spec"]["containers"][0]["image"].as_str();
        in_plan.or(in_template).map(str::to_owned)
    })
    .collect()
}

/// The Jobs of a component that had a pod, by uid.
fn jobs_with_pods(ended: &Ended, component: Component) -> BTreeSet<String> {
    let jobs = versions(&ended.store, "jobs").into_iter();
    let ran = jobs.filter(|(_, job)| is_of(job, component) && job["spec"]["parallelism"] != 0);
    ran.map(|(_, job)| job["metadata"]["uid"].to_string()).collect()
}

fn trouble(component: Component, node: &str, failure: JobFailure) -> Troubles {
    Troubles {
        jobs: vec![JobTrouble {
            component,
            job_type: None,
            node: Some(node.to_owned()),
            failure,
        }],
        ..Troubles::default()
    }
}

fn message(ended: &Ended) -> String {
    let plan = ended.plan.as_ref().unwrap();
    plan.condition(reasons::PROGRESSING).unwrap().message.clone()
}

#[test]
fn r04_from_the_first_to_the_last_every_workload_runs_the_managers_own_image() {
    let ended = run(&Case::three_nodes());
    let own = Settings::default().own_image.to_string();
    for component in [
        Component::Repo,
        Component::ImagePreload,
        Component::ClusterUpgrade,
        Component::SkipManifestsApply,
        Component::SkipManifestsRemove,
        Component::NodeUpgrade,
        Component::ImageCleanup,
    ] {
        assert_eq!(images(&ended, component), [own.clone()].into(), "{component}");
    }
}

#[test]
fn r08_a_retry_skips_the_manifests_on_every_node_again_and_ends_that_on_every_node() {
    let mut case = Case::three_nodes();
    case.scenario.troubles = failing_job(Component::NodeUpgrade, Some(JobType::PostDrain));
    case.user = vec![User::FixesAndRetries];
    let ended = run(&case);
    for component in [Component::SkipManifestsApply, Component::SkipManifestsRemove] {
        assert_eq!(jobs_with_pods(&ended, component).len(), 2 * 3, "{component}");
    }
    // Nodes that have the images are not asked to load them again.
    assert_eq!(jobs_with_pods(&ended, Component::ImagePreload).len(), 3);
}

#[test]
fn r15_a_preload_that_fails_again_and_again_ends_the_plan_within_minutes_with_its_termination_message() {
    let mut case = Case::three_nodes();
    case.scenario.troubles = trouble(Component::ImagePreload, "node-2", JobFailure::Fails(1000));
    let ended = run(&case);
    assert_eq!(
        message(&ended),
        "image-preload plan job(s) failed: node-2: \"simulated failure\""
    );
    let jobs = versions(&ended.store, "jobs").into_iter();
    let tries = jobs.filter_map(|(_, job)| job["status"]["failed"].as_i64()).max();
    assert_eq!(tries, Some(3), "of 99 that the controller would take");
}

#[test]
fn r25_a_preload_that_is_skipped_while_it_runs_does_not_run_on_and_the_upgrade_does() {
    let mut case = Case::three_nodes();
    case.user = vec![User::SkipsPreloadAt(Phase::ImagePreloading)];
    let ended = run(&case);
    assert_eq!(ended.violations, [""; 0]);
    assert_eq!(ended.plan.as_ref().unwrap().phase(), Some(Phase::Succeeded));
    let finished = versions(&ended.store, "jobs").into_iter();
    let finished = finished
        .filter(|(_, job): &(_, Arc<Value>)| is_of(job, Component::ImagePreload) && job["status"]["succeeded"] == 1);
    assert_eq!(finished.count(), 0, "they were removed");
    assert!(
        !jobs_with_pods(&ended, Component::ImagePreload).is_empty(),
        "there were some to remove"
    );
    assert_eq!(jobs_with_pods(&ended, Component::ImageCheck).len(), 3);
}

#[test]
fn r04_without_a_preload_a_node_that_cannot_get_the_image_ends_the_plan_before_anything_is_changed() {
    let mut case = Case::three_nodes();
    case.scenario.troubles = trouble(Component::ImageCheck, "node-2", JobFailure::ImagePullBackOff);
    case.user = vec![User::SkipsPreloadAt(Phase::ISODownloading)];
    let ended = run(&case);
    let plan = ended.plan.as_ref().unwrap();
    assert_eq!(plan.phase(), Some(Phase::Failed));
    let said = message(&ended);
    assert!(said.starts_with("image-check plan job(s) failed: node-2: "), "{said}");
    let waited: BTreeSet<String> = versions(&ended.store, "upgradeplans")
        .iter()
        .flat_map(|(_, plan)| plan["status"]["waitingFor"].as_array().cloned().unwrap_or_default())
        .filter(|wait| wait["what"] == "ToolkitImage")
        .filter_map(|wait| wait["object"].as_str().map(str::to_owned))
        .collect();
    assert!(
        waited.contains("Node node-2") && !waited.contains("Node node-1"),
        "{waited:?}"
    );
    let jobs = versions(&ended.store, "jobs");
    assert!(!jobs.iter().any(|(_, job)| is_of(job, Component::ClusterUpgrade)));
    assert_eq!(jobs_with_pods(&ended, Component::ImagePreload).len(), 0);
    let name = plan.metadata.name.as_deref().unwrap();
    assert!(waited.contains(&format!(
        "Plan cattle-system/{}",
        names::suc_plan(name, Component::ImageCheck)
    )));
}
