//! Rancher, drains and reboots.

use std::time::Duration;

use crate::support::*;
use api::{JobType, annotations, names};
use serde_json::{Value, json};
use world::{Durations, Shape, Troubles, troubles::RebootTrouble};

const HARVESTER: &str = api::names::HARVESTER_NAMESPACE;

async fn order_upgrade(cluster: &TestCluster) {
    let config = json!({"provisionGeneration": 1, "upgradeStrategy": strategy("1")});
    let patch = json!({"spec": {"kubernetesVersion": "v1.35.2+rke2r1", "rkeConfig": config}});
    cluster
        .patch(CLUSTER, names::FLEET_NAMESPACE, names::LOCAL_CLUSTER, patch)
        .await;
}

async fn tokens(cluster: &TestCluster) -> Vec<(String, String)> {
    let secrets = cluster.list(SECRET, names::FLEET_NAMESPACE).await;
    let token = |secret: &Value| {
        secret["metadata"]["annotations"][annotations::RKE_PRE_DRAIN]
            .as_str()
            .map(str::to_owned)
    };
    let name = |secret: &Value| secret["metadata"]["name"].as_str().unwrap().to_owned();
    secrets
        .iter()
        .filter_map(|secret| Some((name(secret), token(secret)?)))
        .collect()
}

