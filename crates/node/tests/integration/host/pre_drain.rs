//! `pre-drain`.

use std::time::Duration;

use api::{
    annotations,
    foreign::{
        kubevirt::{VirtualMachineInstance, VirtualMachineInstanceMigration},
        longhorn::{Engine, Volume},
    },
    labels,
};
use k8s_openapi::api::{core::v1::Node, policy::v1::PodDisruptionBudget};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use node::{limits::Limits, pre_drain::steps};
use serde_json::{Value, json};

use crate::host::{
    fake_node::changes,
    programs::{Cluster, NODE},
};

const LONGHORN: &str = "longhorn-system";

/// A volume that is used on this node and lacks a copy.
fn degraded_volume() -> Vec<Value> {
    let part = |kind: &str, name: &str, spec: Value, status: Value| {
        json!({"apiVersion": "longhorn.io/v1beta2", "kind": kind, "metadata": {"name": name, "namespace": LONGHORN},
            "spec": spec, "status": status})
    };
    let replica = |node: &str| {
        part(
            "Replica",
            &format!("vol-r-{node}"),
            json!({"volumeName": "vol", "nodeID": node}),
            json!({"currentState": "running"}),
        )
    };
    vec![
        part(
            "Volume",
            "vol",
            json!({"numberOfReplicas": 3}),
            json!({"state": "attached", "robustness": "degraded",
            "currentNodeID": NODE, "kubernetesStatus": {"namespace": "default", "pvcName": "disk"}}),
        ),
        part(
            "Engine",
            "vol-e-0",
            json!({"volumeName": "vol", "nodeID": NODE}),
            json!({"currentState": "running",
            "replicaModeMap": {"vol-r-node-1": "RW", "vol-r-node-2": "RW", "vol-r-node-3": "WO"},
            "rebuildStatus": {"tcp://10.0.0.3:10000": {"isRebuilding": true, "progress": 43, "state": "in_progress"}}}),
        ),
        replica("node-1"),
        replica("node-2"),
        replica("node-3"),
    ]
}

impl Cluster {
    async fn rebuild_ends(&self) {
        let volumes: Api<Volume> = Api::namespaced(self.harness.server.client(), LONGHORN);
        let healthy = json!({"status": {"robustness": "healthy"}});
        volumes
            .patch_status("vol", &PatchParams::default(), &Patch::Merge(&healthy))
            .await
            .unwrap();
    }

    /// The migration of VM `default/web` as KubeVirt would show it.
    async fn migration(&self, number: u32, phase: &str) {
        let name = format!("kubevirt-evacuation-{number}");
        let migration = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
            "metadata": {"name": name, "namespace": "default", "annotations": {"kubevirt.io/evacuationMigration": NODE}},
            "spec": {"vmiName": "web"}});
        self.install(&[migration]).await;
        let now = self.harness.clock.now_in_seconds().to_string();
        let status = json!({"status": {"phase": phase, "migrationState":
            {"failureReason": "guest CPU does not match", "endTimestamp": now}}});
        let api: Api<VirtualMachineInstanceMigration> = Api::namespaced(self.harness.server.client(), "default");
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }

    async fn migrations(&self) -> usize {
        let api: Api<VirtualMachineInstanceMigration> = self.all();
        api.list(&ListParams::default()).await.unwrap().items.len()
    }

    async fn web_moves_to(&self, node: &str) {
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.harness.server.client(), "default");
        let label = json!({"metadata": {"labels": {labels::VMI_NODE: node}}});
        api.patch("web", &PatchParams::default(), &Patch::Merge(&label))
            .await
            .unwrap();
        let status = json!({"status": {"nodeName": node, "migrationState": {"sourceNode": NODE, "targetNode": node}}});
        api.patch("web", &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }

    async fn is_tainted(&self) -> bool {
        self.taints()
            .await
            .contains(&"kubevirt.io/drain=draining:NoSchedule".to_owned())
    }

    async fn until_tainted(&self) {
        self.eventually("the drain taint", async || self.is_tainted().await)
            .await;
    }
}

