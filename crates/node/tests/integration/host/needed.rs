//! The programs of a node run as their account, with the roles that ship. Without any of their rules something is different,
//! and every verb is asked for.

use std::time::Duration;

use api::{accounts::NODE_UPGRADE, foreign::kubevirt, labels};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use node::{post_drain, pre_drain, single_node, vm::restore_list};
use program::Result;
use serde_json::json;

use crate::host::{
    fake_node::RKE2,
    programs::{Cluster, NODE},
};
use crate::vm::harness::PLAN;
use testbed::rights::{self, Asked};

/// Rights that these programs need and that show elsewhere.
const ELSEWHERE: [(&str, &str); 2] = [
    ("pods/status", "what is waited for: cli, simulation, rbac"),
    (
        "virtualmachines/stop",
        "not a request of the embedded API; the laboratory asks who may",
    ),
];
/// What is followed only where it is not as wanted at the first look. The tests of pre-drain, which run with these roles, have
/// all of these wait.
const FOUND_READY: [&str; 7] = [
    "watch bundles",
    "watch poddisruptionbudgets",
    "harvester-system: watch deployments",
    "longhorn-system: watch engines",
    "longhorn-system: watch replicas",
    "longhorn-system: watch volumes",
    "longhorn-system: watch settings node-drain-policy",
];
/// Longer than any of these takes; a right that is missing is waited for until a step gives up.
const LONGEST: Duration = Duration::from_hours(1);

/// A VM that fails to migrate and is tried again, and one whose stopping KubeVirt refuses because it stops already.
async fn emptied() -> Cluster {
    let cluster = Cluster::new(3).await;
    cluster.harness.vm("default", "web", NODE, json!({})).await;
    let device = json!({"domain": {"devices": {"hostDevices": [{"name": "nic"}]}}});
    cluster.harness.vm("default", "pinned", NODE, device.clone()).await;
    cluster.harness.vm("default", "other", NODE, device).await;
    let vms: Api<kubevirt::VirtualMachine> = Api::namespaced(cluster.harness.server.client(), "default");
    let halted = Patch::Merge(json!({"spec": {"runStrategy": "Halted"}}));
    vms.patch("pinned", &PatchParams::default(), &halted).await.unwrap();
    cluster.harness.answer("stop default/pinned", 409, "it stops already");
    cluster
        .patch_plan(json!({"spec": {"onMigrationFailure": "Retry"}}))
        .await;
    // Another node was here before.
    restore_list::add(&cluster.harness.strict(), PLAN, "node-2", &[])
        .await
        .unwrap();
    cluster
}

/// Waits for as long as it takes.
async fn until(cluster: &Cluster, mut test: impl AsyncFnMut() -> bool) {
    while !test().await {
        cluster.harness.clock.sleep(Duration::from_secs(5)).await;
    }
}

async fn empty(cluster: &Cluster) -> Result<()> {
    let client = cluster.harness.server.client();
    let instances: Api<kubevirt::VirtualMachineInstance> = Api::namespaced(client.clone(), "default");
    let migrations: Api<kubevirt::VirtualMachineInstanceMigration> = Api::namespaced(client, "default");
    let kubevirt = async {
        let waits = async || {
            cluster
                .waits()
                .iter()
                .any(|wait| wait.contains("default/web has not begun"))
        };
        until(cluster, waits).await;
        let migration = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": "kubevirt-evacuation-1", "namespace": "default",
                "annotations": {"kubevirt.io/evacuationMigration": NODE}}, "spec": {"vmiName": "web"}});
        cluster.install(&[migration]).await;
        let status = Patch::Merge(json!({"status": {"phase": "Failed"}}));
        migrations
            .patch_status("kubevirt-evacuation-1", &PatchParams::default(), &status)
            .await
            .unwrap();
        let gone = async || migrations.get_opt("kubevirt-evacuation-1").await.unwrap().is_none();
        until(cluster, gone).await;
        instances.delete("pinned", &DeleteParams::default()).await.unwrap();
        let moved = Patch::Merge(json!({"metadata": {"labels": {labels::VMI_NODE: "node-2"}},
            "status": {"nodeName": "node-2"}}));
        instances.patch("web", &PatchParams::default(), &moved).await.unwrap();
    };
    let kubevirt = async {
        kubevirt.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        ended = cluster.run(pre_drain::steps) => ended,
        () = kubevirt => Ok(()),
        () = cluster.harness.clock.sleep(LONGEST) => Err(program::Error::Permanent("it does not end".to_owned())),
    }
}

