//! Longhorn and CDI: which volume an ISO gets, how copies are rebuilt, what keeps instance managers (docs/world.md).

use std::time::Duration;

use crate::support::*;
use api::{JobType, names};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use world::{Durations, Shape, Troubles};

const HARVESTER: &str = names::HARVESTER_NAMESPACE;
const LONGHORN: &str = names::LONGHORN_NAMESPACE;
const IMAGE: &str = "harvesterhci.io/v1beta1/VirtualMachineImage";
const CLAIM: &str = "v1/PersistentVolumeClaim";
const VOLUME: &str = "longhorn.io/v1beta2/Volume";
const ENGINE: &str = "longhorn.io/v1beta2/Engine";
const REPLICA: &str = "longhorn.io/v1beta2/Replica";
const INSTANCE_MANAGER: &str = "longhorn.io/v1beta2/InstanceManager";
const BUDGET: &str = "policy/v1/PodDisruptionBudget";

async fn import(cluster: &TestCluster, name: &str, backend: &str, annotations: Value) -> Option<Value> {
    let image = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": name, "namespace": HARVESTER, "annotations": annotations},
        "spec": {
            "backend": backend, "displayName": name, "sourceType": "download", "url": "https://example.com/a.iso",
            "checksum": "", "retry": 3, "targetStorageClassName": "longhorn-static",
        },
    });
    cluster.create(IMAGE, image).await;
    cluster
        .until(30, IMAGE, HARVESTER, name, |image| is(image, "Imported"))
        .await;
    cluster.get(CLAIM, HARVESTER, name).await
}

#[tokio::test(start_paused = true)]
async fn r17_only_a_cdi_image_with_the_annotation_gets_a_claim_that_a_repository_can_mount() {
    let cluster = calm().await;
    let marked = json!({"harvesterhci.io/os-upgrade-image": "True"});
    let claim = import(&cluster, "marked", "cdi", marked.clone()).await.unwrap();
    assert_eq!(claim["spec"]["accessModes"], json!(["ReadWriteMany"]));
    assert_eq!(claim["spec"]["volumeMode"], "Filesystem");
    let claim = import(&cluster, "plain", "cdi", json!({})).await.unwrap();
    assert_eq!(claim["spec"]["accessModes"], json!(["ReadWriteOnce"]));
    assert_eq!(claim["spec"]["volumeMode"], "Block");
    assert_eq!(import(&cluster, "old", "backingimage", marked).await, None);
}

/// Puts instance managers onto all nodes, and waits for their budgets.
async fn with_instance_managers(cluster: &TestCluster, nodes: usize) {
    for node in 1..=nodes {
        let name = format!("instance-manager-{node}");
        let manager = json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "InstanceManager",
            "metadata": {"name": name, "namespace": LONGHORN, "labels": {"longhorn.io/node": format!("node-{node}")}},
            "spec": {"nodeID": format!("node-{node}")},
        });
        cluster.create(INSTANCE_MANAGER, manager).await;
        cluster.until(5, BUDGET, LONGHORN, &name, |_| true).await;
        cluster
            .until(5, POD, LONGHORN, &name, |pod| pod["status"]["phase"] == "Running")
            .await;
    }
}

async fn cordon(cluster: &TestCluster, node: &str, cordoned: bool) {
    cluster
        .patch(NODE, "", node, json!({"spec": {"unschedulable": cordoned}}))
        .await;
    cluster.clock.sleep(Duration::from_secs(30)).await;
}

async fn is_guarded(cluster: &TestCluster, node: usize) -> bool {
    cluster
        .get(BUDGET, LONGHORN, &format!("instance-manager-{node}"))
        .await
        .is_some()
}

async fn empty(cluster: &TestCluster, node: &str) {
    cluster.create(JOB, node_job("up", JobType::PreDrain, node)).await;
    let job = names::node_job("up", JobType::PreDrain, node);
    cluster.until(60, JOB, HARVESTER, &job, |job| is(job, "Complete")).await;
}

#[tokio::test(start_paused = true)]
async fn r58_the_budget_of_an_instance_manager_goes_when_the_node_is_cordoned_and_empty_and_comes_back() {
    let cluster = calm().await;
    cluster.plan("up").await;
    with_instance_managers(&cluster, 3).await;
    cordon(&cluster, "node-1", true).await;
    assert!(is_guarded(&cluster, 1).await, "volumes are attached there");
    empty(&cluster, "node-1").await;
    cluster.clock.sleep(Duration::from_secs(30)).await;
    assert!(!is_guarded(&cluster, 1).await);
    assert!(is_guarded(&cluster, 2).await && is_guarded(&cluster, 3).await);
    cordon(&cluster, "node-1", false).await;
    assert!(is_guarded(&cluster, 1).await);
}