/// Three nodes, and on this one a VM that can move.
async fn with_web() -> Cluster {
    let cluster = Cluster::new(3).await;
    cluster.harness.vm("default", "web", NODE, json!({})).await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_node_is_emptied_step_by_step_and_every_wait_has_a_name() {
    let cluster = with_web().await;
    let device = json!({"domain": {"devices": {"hostDevices": [{"name": "nic"}]}}});
    cluster.harness.vm("default", "pinned", NODE, device).await;
    cluster.install(&degraded_volume()).await;
    let before = cluster.node.files();
    let (ended, ()) = cluster
        .run_while(steps, async {
            cluster
                .until_waiting_for("degraded, 2 of 3 replicas healthy, rebuilding 43 %")
                .await;
            assert!(!cluster.is_tainted().await, "no VM moves while a volume lacks a copy");
            assert_eq!(cluster.harness.list(NODE).await, None, "and none is stopped");
            let engines: Api<Engine> = Api::namespaced(cluster.harness.server.client(), LONGHORN);
            let progress = json!({"status": {"rebuildStatus": {"tcp://10.0.0.3:10000": {"progress": 80}}}});
            engines
                .patch_status("vol-e-0", &PatchParams::default(), &Patch::Merge(&progress))
                .await
                .unwrap();
            cluster.until_waiting_for("rebuilding 80 %").await;
            cluster.rebuild_ends().await;

            cluster.until_tainted().await;
            assert_eq!(cluster.harness.list(NODE).await.as_deref(), Some("default/pinned"));
            assert_eq!(cluster.harness.asked(), ["stop default/pinned"]);
            cluster.until_waiting_for("VM default/web has not begun to move").await;
            cluster.migration(1, "Running").await;
            cluster
                .until_waiting_for("migration kubevirt-evacuation-1 is Running")
                .await;
            let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": "kubevirt-migration-pdb-kubevirt-evacuation-1", "namespace": "default"},
                "spec": {"minAvailable": 2}});
            let mut of_others = budget.clone();
            of_others["metadata"]["name"] = json!("kubevirt-migration-pdb-kubevirt-evacuation-9");
            cluster.install(&[budget, of_others]).await;
            cluster.web_moves_to("node-2").await;
            cluster
                .until_waiting_for("kubevirt-migration-pdb-kubevirt-evacuation-1 still guards")
                .await;
            let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.harness.server.client(), "default");
            let name = "kubevirt-migration-pdb-kubevirt-evacuation-1";
            budgets.delete(name, &DeleteParams::default()).await.unwrap();

            // The VMs have left, and the volume is still here.
            cluster
                .until_waiting_for("volume vol of claim default/disk: it is attached to node-1, but no pod uses it")
                .await;
            let elsewhere = Patch::Merge(json!({"spec": {"nodeID": "node-2"}}));
            let moved = engines.patch("vol-e-0", &PatchParams::default(), &elsewhere).await;
            moved.unwrap();
        })
        .await;
    ended.unwrap();
    assert!(
        cluster.waits().iter().all(|wait| !wait.contains("evacuation-9")),
        "budgets of others are theirs"
    );
    assert_eq!(
        cluster.taints().await,
        ["users-own=:PreferNoSchedule", "kubevirt.io/drain=draining:NoSchedule"]
    );
    insta::assert_snapshot!("pre_drain_files", changes(&before, &cluster.node.files()));
    insta::assert_snapshot!("pre_drain_calls", cluster.node.tools.take_calls().join("\n"));
    assert_eq!(*cluster.harness.board.termination_message.lock().unwrap(), "done");
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_an_administrator_skips_is_not_waited_for() {
    let cluster = Cluster::new(3).await;
    cluster.install(&degraded_volume()).await;
    let (ended, ()) = cluster
        .run_while(steps, async {
            cluster.until_waiting_for("Volume longhorn-system/vol").await;
            cluster
                .patch_plan(json!({"metadata": {"annotations": {annotations::SKIP_VOLUMES: "other, vol"}}}))
                .await;
        })
        .await;
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn block_waits_and_names_the_vm_and_the_error_until_a_user_acts() {
    let cluster = with_web().await;
    let (ended, ()) = cluster
        .run_while(steps, async {
            cluster.until_tainted().await;
            cluster.migration(1, "Failed").await;
            cluster
                .until_waiting_for(
                    "VM default/web could not be moved: migration kubevirt-evacuation-1 failed: guest CPU does not match",
                )
                .await;
            cluster.harness.clock.sleep(Duration::from_hours(2)).await;
            assert_eq!((cluster.harness.asked().len(), cluster.migrations().await), (0, 1), "nothing is done unasked");
            // A user stops the VM.
            let instances: Api<VirtualMachineInstance> = Api::namespaced(cluster.harness.server.client(), "default");
            instances.delete("web", &DeleteParams::default()).await.unwrap();
        })
        .await;
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn r56_a_drain_taint_that_a_controller_removes_is_set_again() {
    let cluster = with_web().await;
    let nodes: Api<Node> = Api::all(cluster.harness.server.client());
    let (ended, ()) = cluster
        .run_while(steps, async {
            cluster.until_waiting_for("VM default/web has not begun to move").await;
            for _ in 0..3 {
                let none = Patch::Merge(json!({"spec": {"taints": null}}));
                nodes.patch(NODE, &PatchParams::default(), &none).await.unwrap();
                cluster.until_tainted().await;
            }
            cluster.web_moves_to("node-2").await;
        })
        .await;
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn block_ends_at_its_deadline_with_the_name_of_the_vm() {
    let cluster = with_web().await;
    let limits = Limits {
        vms: Duration::from_mins(30),
        ..Limits::default()
    };
    let error = node::pre_drain::run(&cluster.begin(), &limits, &cluster.harness.reporter())
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "step wait-for-vms did not end within 1800s: 1 VM is still on node node-1; VM default/web has not begun to move"
    );
}

#[tokio::test(start_paused = true)]
async fn retry_has_the_migration_tried_again_with_longer_pauses_and_then_waits() {
    let cluster = with_web().await;
    cluster
        .patch_plan(json!({"spec": {"onMigrationFailure": "Retry"}}))
        .await;
    let mut pauses = Vec::new();
    let (ended, ()) = cluster
        .run_while(steps, async {
            cluster.until_tainted().await;
            for number in 1..=3 {
                cluster.migration(number, "Failed").await;
                let failed = cluster.harness.clock.elapsed();
                cluster
                    .eventually("that it is deleted", async || cluster.migrations().await == 0)
                    .await;
                pauses.push((cluster.harness.clock.elapsed() - failed).as_secs());
            }
            cluster.migration(4, "Failed").await;
            cluster.until_waiting_for("also after 3 retries").await;
            cluster.harness.clock.sleep(Duration::from_hours(1)).await;
            assert_eq!(cluster.migrations().await, 1);
            cluster.web_moves_to("node-3").await;
        })
        .await;
    ended.unwrap();
    let expected = [30, 60, 120];
    assert!(
        pauses
            .iter()
            .zip(expected)
            .all(|(pause, expected)| pause.abs_diff(expected) <= 2),
        "{pauses:?}"
    );
    assert!(cluster.harness.asked().is_empty(), "no VM was stopped");
}

#[tokio::test(start_paused = true)]
async fn a_program_that_starts_again_continues_counting_tries() {
    let cluster = with_web().await;
    cluster
        .patch_plan(json!({"spec": {"onMigrationFailure": "Retry"}}))
        .await;
    let instances: Api<VirtualMachineInstance> = Api::namespaced(cluster.harness.server.client(), "default");
    let counted = json!({"metadata": {"annotations": {annotations::EVACUATION_RETRIES: "up=3"}}});
    instances
        .patch("web", &PatchParams::default(), &Patch::Merge(&counted))
        .await
        .unwrap();
    let (ended, ()) = cluster
        .run_while(steps, async {
            cluster.until_tainted().await;
            cluster.migration(1, "Failed").await;
            cluster.until_waiting_for("also after 3 retries").await;
            assert_eq!(cluster.migrations().await, 1);
            cluster.web_moves_to("node-3").await;
        })
        .await;
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stop_records_the_vm_for_restore_before_it_stops_it() {
    let cluster = with_web().await;
    let device = json!({"domain": {"devices": {"hostDevices": [{"name": "nic"}]}}});
    cluster.harness.vm("default", "pinned", NODE, device).await;
    // The policy may change while the upgrade waits. KubeVirt refuses at first.
    cluster.harness.answer("stop default/web", 500, "virt-api is not well");
    let (ended, ()) = cluster
        .run_while(steps, async {
            cluster.until_tainted().await;
            cluster.migration(1, "Failed").await;
            cluster.until_waiting_for("or until spec.onMigrationFailure").await;
            cluster
                .patch_plan(json!({"spec": {"onMigrationFailure": "Stop"}}))
                .await;
            cluster.until_waiting_for("failed to stop VM default/web").await;
            let list = cluster.harness.list(NODE).await;
            assert_eq!(
                list.as_deref(),
                Some("default/pinned,default/web"),
                "recorded although it still runs"
            );
            cluster.harness.answers.lock().unwrap().clear();
        })
        .await;
    ended.unwrap();
    assert_eq!(
        cluster.harness.list(NODE).await.as_deref(),
        Some("default/pinned,default/web")
    );
    assert_eq!(
        cluster.harness.asked().last().map(String::as_str),
        Some("stop default/web")
    );
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_one_copy_whose_vm_moved_away_keeps_the_node() {
    let cluster = Cluster::new(3).await;
    let mut volume = degraded_volume();
    volume[0]["spec"]["numberOfReplicas"] = json!(1);
    volume[0]["status"]["robustness"] = json!("healthy");
    volume[0]["status"]["currentNodeID"] = json!("node-2");
    volume[1]["spec"]["nodeID"] = json!("node-2");
    volume[1]["status"]["replicaModeMap"] = json!({"vol-r-node-1": "RW"});
    cluster.install(&volume).await;
    let (ended, ()) = cluster
        .run_while(steps, async {
            cluster
                .until_waiting_for("the only healthy replica is on node-1, and it is used on node-2")
                .await;
            assert!(
                cluster
                    .node
                    .read("etc/rancher/rke2/config.yaml.d/40-disable-charts.yaml")
                    .is_none()
            );
            let engines: Api<Engine> = Api::namespaced(cluster.harness.server.client(), LONGHORN);
            let more = json!({"status": {"replicaModeMap": {"vol-r-node-2": "RW"}}});
            engines
                .patch_status("vol-e-0", &PatchParams::default(), &Patch::Merge(&more))
                .await
                .unwrap();
        })
        .await;
    ended.unwrap();
}