async fn drained() -> Cluster {
    let cluster = Cluster::new(3).await;
    cluster.kubelet_becomes(RKE2).await;
    let tainted = Patch::Merge(
        json!({"spec": {"taints": [{"key": "kubevirt.io/drain", "value": "draining",
        "effect": "NoSchedule"}]}}),
    );
    let nodes: Api<k8s_openapi::api::core::v1::Node> = cluster.all();
    nodes.patch(NODE, &PatchParams::default(), &tainted).await.unwrap();
    cluster
}

async fn alone() -> Cluster {
    let cluster = Cluster::new(1).await;
    cluster.harness.vm("default", "web", NODE, json!({})).await;
    cluster.kubelet_becomes(RKE2).await;
    cluster
}

/// Programs that need different rights.
const PROGRAMS: [&str; 3] = ["pre-drain", "post-drain", "single-node-upgrade"];

async fn begin(program: &str) -> Cluster {
    match program {
        "pre-drain" => emptied().await,
        "post-drain" => drained().await,
        _ => alone().await,
    }
}

/// How a program ended, and what KubeVirt was asked, events and lists of VMs included.
async fn outcome(program: &str, cluster: &Cluster) -> (bool, Vec<String>, Vec<String>, Option<String>) {
    let ended = match program {
        "pre-drain" => empty(cluster).await,
        "post-drain" => cluster.run(post_drain::steps).await,
        _ => cluster.run(single_node::steps).await,
    };
    // A node that Fleet was not asked about continues anyway, later.
    let late = cluster.harness.clock.elapsed() > Duration::from_mins(2);
    let mut asked = cluster.harness.asked();
    asked.push(format!("late: {late}"));
    (
        ended.is_ok(),
        asked,
        cluster.harness.events().await,
        cluster.harness.list(NODE).await,
    )
}

#[tokio::test(start_paused = true)]
async fn s06_every_verb_that_the_roles_of_nodes_allow_is_requested() {
    let asked = Asked::default();
    for program in PROGRAMS {
        let cluster = begin(program).await;
        asked.listen(&cluster.harness.server, NODE_UPGRADE);
        let (succeeded, ..) = outcome(program, &cluster).await;
        assert!(succeeded, "{program}: {:?}", cluster.waits());
        asked.take_writes(&cluster.harness.server, NODE_UPGRADE);
    }
    let elsewhere = [ELSEWHERE.map(|known| known.0).as_slice(), &FOUND_READY].concat();
    let never = asked.never(NODE_UPGRADE, &elsewhere);
    assert!(never.is_empty(), "allowed and never asked for: {never:#?}");
}

#[tokio::test(start_paused = true)]
async fn s06_without_any_rule_of_its_roles_a_node_is_not_upgraded_as_it_should_be() {
    let mut whole = Vec::new();
    for program in PROGRAMS {
        let cluster = begin(program).await;
        whole.push(outcome(program, &cluster).await);
    }
    let mut unneeded = Vec::new();
    'rules: for (role, number) in rights::rules(NODE_UPGRADE) {
        let text = rights::shown(&role, number);
        if text.contains("pods/status") {
            continue;
        }
        for (program, expected) in PROGRAMS.into_iter().zip(&whole) {
            let cluster = begin(program).await;
            rights::take_away(&cluster.harness.server, &role, number).await;
            if outcome(program, &cluster).await != *expected {
                continue 'rules;
            }
        }
        unneeded.push(text);
    }
    assert!(unneeded.is_empty(), "nothing breaks without: {unneeded:#?}");
}
