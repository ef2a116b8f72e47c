//! system-upgrade-controller, compared with the real one.

use std::collections::BTreeMap;

use crate::support::*;
use api::{Component, labels, names::CATTLE_NAMESPACE};
use serde_json::{Value, json};
use world::{
    Durations, Shape, Troubles,
    troubles::{JobFailure, JobTrouble},
};

const NAME: &str = "up-image-preload";
const MARK: &str = "plan.upgrade.cattle.io/up-image-preload";

/// A Plan that all nodes are to have at once.
fn plan() -> Value {
    suc_plan("up", Component::ImagePreload, 3)
}

fn failing(times: u32) -> Troubles {
    Troubles {
        jobs: vec![JobTrouble {
            component: Component::ImagePreload.to_owned(),
            job_type: None,
            node: None,
            failure: JobFailure::Fails(times),
        }],
        ..Default::default()
    }
}

/// The Jobs of the Plan.
async fn jobs(cluster: &TestCluster) -> Vec<Value> {
    cluster.list(JOB, CATTLE_NAMESPACE).await
}

#[tokio::test(start_paused = true)]
async fn r61_each_job_is_made_without_a_pod_deleted_and_made_again_under_its_name() {
    let cluster = calm().await;
    cluster.create(PLAN, plan()).await;
    cluster.minutes(1).await;
    // By name: the objects in order, as uid and parallelism.
    let mut seen: BTreeMap<String, Vec<(Value, Value)>> = BTreeMap::new();
    let writes = cluster.server.store().history().into_iter();
    let writes = writes.filter(|write| write.resource.plural == "jobs" && write.code < 300);
    for job in writes.filter_map(|write| write.object) {
        let of_name = seen.entry(job["metadata"]["name"].to_string()).or_default();
        let this = (job["metadata"]["uid"].clone(), job["spec"]["parallelism"].clone());
        if of_name.last() != Some(&this) {
            of_name.push(this);
        }
    }
    assert_eq!(seen.len(), 3, "{seen:#?}");
    for (name, objects) in seen {
        let paused: Vec<&Value> = objects.iter().map(|(_, parallelism)| parallelism).collect();
        assert_eq!(paused, [0, 1], "{name}");
        assert_ne!(objects[0].0, objects[1].0, "{name} is the same object");
    }
}

#[tokio::test(start_paused = true)]
async fn r15_a_job_has_99_tries_a_quarter_of_an_hour_to_be_looked_at_and_the_plans_deadline() {
    let cluster = calm().await;
    let mut plan = plan();
    plan["spec"]["jobActiveDeadlineSecs"] = json!(3600);
    cluster.create(PLAN, plan).await;
    cluster.minutes(1).await;
    let job = jobs(&cluster).await.remove(0);
    let spec = &job["spec"];
    assert_eq!(spec["backoffLimit"], 99);
    assert_eq!(spec["ttlSecondsAfterFinished"], 900);
    assert_eq!(spec["activeDeadlineSeconds"], 3600);
    let owner = &job["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Plan"), &json!(NAME)));
    assert_eq!(owner["blockOwnerDeletion"], false);
}

#[tokio::test(start_paused = true)]
async fn a_job_has_the_environment_of_its_plan_between_that_of_the_controller() {
    let cluster = calm().await;
    cluster.create(PLAN, plan()).await;
    cluster.minutes(1).await;
    let job = jobs(&cluster).await.remove(0);
    let pod = &job["spec"]["template"]["spec"];
    let env = pod["containers"][0]["env"].as_array().unwrap();
    let names: Vec<&str> = env.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "SYSTEM_UPGRADE_NODE_NAME",
            "SYSTEM_UPGRADE_POD_NAME",
            "SYSTEM_UPGRADE_POD_UID",
            "HARVESTER_UPGRADEPLAN_NAME",
            "MANIFESTS",
            "SYSTEM_UPGRADE_PLAN_NAME",
            "SYSTEM_UPGRADE_PLAN_LATEST_HASH",
            "SYSTEM_UPGRADE_PLAN_LATEST_VERSION"
        ]
    );
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(pod["dnsPolicy"], "ClusterFirstWithHostNet");
    assert_eq!(pod["containers"][0]["image"], "toolkit:v1.8.0");
    assert_eq!(job["metadata"]["labels"]["upgrade.cattle.io/version"], "v1.8.0");
}

