//! Whole upgrades of real nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api::{Phase, UpgradePlanSpec, foreign::kubevirt::VirtualMachine};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt, api::ListParams};

use super::{
    cluster::{Cluster, node_names, on_nodes},
    release,
};

/// An upgrade, on a machine that does other things too.
const LIMIT: Duration = Duration::from_mins(15);

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct System {
    os: String,
    kubelet: String,
    boot: String,
}

async fn systems(cluster: &Cluster) -> BTreeMap<String, System> {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let found = nodes.list(&ListParams::default()).await.unwrap();
    let of = |node: Node| {
        let info = node.status.as_ref().unwrap().node_info.clone().unwrap();
        let system = System {
            os: info.os_image,
            kubelet: info.kubelet_version,
            boot: info.boot_id,
        };
        (node.name_any(), system)
    };
    found.items.into_iter().map(of).collect()
}

/// The VMs that run.
async fn running_vms(cluster: &Cluster) -> Vec<String> {
    let vms: Api<VirtualMachine> = Api::all(cluster.client.clone());
    let found = vms.list(&ListParams::default()).await.unwrap().items.into_iter();
    found
        .filter(|vm| vm.status.printable_status.as_deref() == Some("Running"))
        .map(|vm| vm.name_any())
        .collect()
}

/// Whether every container of a pod of this image runs, and on which nodes there are such pods.
async fn nodes_that_run(cluster: &Cluster, image: &str) -> BTreeSet<String> {
    let pods = cluster.pods().await.into_iter();
    let runs = |pod: &Pod| {
        let spec = pod.spec.as_ref();
        let has = spec.is_some_and(|spec| spec.containers.iter().any(|one| one.image.as_deref() == Some(image)));
        has && api::pod::is_ready(pod)
    };
    pods.filter(runs).filter_map(|pod| pod.spec?.node_name).collect()
}

fn upgrades_all(count: usize) {
    on_nodes(count, async |cluster| {
        let before = systems(cluster).await;
        let vms = running_vms(cluster).await;
        assert!(!vms.is_empty());
        assert!(
            before.values().all(|system| system.os == "Harvester v1.7.1"),
            "{before:?}"
        );
        let spec = UpgradePlanSpec {
            restore_vm: Some(true),
            ..UpgradePlanSpec::default()
        };
        cluster.create_plan("up", spec).await;
        cluster
            .plan_when("up", LIMIT, "Succeeded", |plan| plan.phase() == Some(Phase::Succeeded))
            .await;
        for (name, system) in systems(cluster).await {
            assert_ne!(system.boot, before[&name].boot, "{name} has rebooted");
        }
        assert_upgraded(cluster, count).await;
        assert_eq!(running_vms(cluster).await, vms, "VMs run as before");
        let ended = cluster.recorder.ended();
        let kinds = ["image-preload", "cluster-upgrade", "node-upgrade", "image-cleanup"];
        for kind in kinds {
            assert!(
                ended.iter().any(|pod| pod.name.contains(kind)),
                "no pod of {kind} was recorded"
            );
        }
        for pod in ended {
            let silent: Vec<_> = pod.messages.iter().filter(|(_, message)| message.is_empty()).collect();
            assert!(silent.is_empty(), "{} ends without a termination message", pod.name);
        }
        assert_eq!(cluster.recorder.leaks(&cluster.client).await, Vec::<String>::new());
    });
}

/// All nodes run the new system and the new kubelet, have the images of the new release, and no stale ones.
pub(super) async fn assert_upgraded(cluster: &Cluster, count: usize) {
    let after = systems(cluster).await;
    assert_eq!(after.len(), count);
    for (name, system) in after {
        assert_eq!(system.os, "Harvester v1.8.0", "{name}");
        assert_eq!(system.kubelet, "v1.35.2+rke2r1", "{name}");
    }
    let managers = nodes_that_run(cluster, "longhornio/longhorn-manager:v1.11.0").await;
    assert_eq!(
        managers.len(),
        count,
        "images of the new release run on every node: {managers:?}"
    );
    assert_eq!(nodes_that_run(cluster, "rancher/rancher:v2.14.0-alpha9").await.len(), 1);
    for node in node_names(count) {
        let images = cluster.images_of(&node);
        let has = |name: &str| images.iter().any(|image| image == name);
        let stale: Vec<_> = release::stale_images().filter(|name| has(name)).collect();
        assert!(stale.is_empty(), "{node} still has {stale:?}");
        let missing: Vec<_> = release::expected_images().filter(|name| !has(name)).collect();
        assert!(missing.is_empty(), "{node} lacks {missing:?}");
    }
}

#[test]
fn three_real_nodes_are_upgraded_to_the_end() {
    upgrades_all(3);
}

#[test]
fn a_single_real_node_is_upgraded_to_the_end() {
    upgrades_all(1);
}
