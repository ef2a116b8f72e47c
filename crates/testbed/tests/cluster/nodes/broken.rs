//! Real nodes and pods that break while they are upgraded. Each ends as docs/recover.md and docs/troubleshooting.md say.

use std::time::Duration;

use api::{JobType, Phase, UpgradePlan, UpgradePlanSpec, names};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::wait::await_condition,
};
use serde_json::json;

use super::cluster::{Cluster, MANAGER, on_nodes};

/// An upgrade, on a machine that does other things too.
const LIMIT: Duration = Duration::from_mins(15);
/// How often pods are looked at.
const PAUSE: Duration = Duration::from_millis(200);

fn succeeded(plan: &UpgradePlan) -> bool {
    plan.phase() == Some(Phase::Succeeded)
}

fn failed(plan: &UpgradePlan) -> bool {
    plan.phase() == Some(Phase::Failed)
}

/// What the plan says, wherever it says it.
fn said(plan: &UpgradePlan) -> String {
    serde_json::to_string(&plan.status).unwrap()
}

async fn start(cluster: &Cluster) {
    let spec = UpgradePlanSpec {
        restore_vm: Some(true),
        ..UpgradePlanSpec::default()
    };
    cluster.create_plan("up", spec).await;
}

/// The pod once one fits and has not ended.
async fn running(cluster: &Cluster, what: &str, fits: impl Fn(&Pod) -> bool) -> Pod {
    let found = async {
        loop {
            // From the moment that it has a node: some programs take only seconds.
            let runs = |pod: &&Pod| {
                let has_node = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
                has_node && !api::pod::has_ended(pod) && pod.metadata.deletion_timestamp.is_none() && fits(pod)
            };
            if let Some(pod) = cluster.pods().await.iter().find(runs) {
                return pod.clone();
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    match tokio::time::timeout(LIMIT, found).await {
        Ok(pod) => pod,
        Err(_) => panic!("no {what} runs\n{}", cluster.describe("up").await),
    }
}

/// Ends pods at once, as a crash of their node would.
async fn kill(cluster: &Cluster, pods: &[Pod]) {
    for pod in pods {
        let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &pod.namespace().unwrap());
        let at_once = DeleteParams::default().grace_period(0);
        match api.delete(&pod.name_any(), &at_once).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn is_manager(pod: &Pod) -> bool {
    pod.name_any().starts_with(MANAGER)
}

#[test]
fn a_manager_pod_that_is_killed_in_every_phase_continues() {
    on_nodes(1, async |cluster| {
        start(cluster).await;
        let phases = [
            Phase::RepoCreating,
            Phase::ImagePreloading,
            Phase::ClusterUpgrading,
            Phase::NodeUpgrading,
        ];
        let mut killed = Vec::new();
        for phase in phases {
            let reached = move |plan: &UpgradePlan| plan.phase() >= Some(phase);
            cluster.plan_when("up", LIMIT, phase.as_str(), reached).await;
            let is_alive = |pod: &Pod| is_manager(pod) && !killed.contains(&pod.uid());
            let manager = running(cluster, "manager", is_alive).await;
            killed.push(manager.uid());
            kill(cluster, &[manager]).await;
        }
        cluster.plan_when("up", LIMIT, "Succeeded", succeeded).await;
    });
}

#[test]
fn a_node_that_loses_its_power_during_post_drain_is_upgraded_when_it_is_back() {
    on_nodes(3, async |cluster| {
        start(cluster).await;
        let is_post_drain = |pod: &Pod| JobType::of(&pod.metadata) == Some(JobType::PostDrain);
        let pod = running(cluster, "post-drain pod", is_post_drain).await;
        let node = pod.spec.unwrap().node_name.unwrap();
        cluster.nodes.cut_power(&node).unwrap();
        let nodes: Api<Node> = Api::all(cluster.client.clone());
        let is_away = |node: Option<&Node>| node.is_some_and(|node| !api::node::is_ready(node));
        let away = tokio::time::timeout(LIMIT, await_condition(nodes, &node, is_away)).await;
        away.expect("Kubernetes sees that the node is away").unwrap();
        cluster.nodes.power_on(&node).unwrap();
        cluster.plan_when("up", LIMIT, "Succeeded", succeeded).await;
        super::upgrade::assert_upgraded(cluster, 3).await;
    });
}

#[test]
fn a_repository_that_goes_away_while_images_are_loaded_is_waited_for() {
    on_nodes(1, async |cluster| {
        start(cluster).await;
        let loads = |plan: &UpgradePlan| plan.phase() >= Some(Phase::ImagePreloading);
        cluster.plan_when("up", LIMIT, "loading images", loads).await;
        let is_repository = |pod: &Pod| pod.name_any().starts_with("up-repo");
        let repositories: Vec<Pod> = cluster.pods().await.into_iter().filter(is_repository).collect();
        assert!(!repositories.is_empty());
        kill(cluster, &repositories).await;
        let has_loaded = |pod: &Pod| pod.name_any().contains("image-preload") && api::pod::has_ended(pod);
        let loaded: Vec<Pod> = cluster.pods().await.into_iter().filter(has_loaded).collect();
        assert!(loaded.is_empty(), "images were loaded before the repository went away");
        cluster.plan_when("up", LIMIT, "Succeeded", succeeded).await;
    });
}

#[test]
fn a_node_with_a_full_disk_fails_the_plan_before_anything_is_loaded_and_a_retry_continues() {
    on_nodes(1, async |cluster| {
        let fill =
            "size=$(($(stat -f -c '%a * %S' /var/lib/kubelet) / 100 * 88)); fallocate -l $size /var/lib/kubelet/full";
        cluster.nodes.exec("node-1", &["bash", "-c", fill]).unwrap();
        kubelet_reports_disk(cluster, true).await;
        start(cluster).await;
        let plan = cluster.plan_when("up", LIMIT, "Failed", failed).await;
        let text = said(&plan);
        assert!(
            text.contains("node-1") && text.contains("storage space after loading new images"),
            "{text}"
        );
        cluster.nodes.exec("node-1", &["rm", "/var/lib/kubelet/full"]).unwrap();
        kubelet_reports_disk(cluster, false).await;
        retry(cluster).await;
        cluster.plan_when("up", LIMIT, "Succeeded", succeeded).await;
    });
}

/// A kubelet looks at its disk now and then: waits until it reports that little is left, or that there is room again.
async fn kubelet_reports_disk(cluster: &Cluster, is_full: bool) {
    let summary = || http::Request::get("/api/v1/nodes/node-1/proxy/stats/summary").body(Vec::new());
    let reported = async {
        loop {
            let text = cluster.client.request_text(summary().unwrap()).await.unwrap();
            let found: serde_json::Value = serde_json::from_str(&text).unwrap();
            let disk = &found["node"]["fs"];
            let is_low = disk["availableBytes"].as_u64().unwrap() < disk["capacityBytes"].as_u64().unwrap() / 4;
            if is_low == is_full {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(LIMIT, reported)
        .await
        .expect("the kubelet reports its disk");
}

/// Sets an annotation of the plan, as a user would.
async fn annotate(cluster: &Cluster, key: &str) {
    let patch = json!({"metadata": {"annotations": {key: "true"}}});
    let params = PatchParams::default();
    cluster
        .plans()
        .patch("up", &params, &Patch::Merge(&patch))
        .await
        .unwrap();
}

/// Asks for another try, and waits until the plan has begun it.
async fn retry(cluster: &Cluster) {
    let patch = json!({"metadata": {"annotations": {api::annotations::RETRY: "true"}}});
    let params = PatchParams::default();
    cluster
        .plans()
        .patch("up", &params, &Patch::Merge(&patch))
        .await
        .unwrap();
    let continues = |plan: Option<&UpgradePlan>| plan.is_some_and(|plan| !failed(plan));
    let found = await_condition(cluster.plans(), "up", continues);
    if tokio::time::timeout(LIMIT, found).await.is_err() {
        panic!("the retry does not begin\n{}", cluster.describe("up").await);
    }
}

#[test]
fn an_image_that_is_not_there_is_named_while_the_plan_waits() {
    on_nodes(1, async |cluster| {
        let spec = UpgradePlanSpec {
            upgrade: Some("never-built".to_owned()),
            ..UpgradePlanSpec::default()
        };
        cluster.create_plan("up", spec).await;
        let names_it = |plan: &UpgradePlan| {
            let waits = plan.status.iter().flat_map(|status| &status.waiting_for);
            waits
                .filter_map(|wait| wait.message.as_deref())
                .any(|message| message.contains("ImagePull") && message.contains("never-built"))
        };
        cluster.plan_when("up", LIMIT, "waiting for an image", names_it).await;
        annotate(cluster, api::annotations::ALLOW_DELETION).await;
        cluster.plans().delete("up", &DeleteParams::default()).await.unwrap();
        let none = async {
            while cluster.plans().get_opt("up").await.unwrap().is_some() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(LIMIT, none)
            .await
            .expect("a plan that waits can be deleted");
        let left: Api<k8s_openapi::api::apps::v1::Deployment> =
            Api::namespaced(cluster.client.clone(), names::HARVESTER_NAMESPACE);
        let left = left.list(&ListParams::default()).await.unwrap();
        assert!(left.items.iter().all(|found| !found.name_any().starts_with("up-")));
    });
}

#[test]
fn a_node_that_comes_back_with_its_old_system_fails_the_plan_and_a_retry_installs_it_again() {
    on_nodes(3, async |cluster| {
        start(cluster).await;
        let is_post_drain = |pod: &Pod| JobType::of(&pod.metadata) == Some(JobType::PostDrain);
        let pod = running(cluster, "post-drain pod", is_post_drain).await;
        let node = pod.spec.unwrap().node_name.unwrap();
        cluster.nodes.boot_from(&node, "passive").unwrap();
        let plan = cluster.plan_when("up", LIMIT, "Failed", failed).await;
        let text = said(&plan);
        assert!(
            text.contains("it came back with") && text.contains("Harvester v1.7.1"),
            "{text}"
        );
        cluster.nodes.boot_from(&node, "active").unwrap();
        retry(cluster).await;
        cluster.plan_when("up", LIMIT, "Succeeded", succeeded).await;
        super::upgrade::assert_upgraded(cluster, 3).await;
    });
}
