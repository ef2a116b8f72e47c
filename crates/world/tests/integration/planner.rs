//! Rancher's planner and its drain controller, as their sources say.

use std::collections::BTreeMap;

use crate::support::*;
use api::{annotations, names};
use serde_json::{Value, json};
use world::{Durations, Shape, Troubles};

const VERSION: &str = "v1.35.2+rke2r1";

/// Sends Rancher off with a strategy.
async fn order(cluster: &TestCluster, strategy: Value) {
    let config = json!({"provisionGeneration": 1, "upgradeStrategy": strategy});
    let patch = json!({"spec": {"kubernetesVersion": VERSION, "rkeConfig": config}});
    cluster
        .patch(CLUSTER, names::FLEET_NAMESPACE, names::LOCAL_CLUSTER, patch)
        .await;
}

/// The annotations of every machine-plan Secret, by node.
async fn plans(cluster: &TestCluster) -> BTreeMap<String, (String, Value)> {
    let machines = cluster
        .list("cluster.x-k8s.io/v1beta1/Machine", names::FLEET_NAMESPACE)
        .await;
    let node_of = |machine: &Value| {
        let found = machines.iter().find(|found| found["metadata"]["name"] == *machine);
        found.unwrap()["status"]["nodeRef"]["name"].as_str().unwrap().to_owned()
    };
    let secrets = cluster.list(SECRET, names::FLEET_NAMESPACE).await;
    let mut plans = BTreeMap::new();
    for secret in secrets
        .iter()
        .filter(|secret| secret["type"] == annotations::MACHINE_PLAN_SECRET_TYPE)
    {
        let machine = &secret["metadata"]["labels"][api::labels::MACHINE_NAME];
        let name = secret["metadata"]["name"].as_str().unwrap().to_owned();
        plans.insert(node_of(machine), (name, secret["metadata"]["annotations"].clone()));
    }
    plans
}

async fn answer(cluster: &TestCluster, secret: &str, hook: &str, token: &Value) {
    let answer = json!({"metadata": {"annotations": {hook: token}}});
    cluster.patch(SECRET, names::FLEET_NAMESPACE, secret, answer).await;
}

/// The nodes whose first hook is open.
async fn asked(cluster: &TestCluster) -> Vec<String> {
    let open = |plan: &Value| {
        let question = &plan[annotations::RKE_PRE_DRAIN];
        question.is_string() && *question != plan[annotations::PRE_HOOK]
    };
    let plans = plans(cluster).await;
    plans
        .into_iter()
        .filter(|(_, (_, plan))| open(plan))
        .map(|(node, _)| node)
        .collect()
}

