//! Virtual machines.

use crate::support::*;
use api::{JobType, names};
use serde_json::{Value, json};
use world::{Durations, Shape, Troubles, troubles::MigrationTrouble};

const HARVESTER: &str = api::names::HARVESTER_NAMESPACE;

#[tokio::test(start_paused = true)]
async fn a_drained_nodes_vms_end_on_other_nodes() {
    let cluster = calm().await;
    let there = vms_on(&cluster, "node-1").await;
    assert_eq!(there.len(), 2);
    cluster.plan("up").await;
    cluster.create(JOB, node_job("up", JobType::PreDrain, "node-1")).await;
    cluster
        .until(10, JOB, HARVESTER, "up-node-upgrade-pre-drain-node-1", |job| {
            is(job, "Complete")
        })
        .await;
    assert!(vms_on(&cluster, "node-1").await.is_empty());
    for vm in there {
        let vmi = cluster
            .list(VMI, "")
            .await
            .into_iter()
            .find(|vmi| vmi["metadata"]["name"] == vm)
            .unwrap();
        assert_eq!(
            vmi["metadata"]["labels"]["kubevirt.io/nodeName"],
            vmi["status"]["nodeName"]
        );
        assert_eq!(vmi["status"]["migrationState"]["completed"], true);
        let pods = cluster.list(POD, vmi["metadata"]["namespace"].as_str().unwrap()).await;
        let own: Vec<&Value> = pods
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["vm.kubevirt.io/name"] == vm)
            .collect();
        assert_eq!(own.len(), 1);
        assert_eq!(own[0]["spec"]["nodeName"], vmi["status"]["nodeName"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_migration_blocks_the_pre_drain_job() {
    let troubles = Troubles {
        migrations: [("default/web-1".to_owned(), MigrationTrouble::Stuck)].into(),
        ..Default::default()
    };
    let cluster = test_cluster(Shape::default(), Durations::default(), troubles).await;
    cluster.plan("up").await;
    cluster.create(JOB, node_job("up", JobType::PreDrain, "node-1")).await;
    cluster.minutes(120).await;
    assert_eq!(vms_on(&cluster, "node-1").await, ["web-1"]);
    let job = cluster
        .get(JOB, HARVESTER, "up-node-upgrade-pre-drain-node-1")
        .await
        .unwrap();
    assert_eq!(job["status"]["active"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_migration_is_tried_again() {
    let troubles = Troubles {
        migrations: [("default/web-1".to_owned(), MigrationTrouble::Fails(2))].into(),
        ..Default::default()
    };
    let cluster = test_cluster(Shape::default(), Durations::default(), troubles).await;
    cluster.plan("up").await;
    cluster.create(JOB, node_job("up", JobType::PreDrain, "node-1")).await;
    cluster
        .until(20, JOB, HARVESTER, "up-node-upgrade-pre-drain-node-1", |job| {
            is(job, "Complete")
        })
        .await;
    assert!(vms_on(&cluster, "node-1").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_vm_stops_and_starts_on_request() {
    let cluster = calm().await;
    cluster
        .patch(VM, "default", "web-1", json!({"spec": {"runStrategy": "Halted"}}))
        .await;
    cluster.until_gone(5, VMI, "default", "web-1").await;
    cluster
        .until(5, VM, "default", "web-1", |vm| {
            vm["status"]["printableStatus"] == "Stopped"
        })
        .await;
    let volumes = cluster
        .list("longhorn.io/v1beta2/Volume", names::LONGHORN_NAMESPACE)
        .await;
    assert_eq!(
        volumes
            .iter()
            .filter(|volume| volume["status"]["state"] == "detached")
            .count(),
        2
    );
    cluster
        .patch(VM, "default", "web-1", json!({"spec": {"runStrategy": "Always"}}))
        .await;
    cluster
        .until(5, VMI, "default", "web-1", |vmi| vmi["status"]["phase"] == "Running")
        .await;
    cluster
        .until(5, VM, "default", "web-1", |vm| {
            vm["status"]["printableStatus"] == "Running"
        })
        .await;
    cluster
        .until(5, POD, "default", "virt-launcher-web-1-0", |pod| {
            pod["status"]["phase"] == "Running"
        })
        .await;
}
