//! `single-node-upgrade`.

use std::time::Duration;

use api::foreign::rancher::Cluster as RancherCluster;
use kube::Api;
use node::{limits::Limits, single_node::steps};
use serde_json::json;

use crate::host::{
    fake_node::{RKE2, changes},
    programs::{Cluster, NODE},
};

impl Cluster {
    async fn rancher_version(&self) -> Option<String> {
        let clusters: Api<RancherCluster> = Api::namespaced(self.harness.server.client(), "fleet-local");
        clusters.get("local").await.unwrap().spec.kubernetes_version
    }
}

async fn alone() -> Cluster {
    let cluster = Cluster::new(1).await;
    cluster.harness.vm("default", "web", NODE, json!({})).await;
    cluster
}

/// Rancher upgrades RKE2 on request.
async fn rancher(cluster: &Cluster) {
    let is_written = async || cluster.rancher_version().await.as_deref() == Some(RKE2);
    cluster
        .eventually("the new version of the Rancher cluster", is_written)
        .await;
    cluster.harness.clock.sleep(Duration::from_mins(5)).await;
    cluster.kubelet_becomes(RKE2).await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_one_node_stops_its_vms_and_is_upgraded_in_one_go() {
    let cluster = alone().await;
    let before = cluster.node.files();
    let (ended, ()) = cluster.run_while(steps, rancher(&cluster)).await;
    ended.unwrap();
    assert_eq!(
        cluster.harness.asked(),
        ["stop default/web"],
        "there is nowhere to move it"
    );
    assert_eq!(cluster.harness.list(NODE).await.as_deref(), Some("default/web"));
    assert_eq!(cluster.taints().await, ["users-own=:PreferNoSchedule"]);
    insta::assert_snapshot!("single_node_files", changes(&before, &cluster.node.files()));
    insta::assert_snapshot!("single_node_calls", cluster.node.tools.take_calls().join("\n"));
}

#[tokio::test(start_paused = true)]
async fn r01_what_the_program_writes_of_foreign_kinds_is_in_the_real_definitions() {
    let cluster = alone().await;
    let (ended, ()) = cluster.run_while(steps, rancher(&cluster)).await;
    ended.unwrap();
    // Every laboratory looks at the fields when it is left; this one makes sure that there is something to look at.
    if let Some(kinds) = cluster.harness.kinds_written() {
        assert_eq!(kinds, ["clusters.provisioning.cattle.io"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_image_comes_before_the_vms_stop_and_a_vm_that_stays_is_named() {
    let cluster = alone().await;
    cluster.harness.answer("stop default/web", 403, "a webhook forbids it");
    let (ended, ()) = cluster
        .run_while(steps, async {
            cluster
                .until_waiting_for("VM default/web still runs, and there is no other node for it")
                .await;
            assert!(cluster.node.read("usr/local/upgrade_tmp/rootfs.squashfs").is_some());
            assert_eq!(cluster.rancher_version().await.as_deref(), Some("v1.34.1+rke2r1"));
            let instances: Api<api::foreign::kubevirt::VirtualMachineInstance> =
                Api::namespaced(cluster.harness.server.client(), "default");
            instances
                .delete("web", &kube::api::DeleteParams::default())
                .await
                .unwrap();
            rancher(&cluster).await;
        })
        .await;
    ended.unwrap();
    assert_eq!(*cluster.node.repository.saved.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn r20_the_image_that_is_on_the_node_is_installed_while_the_repository_is_down() {
    let cluster = alone().await;
    let (ended, ()) = cluster
        .run_while(steps, async {
            // RKE2 restarts, and takes the repository's only pod with it.
            let is_written = async || cluster.rancher_version().await.as_deref() == Some(RKE2);
            cluster
                .eventually("the new version of the Rancher cluster", is_written)
                .await;
            *cluster.node.repository.broken.lock().unwrap() = true;
            cluster.kubelet_becomes(RKE2).await;
        })
        .await;
    ended.unwrap();
    assert_eq!(*cluster.node.repository.saved.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_does_not_settle_blocks_nothing() {
    let cluster = alone().await;
    let bundle = json!({"apiVersion": "fleet.cattle.io/v1alpha1", "kind": "Bundle",
        "metadata": {"name": "mcc-harvester", "namespace": "fleet-local"},
        "status": {"observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": "False", "message": "Modified(1)"}]}});
    cluster.install(&[bundle]).await;
    let (ended, ()) = cluster.run_while(steps, rancher(&cluster)).await;
    ended.unwrap();
    assert!(
        cluster
            .waits()
            .iter()
            .any(|wait| wait.contains("bundle mcc-harvester is not ready: Fleet says \"Modified(1)\""))
    );
}

#[tokio::test(start_paused = true)]
async fn killed_after_any_step_and_started_again_it_ends_the_same() {
    let cluster = alone().await;
    let (ended, ()) = cluster.run_while(steps, rancher(&cluster)).await;
    ended.unwrap();
    let expected = (
        cluster.node.files(),
        cluster.harness.list(NODE).await,
        cluster.rancher_version().await,
    );
    for done in 0..steps(&Limits::default()).len() {
        let cluster = alone().await;
        let twice = async {
            cluster.run_part(steps, done).await.unwrap();
            cluster.run(steps).await.unwrap();
        };
        tokio::join!(twice, rancher(&cluster));
        let state = (
            cluster.node.files(),
            cluster.harness.list(NODE).await,
            cluster.rancher_version().await,
        );
        assert_eq!(state, expected, "killed after {done} steps");
    }
}