#[tokio::test(start_paused = true)]
async fn r08_a_plan_of_the_same_version_is_complete_at_once_on_nodes_that_carry_its_label() {
    let cluster = calm().await;
    cluster.serve_release("up").await;
    cluster.create(PLAN, plan()).await;
    cluster
        .until(60, PLAN, CATTLE_NAMESPACE, NAME, |plan| is(plan, "Complete"))
        .await;
    cluster.delete(PLAN, CATTLE_NAMESPACE, NAME).await;
    cluster.minutes(1).await;
    assert!(jobs(&cluster).await.is_empty());
    // Whatever else it says.
    let mut again = plan();
    again["spec"]["upgrade"]["command"] = json!(["something", "else"]);
    cluster.create(PLAN, again).await;
    cluster
        .until(1, PLAN, CATTLE_NAMESPACE, NAME, |plan| is(plan, "Complete"))
        .await;
    assert!(jobs(&cluster).await.is_empty());
    cluster.delete(PLAN, CATTLE_NAMESPACE, NAME).await;
    cluster.minutes(1).await;
    let mut other = plan();
    other["spec"]["version"] = json!("v1.8.0-2");
    cluster.create(PLAN, other).await;
    cluster.minutes(1).await;
    assert_eq!(jobs(&cluster).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_plan_whose_job_failed_says_so_serves_no_other_node_and_does_not_try_again() {
    let cluster = test_cluster(Shape::default(), Durations::default(), failing(1000)).await;
    let mut one_by_one = plan();
    one_by_one["spec"]["concurrency"] = json!(1);
    one_by_one["spec"]["jobActiveDeadlineSecs"] = json!(60);
    cluster.create(PLAN, one_by_one).await;
    let failed = cluster
        .until(10, PLAN, CATTLE_NAMESPACE, NAME, |plan| {
            condition(plan, "Complete")["reason"] == "JobFailed"
        })
        .await;
    let message = condition(&failed, "Complete")["message"].as_str().unwrap();
    assert!(
        message.starts_with("Job cattle-system/apply-up-image-preload-on-node-"),
        "{message}"
    );
    assert!(message.contains(": DeadlineExceeded: "), "{message}");
    assert_eq!(condition(&failed, "Complete")["status"], "False");
    assert_eq!(jobs(&cluster).await.len(), 1, "the others wait for it");
    cluster.minutes(16).await;
    assert!(jobs(&cluster).await.is_empty(), "its time to live is over");
    cluster.minutes(30).await;
    assert!(jobs(&cluster).await.is_empty());
    let plan = cluster.get(PLAN, CATTLE_NAMESPACE, NAME).await.unwrap();
    assert_eq!(condition(&plan, "Complete")["reason"], "JobFailed");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_disabled_for_a_plan_is_left_out_and_one_that_is_not_ready_is_not() {
    let cluster = calm().await;
    cluster
        .patch(NODE, "", "node-1", json!({"metadata": {"labels": {MARK: "disabled"}}}))
        .await;
    let down = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    let nodes = cluster.api(NODE, "");
    let down = kube::api::Patch::Merge(down);
    nodes
        .patch_status("node-2", &kube::api::PatchParams::default(), &down)
        .await
        .unwrap();
    cluster.create(PLAN, plan()).await;
    cluster.minutes(1).await;
    let jobs = jobs(&cluster).await;
    let nodes: Vec<&Value> = jobs
        .iter()
        .map(|job| &job["metadata"]["labels"][labels::SUC_NODE])
        .collect();
    assert_eq!(nodes, ["node-2", "node-3"]);
}