fn kubelet(node: &Value) -> &str {
    node["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap()
}

#[tokio::test(start_paused = true)]
async fn rancher_waits_for_the_hook_before_it_drains() {
    let cluster = calm().await;
    order_upgrade(&cluster).await;
    cluster.minutes(11).await;
    assert!(tokens(&cluster).await.is_empty(), "the dead time is not over");
    cluster.minutes(60).await;
    let open = tokens(&cluster).await;
    assert_eq!(open.len(), 1, "one node at a time");
    let node = cluster.get(NODE, "", "node-1").await.unwrap();
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(kubelet(&node), "v1.34.3+rke2r1");
    assert_eq!(vms_on(&cluster, "node-1").await.len(), 2, "nothing was drained");
    let rancher_cluster = cluster
        .get(CLUSTER, names::FLEET_NAMESPACE, names::LOCAL_CLUSTER)
        .await
        .unwrap();
    assert_eq!(rancher_cluster["status"]["ready"], true, "it never goes back");
    assert_eq!(condition(&rancher_cluster, "Updated")["status"], "Unknown");
}

#[tokio::test(start_paused = true)]
async fn without_a_strategy_rancher_continues_without_gates() {
    let cluster = calm().await;
    order_upgrade(&cluster).await;
    cluster.minutes(5).await;
    let patch = json!({"spec": {"rkeConfig": {"upgradeStrategy": null}}});
    cluster
        .patch(CLUSTER, names::FLEET_NAMESPACE, names::LOCAL_CLUSTER, patch)
        .await;
    cluster
        .until(300, NODE, "", "node-3", |node| kubelet(node) == "v1.35.2+rke2r1")
        .await;
    assert!(tokens(&cluster).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn r57_a_node_whose_drain_has_begun_gets_its_plan_without_a_strategy_but_its_hook_is_still_asked() {
    let cluster = calm().await;
    order_upgrade(&cluster).await;
    cluster.minutes(60).await;
    let patch = json!({"spec": {"rkeConfig": {"upgradeStrategy": null}}});
    cluster
        .patch(CLUSTER, names::FLEET_NAMESPACE, names::LOCAL_CLUSTER, patch)
        .await;
    cluster
        .until(60, NODE, "", "node-1", |node| kubelet(node) == "v1.35.2+rke2r1")
        .await;
    cluster.minutes(300).await;
    let node = cluster.get(NODE, "", "node-1").await.unwrap();
    assert_eq!(node["spec"]["unschedulable"], true, "no answer");
    assert_eq!(
        kubelet(&cluster.get(NODE, "", "node-2").await.unwrap()),
        "v1.34.3+rke2r1"
    );
}

#[tokio::test(start_paused = true)]
async fn a_drain_without_hooks_makes_vms_migrate() {
    let cluster = calm().await;
    let mut strategy = strategy("1");
    for tier in ["controlPlaneDrainOptions", "workerDrainOptions"] {
        for hooks in ["preDrainHooks", "postDrainHooks"] {
            strategy[tier][hooks] = json!([]);
        }
    }
    let patch = json!({"spec": {"rkeConfig": {"provisionGeneration": 1, "upgradeStrategy": strategy}}});
    cluster
        .patch(CLUSTER, names::FLEET_NAMESPACE, names::LOCAL_CLUSTER, patch)
        .await;
    cluster
        .until(30, NODE, "", "node-1", |node| node["spec"]["unschedulable"] == true)
        .await;
    cluster
        .until(30, NODE, "", "node-1", |node| node["spec"]["unschedulable"].is_null())
        .await;
    assert!(vms_on(&cluster, "node-1").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_allows_nothing_blocks_the_drain() {
    let troubles = Troubles {
        blocked_drains: ["node-1".to_owned()].into(),
        ..Default::default()
    };
    let cluster = test_cluster(Shape::default(), Durations::default(), troubles).await;
    order_upgrade(&cluster).await;
    cluster.minutes(20).await;
    let (secret, token) = tokens(&cluster).await.remove(0);
    cluster.plan("up").await;
    cluster.create(JOB, node_job("up", JobType::PreDrain, "node-1")).await;
    cluster
        .until(10, JOB, HARVESTER, "up-node-upgrade-pre-drain-node-1", |job| {
            is(job, "Complete")
        })
        .await;
    let ack = json!({"metadata": {"annotations": {annotations::PRE_HOOK: token}}});
    cluster.patch(SECRET, names::FLEET_NAMESPACE, &secret, ack).await;
    cluster.minutes(120).await;
    assert_eq!(
        kubelet(&cluster.get(NODE, "", "node-1").await.unwrap()),
        "v1.34.3+rke2r1"
    );
    cluster
        .delete("policy/v1/PodDisruptionBudget", "default", "stubborn-node-1")
        .await;
    cluster
        .until(60, NODE, "", "node-1", |node| kubelet(node) == "v1.35.2+rke2r1")
        .await;
}

async fn reboot(cluster: &TestCluster) -> Value {
    if cluster.get(UPGRADE_PLAN, "", "up").await.is_none() {
        cluster.serve_release("up").await;
    }
    let patch = json!({"status": {"nodeInfo": {"kubeletVersion": "v1.35.2+rke2r1"}}});
    let api = cluster.api(NODE, "");
    api.patch_status("node-1", &Default::default(), &kube::api::Patch::Merge(patch))
        .await
        .unwrap();
    let before = cluster.get(NODE, "", "node-1").await.unwrap();
    cluster.create(JOB, node_job("up", JobType::PostDrain, "node-1")).await;
    cluster
        .until(10, JOB, HARVESTER, "up-node-upgrade-post-drain-node-1", |job| {
            is(job, "Complete")
        })
        .await;
    cluster.until(10, NODE, "", "node-1", |node| !is(node, "Ready")).await;
    before
}

#[tokio::test(start_paused = true)]
async fn a_node_comes_back_with_another_boot_id_and_system() {
    let cluster = calm().await;
    let before = reboot(&cluster).await;
    let back = cluster.until(10, NODE, "", "node-1", |node| is(node, "Ready")).await;
    assert_eq!(back["status"]["nodeInfo"]["osImage"], "Harvester v1.8.0");
    assert_ne!(
        back["status"]["nodeInfo"]["bootID"],
        before["status"]["nodeInfo"]["bootID"]
    );
    cluster.minutes(60).await;
    let later = cluster.get(NODE, "", "node-1").await.unwrap();
    assert_eq!(
        later["metadata"]["resourceVersion"], back["metadata"]["resourceVersion"],
        "one reboot, then silence"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_may_come_back_with_the_old_system_or_not_at_all() {
    let with = |trouble| Troubles {
        reboots: [("node-1".to_owned(), trouble)].into(),
        ..Default::default()
    };
    let old = test_cluster(Shape::default(), Durations::default(), with(RebootTrouble::OldSystem)).await;
    let before = reboot(&old).await;
    let back = old.until(10, NODE, "", "node-1", |node| is(node, "Ready")).await;
    assert_eq!(back["status"]["nodeInfo"]["osImage"], "Harvester v1.7.1");
    assert_ne!(
        back["status"]["nodeInfo"]["bootID"],
        before["status"]["nodeInfo"]["bootID"]
    );

    let gone = test_cluster(
        Shape::default(),
        Durations::default(),
        with(RebootTrouble::NeverReturns),
    )
    .await;
    reboot(&gone).await;
    gone.minutes(300).await;
    assert!(!is(&gone.get(NODE, "", "node-1").await.unwrap(), "Ready"));
    let volumes = gone.list("longhorn.io/v1beta2/Volume", names::LONGHORN_NAMESPACE).await;
    assert!(
        volumes
            .iter()
            .any(|volume| volume["status"]["robustness"] == "degraded")
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_loses_its_power_during_the_installation_is_installed_by_the_jobs_next_pod() {
    let troubles = Troubles {
        reboots: [("node-1".to_owned(), RebootTrouble::DuringInstallation)].into(),
        ..Default::default()
    };
    let cluster = test_cluster(Shape::default(), Durations::default(), troubles).await;
    let boot = |node: &serde_json::Value| node["status"]["nodeInfo"]["bootID"].clone();
    let before = reboot(&cluster).await;
    // The second time that it goes down: its Job is complete.
    let down = cluster.get(NODE, "", "node-1").await.unwrap();
    assert_ne!(boot(&down), boot(&before), "it went down by accident");
    assert_eq!(down["status"]["nodeInfo"]["osImage"], "Harvester v1.7.1");
    let back = cluster.until(10, NODE, "", "node-1", |node| is(node, "Ready")).await;
    assert_eq!(back["status"]["nodeInfo"]["osImage"], "Harvester v1.8.0");
    let pods = cluster.list(POD, HARVESTER).await;
    let ended = |phase: &str| {
        let mut of_job = pods
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["job-name"] == "up-node-upgrade-post-drain-node-1");
        of_job.find(|pod| pod["status"]["phase"] == phase).cloned()
    };
    assert!(ended("Failed").is_some(), "{pods:#?}");
    let said = &ended("Succeeded").unwrap()["status"]["containerStatuses"][0]["state"]["terminated"]["message"];
    let armed_in = format!("RebootArmed: {}", boot(&down).as_str().unwrap());
    assert_eq!(*said, armed_in);
}

#[tokio::test(start_paused = true)]
async fn another_world_continues_where_one_stopped() {
    let cluster = calm().await;
    cluster.serve_release("up").await;
    // On another node than the one that reboots.
    let mut cluster_job = cluster_job("up");
    cluster_job["spec"]["template"]["spec"]["nodeName"] = json!("node-2");
    cluster.create(JOB, cluster_job).await;
    cluster
        .until(10, JOB, HARVESTER, "up-cluster-upgrade", |job| {
            job["status"]["active"] == 1
        })
        .await;
    let pods_of_the_job = async || {
        let mut pods = cluster.list(POD, HARVESTER).await;
        pods.retain(|pod| pod["metadata"]["labels"]["job-name"] == "up-cluster-upgrade");
        pods
    };
    let begun = pods_of_the_job().await;
    reboot(&cluster).await;
    cluster.world.abort();
    cluster.clock.sleep(Duration::from_secs(60)).await;
    let next = world::World::new(
        cluster.server.client(),
        cluster.clock.clone(),
        cluster.shape.clone(),
        Durations::default(),
        Troubles::default(),
    );
    let next = tokio::spawn(next.run());
    cluster.until(10, NODE, "", "node-1", |node| is(node, "Ready")).await;
    let done = cluster
        .until(60, JOB, HARVESTER, "up-cluster-upgrade", |job| is(job, "Complete"))
        .await;
    assert!(done["status"]["startTime"].is_string());
    // The program went on in the pod that the first world started.
    let ended = pods_of_the_job().await;
    assert_eq!((begun.len(), ended.len()), (1, 1));
    assert_eq!(ended[0]["metadata"]["uid"], begun[0]["metadata"]["uid"]);
    assert_eq!(ended[0]["status"]["phase"], "Succeeded");
    assert_eq!(ended[0]["spec"]["nodeName"], "node-2");
    next.abort();
}