/// Answers every hook of some nodes every minute, and returns which nodes were cordoned each minute, as long as that lasts.
async fn answer_all(cluster: &TestCluster, minutes: u64, whose: fn(&str) -> bool) -> Vec<Vec<String>> {
    let mut cordoned = Vec::new();
    for _ in 0..minutes {
        cluster.minutes(1).await;
        for (node, (secret, plan)) in plans(cluster).await {
            for (question, hook) in [
                (annotations::RKE_PRE_DRAIN, annotations::PRE_HOOK),
                (annotations::RKE_POST_DRAIN, annotations::POST_HOOK),
            ] {
                if whose(&node) && plan[question].is_string() && plan[question] != plan[hook] {
                    answer(cluster, &secret, hook, &plan[question]).await;
                }
            }
        }
        let nodes = cluster.list(NODE, "").await;
        let now = nodes.iter().filter(|node| node["spec"]["unschedulable"] == true);
        let now: Vec<String> = now
            .map(|node| node["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        if cordoned.last() != Some(&now) {
            cordoned.push(now);
        }
    }
    cordoned.retain(|now| !now.is_empty());
    cordoned
}

fn without_vms(nodes: usize) -> Shape {
    Shape {
        nodes,
        vms: 0,
        ..Shape::default()
    }
}

#[tokio::test(start_paused = true)]
async fn r57_other_drain_options_start_the_drain_over_and_make_older_answers_void() {
    let cluster = test_cluster(without_vms(3), Durations::default(), Troubles::default()).await;
    order(&cluster, strategy("1")).await;
    cluster.minutes(20).await;
    let (secret, plan) = plans(&cluster).await.remove("node-1").unwrap();
    let first = plan[annotations::RKE_PRE_DRAIN].clone();
    let options: Value = serde_json::from_str(first.as_str().unwrap()).unwrap();
    assert_eq!(options["enabled"], true, "the question is the options themselves");
    let node = cluster.get(NODE, "", "node-1").await.unwrap();
    assert_eq!(
        node["spec"]["unschedulable"], true,
        "it is cordoned before the hook is opened"
    );
    let mut other = strategy("1");
    other["controlPlaneDrainOptions"]["timeout"] = json!(60);
    order(&cluster, other).await;
    cluster.minutes(2).await;
    let second = plans(&cluster).await["node-1"].1[annotations::RKE_PRE_DRAIN].clone();
    assert_ne!(first, second);
    answer(&cluster, &secret, annotations::PRE_HOOK, &first).await;
    cluster.minutes(60).await;
    let waiting = plans(&cluster).await.remove("node-1").unwrap().1;
    assert!(waiting["rke.cattle.io/drain-done"].is_null(), "{waiting}");
    answer(&cluster, &secret, annotations::PRE_HOOK, &second).await;
    cluster.minutes(30).await;
    // Hook and answer stay until the node is uncordoned.
    let drained = plans(&cluster).await.remove("node-1").unwrap().1;
    assert_eq!(drained[annotations::RKE_PRE_DRAIN], second);
    assert_eq!(drained[annotations::PRE_HOOK], second);
    assert_eq!(drained[annotations::RKE_POST_DRAIN], second);
    answer(&cluster, &secret, annotations::POST_HOOK, &second).await;
    cluster.minutes(2).await;
    let done = plans(&cluster).await.remove("node-1").unwrap().1;
    let left = done
        .as_object()
        .unwrap()
        .keys()
        .filter(|key| !key.starts_with("world."));
    assert_eq!(left.count(), 0, "{done}");
    assert!(cluster.get(NODE, "", "node-1").await.unwrap()["spec"]["unschedulable"].is_null());
}

#[tokio::test(start_paused = true)]
async fn r57_etcd_goes_one_at_a_time_by_the_names_of_machines_and_workers_follow_together() {
    let cluster = test_cluster(without_vms(6), Durations::default(), Troubles::default()).await;
    let mut all_at_once = strategy("0");
    all_at_once["controlPlaneConcurrency"] = json!("0");
    order(&cluster, all_at_once).await;
    let cordoned = answer_all(&cluster, 120, |_| true).await;
    let plans = plans(&cluster).await;
    let mut etcd = ["node-2", "node-3"];
    etcd.sort_by_key(|node| &plans[*node].0);
    let mut expected = vec![vec!["node-1".to_owned()]];
    expected.extend(etcd.map(|node| vec![node.to_owned()]));
    assert_eq!(cordoned[..3], expected);
    assert_eq!(cordoned[3], ["node-4", "node-5", "node-6"]);
    let nodes = cluster.list(NODE, "").await;
    assert!(
        nodes
            .iter()
            .all(|node| node["status"]["nodeInfo"]["kubeletVersion"] == VERSION)
    );
}

#[tokio::test(start_paused = true)]
async fn r57_a_machine_whose_plan_failed_is_let_past_the_limit() {
    let troubles = Troubles {
        failed_machine_plans: ["node-3".to_owned()].into(),
        ..Troubles::default()
    };
    let cluster = test_cluster(without_vms(3), Durations::default(), troubles).await;
    order(&cluster, strategy("1")).await;
    cluster.minutes(20).await;
    assert_eq!(
        asked(&cluster).await,
        ["node-1"],
        "the first machine has a tier for itself"
    );
    for _ in 0..60 {
        if asked(&cluster).await.len() > 1 {
            break;
        }
        answer_all(&cluster, 1, |node| node == "node-1").await;
    }
    assert_eq!(asked(&cluster).await, ["node-2", "node-3"]);
}

#[tokio::test(start_paused = true)]
async fn r57_the_strategy_is_read_on_every_pass() {
    let cluster = test_cluster(without_vms(6), Durations::default(), Troubles::default()).await;
    order(&cluster, strategy("1")).await;
    for _ in 0..120 {
        if asked(&cluster).await.iter().any(|node| node.as_str() > "node-3") {
            break;
        }
        answer_all(&cluster, 1, |node| node <= "node-3").await;
    }
    assert_eq!(asked(&cluster).await.len(), 1, "one worker at a time");
    order(&cluster, strategy("50%")).await;
    cluster.minutes(2).await;
    assert_eq!(asked(&cluster).await.len(), 2, "half of three, rounded up");
}