#[tokio::test(start_paused = true)]
async fn r58_a_node_that_is_paused_while_cordoned_keeps_the_budget_of_another_and_pre_drain_names_it() {
    let cluster = calm().await;
    cluster.plan("up").await;
    with_instance_managers(&cluster, 3).await;
    // Copies only on node-1 and node-2; used on node-3.
    let volume = cluster.list(VOLUME, LONGHORN).await;
    let volume = volume
        .iter()
        .find(|volume| volume["status"]["currentNodeID"] == "node-3")
        .unwrap();
    let name = volume["metadata"]["name"].as_str().unwrap();
    for replica in cluster.list(REPLICA, LONGHORN).await {
        if replica["spec"]["volumeName"] == name && replica["spec"]["nodeID"] == "node-3" {
            let copy = replica["metadata"]["name"].as_str().unwrap();
            cluster
                .patch(REPLICA, LONGHORN, copy, json!({"spec": {"nodeID": "node-2"}}))
                .await;
        }
    }
    cordon(&cluster, "node-2", true).await;
    cordon(&cluster, "node-1", true).await;
    cluster.create(JOB, node_job("up", JobType::PreDrain, "node-1")).await;
    cluster.minutes(30).await;
    assert!(is_guarded(&cluster, 1).await);
    let pods = cluster.list(POD, HARVESTER).await;
    let said: String = pods
        .iter()
        .map(|pod| pod["metadata"]["annotations"].to_string())
        .collect();
    assert!(
        said.contains("node-2, which is cordoned") && said.contains(name),
        "{said}"
    );
    cordon(&cluster, "node-2", false).await;
    let job = names::node_job("up", JobType::PreDrain, "node-1");
    cluster.until(10, JOB, HARVESTER, &job, |job| is(job, "Complete")).await;
    assert!(!is_guarded(&cluster, 1).await);
}

#[tokio::test(start_paused = true)]
async fn r40_pre_drain_waits_for_a_volume_that_is_attached_and_unused_and_names_it() {
    let cluster = calm().await;
    cluster.plan("up").await;
    let volume = json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
        "metadata": {"name": "pvc-left", "namespace": LONGHORN},
        "spec": {"numberOfReplicas": 1, "nodeID": "node-1"},
    });
    cluster.create(VOLUME, volume).await;
    let engine = json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "Engine",
        "metadata": {"name": "pvc-left-e-0", "namespace": LONGHORN},
        "spec": {"volumeName": "pvc-left", "nodeID": "node-1"},
    });
    cluster.create(ENGINE, engine).await;
    let set = async |kind: &str, name: &str, status: Value| {
        let patch = Patch::Merge(json!({ "status": status }));
        let api = cluster.api(kind, LONGHORN);
        api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    };
    let claim = json!({"namespace": "default", "pvcName": "left"});
    let attached =
        json!({"state": "attached", "robustness": "healthy", "currentNodeID": "node-1", "kubernetesStatus": claim});
    set(VOLUME, "pvc-left", attached).await;
    set(
        ENGINE,
        "pvc-left-e-0",
        json!({"currentState": "running", "replicaModeMap": {}}),
    )
    .await;
    cluster.create(JOB, node_job("up", JobType::PreDrain, "node-1")).await;
    cluster.minutes(30).await;
    assert!(vms_on(&cluster, "node-1").await.is_empty(), "VMs leave all the same");
    let pods = cluster.list(POD, HARVESTER).await;
    let said: String = pods
        .iter()
        .map(|pod| pod["metadata"]["annotations"].to_string())
        .collect();
    assert!(
        said.contains("StaleAttachment") && said.contains("default/left"),
        "{said}"
    );
    set(ENGINE, "pvc-left-e-0", json!({"currentState": "stopped"})).await;
    let job = names::node_job("up", JobType::PreDrain, "node-1");
    cluster.until(10, JOB, HARVESTER, &job, |job| is(job, "Complete")).await;
}

#[tokio::test(start_paused = true)]
async fn five_copies_of_a_node_are_rebuilt_at_a_time() {
    let shape = Shape {
        vms: 30,
        ..Default::default()
    };
    let durations = Durations::default();
    let rebuild = durations.rebuild;
    let cluster = test_cluster(shape, durations, Troubles::default()).await;
    let lost = async || {
        let replicas = cluster.list(REPLICA, LONGHORN).await;
        let lost = replicas
            .iter()
            .filter(|replica| replica["status"]["currentState"] == "error");
        lost.count()
    };
    let ready = async |ready: &str| {
        let conditions = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let api = cluster.api(NODE, "");
        let patch = Patch::Merge(conditions);
        api.patch_status("node-1", &PatchParams::default(), &patch)
            .await
            .unwrap();
    };
    ready("False").await;
    cluster.clock.sleep(Duration::from_secs(10)).await;
    assert_eq!(lost().await, 30, "each volume has a copy there");
    ready("True").await;
    cluster.clock.sleep(rebuild + Duration::from_secs(5)).await;
    assert_eq!(lost().await, 25);
    cluster.clock.sleep(rebuild).await;
    assert_eq!(lost().await, 20);
    cluster.clock.sleep(rebuild * 4).await;
    assert_eq!(lost().await, 0);
}
