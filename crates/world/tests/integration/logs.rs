//! What containers print: the lines of the real programs, in the logs of their pods, read through the API.

use crate::support::*;
use api::{Component, JobType, labels, names};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, LogParams},
};
use serde_json::{Value, json};
use world::{
    Durations, Shape, Troubles,
    troubles::{JobFailure, JobTrouble},
};

const HARVESTER: &str = names::HARVESTER_NAMESPACE;

fn failing(failure: JobFailure) -> Troubles {
    Troubles {
        jobs: vec![JobTrouble {
            component: Component::NodeUpgrade,
            job_type: Some(JobType::PreDrain),
            node: None,
            failure,
        }],
        ..Default::default()
    }
}

impl TestCluster {
    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The logs of all pods of a component, in the order of their names.
    async fn logs(&self, namespace: &str, component: Component) -> Vec<String> {
        let pods = self.pods(namespace);
        let of = ListParams::default().labels(&format!("{}={component}", labels::UPGRADE_COMPONENT));
        let mut logs = Vec::new();
        for pod in pods.list(&of).await.unwrap() {
            let name = pod.metadata.name.unwrap();
            logs.push(pods.logs(&name, &LogParams::default()).await.unwrap());
        }
        logs
    }
}

/// The lines of a program, which are JSON.
fn lines(log: &str) -> Vec<Value> {
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn message(line: &Value) -> &str {
    line["fields"]["message"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_plan_have_the_log_of_their_program_and_it_is_the_same_in_every_run() {
    let run = async || {
        let cluster = calm().await;
        cluster.serve_release("up").await;
        cluster.create(PLAN, suc_plan("up", Component::ImagePreload, 3)).await;
        let name = names::suc_plan("up", Component::ImagePreload);
        let namespace = names::CATTLE_NAMESPACE;
        cluster
            .until(60, PLAN, namespace, &name, |plan| is(plan, "Complete"))
            .await;
        cluster.logs(namespace, Component::ImagePreload).await
    };
    let logs = run().await;
    assert_eq!(logs.len(), 3);
    for log in &logs {
        let lines = lines(log);
        assert!(message(&lines[0]).starts_with("step 1 of "), "{log}");
        assert_eq!(lines[0]["level"], "INFO");
        assert_eq!(lines[0]["target"], "program::report");
        assert_eq!(lines[0]["fields"]["step"], node::images::prepare::STEPS[0].name);
        // In the time of the cluster, with the precision of the real ones.
        let time = lines[0]["timestamp"].as_str().unwrap();
        assert!(
            time.starts_with("2026-03-13T") && time.len() == "2026-03-13T03:57:09.000000Z".len(),
            "{time}"
        );
        let steps = lines.iter().filter(|line| message(line).starts_with("step "));
        assert_eq!(steps.count(), node::images::prepare::STEPS.len());
    }
    assert_eq!(run().await, logs);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_fails_says_why_in_its_last_line() {
    for (failure, last) in [
        (JobFailure::Fails(1), "Error: simulated failure"),
        (
            JobFailure::DiesAt("wait-for-vms"),
            "simulated failure at step wait-for-vms",
        ),
    ] {
        let cluster = test_cluster(Shape::default(), Durations::default(), failing(failure)).await;
        cluster.serve_release("up").await;
        let job = node_job("up", JobType::PreDrain, "node-1");
        let name = job["metadata"]["name"].as_str().unwrap().to_owned();
        cluster.create(JOB, job).await;
        cluster
            .until(60, JOB, HARVESTER, &name, |job| job["status"]["failed"] == 1)
            .await;
        let log = cluster.logs(HARVESTER, Component::NodeUpgrade).await.remove(0);
        assert_eq!(log.lines().last(), Some(last), "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_command_says_when_it_fails_is_the_last_line_of_its_pod() {
    let cluster = calm().await;
    let mut job = cluster_job("up");
    job["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["false"]);
    job["spec"]["backoffLimit"] = json!(0);
    let name = job["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.create(JOB, job).await;
    cluster.until(60, JOB, HARVESTER, &name, |job| is(job, "Failed")).await;
    assert_eq!(
        cluster.logs(HARVESTER, Component::ClusterUpgrade).await,
        ["Error: false\n"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_repository_whose_node_boots_is_started_again_and_its_previous_log_is_kept() {
    let shape = Shape {
        nodes: 1,
        ..Default::default()
    };
    let cluster = test_cluster(shape, Durations::default(), Troubles::default()).await;
    cluster.plan("up").await;
    let labels = json!({labels::UPGRADE_PLAN: "up", labels::UPGRADE_COMPONENT: Component::Repo});
    let container =
        json!({"name": "iso-server", "image": "toolkit:1", "command": ["upgrade-toolkit"], "args": ["repo"]});
    let name = names::repo("up");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": HARVESTER, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [container]}}},
    });
    cluster.create("apps/v1/Deployment", deployment).await;
    let serves = |repo: &Value| repo["status"]["availableReplicas"] == 1;
    cluster.until(5, "apps/v1/Deployment", HARVESTER, &name, serves).await;
    let first = cluster.logs(HARVESTER, Component::Repo).await.remove(0);
    let said: Vec<Value> = lines(&first);
    assert_eq!(
        said.iter().map(message).collect::<Vec<_>>(),
        ["serving", "the ISO was read"]
    );
    assert_eq!(said[0]["fields"]["harvester"], "v1.8.0");

    let pods = cluster.list(POD, HARVESTER).await;
    let pod = pods[0]["metadata"]["name"].as_str().unwrap();
    let down = json!({"status": {"conditions": [{
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "lastTransitionTime": cluster.clock.now_in_seconds().to_string(),
    }]}});
    let nodes = cluster.api(NODE, "");
    let down = kube::api::Patch::Merge(down);
    nodes.patch_status("node-1", &Default::default(), &down).await.unwrap();
    let again = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == 1;
    cluster.until(60, POD, HARVESTER, pod, again).await;
    cluster.minutes(1).await;
    let read = async |previous| {
        let parameters = LogParams {
            previous,
            ..LogParams::default()
        };
        cluster.pods(HARVESTER).logs(pod, &parameters).await.unwrap()
    };
    assert_eq!(read(true).await, first);
    assert_eq!(
        lines(&read(false).await).iter().map(message).collect::<Vec<_>>(),
        ["serving", "the ISO was read"]
    );
    assert_ne!(read(false).await, first);
}
