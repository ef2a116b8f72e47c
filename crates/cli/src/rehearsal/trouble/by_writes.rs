//! Troubles that a client causes: objects are created or changed while the upgrade runs.

use std::time::Duration;

use anyhow::Context as _;
use api::{NodeState, Phase, UpgradePlan};
use futures::FutureExt;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{
    Chosen, Lift, Moment, Object, Play, Row, Shows,
    writes::{Hands, Kind, NODE},
};

const CAPI_CLUSTER: Kind = ("cluster.x-k8s.io", "v1beta2", "Cluster");
const CHART: Kind = ("management.cattle.io", "v3", "ManagedChart");
const SECRET: Kind = ("", "v1", "Secret");

/// How often a plan is looked at.
const LOOK: Duration = Duration::from_secs(10);
/// Rancher has uncordoned a node within this time.
const UNCORDONED: Duration = Duration::from_secs(60);

/// What most rows have in common.
const ROW: Row = Row {
    name: "",
    object: Object::None,
    default: "",
    begins: Moment::Phase(Phase::ImagePreloading),
    last: Some(Phase::NodeUpgrading),
    nodes: 1,
    happens: "",
    shows: Shows::Succeeds,
    remedy: "",
    lift: Lift::Never,
    play: Play::Manager,
};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "storage-network-full",
        begins: Moment::Phase(Phase::RepoCreating),
        happens: "The storage network has no free address. The upgrade itself continues.",
        shows: Shows::Doctor(&["D36"], "IPPool kube-system/rehearsed"),
        remedy: "Widen spec.range of the IPPool, or delete it: kubectl -n kube-system delete ippools.whereabouts.cni.cncf.io rehearsed.",
        play: Play::Writes(|hands, _| {
            let pool = json!({
                "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool",
                "metadata": {"name": "rehearsed", "namespace": "kube-system"},
                "spec": {"range": "192.168.9.0/30", "allocations": {
                    "1": {"id": "a", "podref": "longhorn-system/a"}, "2": {"id": "b", "podref": "longhorn-system/b"},
                }},
            });
            async move { hands.create(pool).await }.boxed()
        }),
        ..ROW
    },
    Row {
        name: "disk-pressure",
        object: Object::Node,
        default: "node-2",
        nodes: 2,
        happens: "NODE reports DiskPressure.",
        shows: Shows::Doctor(&["D30"], "Node "),
        remedy: "On a real node, remove images and files. Here the condition stays until the node reboots.",
        play: Play::Writes(|hands, chosen| pressure(hands, chosen).boxed()),
        ..ROW
    },
    Row {
        name: "clock-not-synchronised",
        object: Object::Node,
        default: "node-2",
        nodes: 2,
        happens: "The clock of NODE is not synchronised. The upgrade continues.",
        shows: Shows::Doctor(&["D45"], "Node "),
        remedy: "Remove the annotation, which stands for a reachable server here: kubectl annotate node NODE node.harvesterhci.io/ntp-service-.",
        play: Play::Writes(|hands, chosen| {
            let text = json!({"ntpSyncStatus": "unsynced"}).to_string();
            let patch = json!({"metadata": {"annotations": {"node.harvesterhci.io/ntp-service": text}}});
            async move { each(&hands, &chosen, &patch).await }.boxed()
        }),
        ..ROW
    },
    Row {
        name: "kubeconfig-unlabelled",
        happens: "Secret fleet-local/local-kubeconfig lacks the label of its cluster. The upgrade continues.",
        shows: Shows::Doctor(&["D25"], "Secret fleet-local/local-kubeconfig"),
        remedy: "Add the label, as doctor says.",
        play: Play::Writes(|hands, _| {
            let patch = json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": null}}});
            async move { hands.patch(SECRET, ("fleet-local", "local-kubeconfig"), patch).await }.boxed()
        }),
        ..ROW
    },
    Row {
        name: "node-removed",
        object: Object::Node,
        default: "node-3",
        nodes: 3,
        happens: "NODE is removed from the cluster. The upgrade continues without it.",
        shows: Shows::Doctor(&["D44"], "Node "),
        remedy: "Not needed, if that was intended.",
        play: Play::Writes(|hands, chosen| {
            let removed = async move {
                for node in chosen.objects() {
                    let deleted = hands.api(NODE, "").delete(&node, &DeleteParams::default()).await;
                    deleted.with_context(|| format!("failed to remove node {node}"))?;
                }
                Ok(())
            };
            removed.boxed()
        }),
        ..ROW
    },
    Row {
        name: "manager-down",
        happens: "The manager of upgrades ends, so the status of the plan does not change any more.",
        shows: Shows::Doctor(&["D46"], "Lease harvester-system/"),
        remedy: "Restart it: kubectl -n harvester-system rollout restart deployment/harvester-upgrade-manager-controller-manager.",
        lift: Lift::Touch(&["deployments"]),
        play: Play::Manager,
        ..ROW
    },
    Row {
        name: "helm-pending",
        begins: Moment::Phase(Phase::ClusterUpgrading),
        last: Some(Phase::ClusterUpgrading),
        happens: "The newest revision of a Helm release in namespace cattle-system is pending. The upgrade continues.",
        shows: Shows::Doctor(&["D16"], "Secret cattle-system/sh.helm.release.v1.rehearsed.v2"),
        remedy: "Delete the Secret: kubectl -n cattle-system delete secret sh.helm.release.v1.rehearsed.v2.",
        play: Play::Writes(|hands, _| {
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
                "metadata": {
                    "name": "sh.helm.release.v1.rehearsed.v2", "namespace": "cattle-system",
                    "labels": {"name": "rehearsed", "owner": "helm", "status": "pending-upgrade", "version": "2"},
                },
            });
            async move { hands.create(secret).await }.boxed()
        }),
        ..ROW
    },
    Row {
        name: "webhook-down",
        begins: Moment::Phase(Phase::ClusterUpgrading),
        happens: "A webhook that must answer has no endpoint. It concerns a kind of its own, so the upgrade continues.",
        shows: Shows::Doctor(&["D19"], "ValidatingWebhookConfiguration rehearsed"),
        remedy: "Delete the configuration: kubectl delete validatingwebhookconfiguration rehearsed.",
        play: Play::Writes(|hands, _| {
            let webhook = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "rehearsed"},
                "webhooks": [{
                    "name": "rehearsed.example.org", "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                    "clientConfig": {"service": {"name": "rehearsed", "namespace": "cattle-system"}},
                    "rules": [{"apiGroups": ["example.org"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["none"]}],
                }],
            });
            async move { hands.create(webhook).await }.boxed()
        }),
        ..ROW
    },
    Row {
        name: "log-not-ready",
        begins: Moment::Phase(Phase::ClusterUpgrading),
        happens: "A pod of the log of the upgrade does not start. The upgrade continues.",
        shows: Shows::Doctor(&["D42"], "Pod harvester-system/rehearsed-log"),
        remedy: "Delete the pod: kubectl -n harvester-system delete pod rehearsed-log.",
        play: Play::Writes(|hands, _| {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "rehearsed-log", "namespace": "harvester-system",
                    "labels": {"harvesterhci.io/upgradeLogComponent": "aggregator"},
                },
                "spec": {"containers": [{"name": "fluentd", "image": "fluentd"}]},
                "status": {"phase": "Pending", "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "unbound immediate PersistentVolumeClaims"},
                ]},
            });
            async move { hands.create(pod).await }.boxed()
        }),
        ..ROW
    },
    Row {
        name: "capi-paused",
        begins: Moment::Phase(Phase::NodeUpgrading),
        nodes: 2,
        happens: "The cluster of Cluster API is paused, so Rancher begins no node.",
        shows: Shows::Doctor(&["D20"], "Cluster fleet-local/local"),
        remedy: "Resume it, as doctor says.",
        play: Play::Writes(|hands, _| {
            let patch = json!({"spec": {"paused": true}});
            async move { hands.patch(CAPI_CLUSTER, ("fleet-local", "local"), patch).await }.boxed()
        }),
        ..ROW
    },
    Row {
        name: "machine-without-node",
        begins: Moment::Phase(Phase::NodeUpgrading),
        nodes: 2,
        happens: "A Machine of the cluster has no node.",
        shows: Shows::Doctor(&["D21"], "Machine fleet-local/rehearsed"),
        remedy: "Delete the Machine, as doctor says.",
        play: Play::Writes(|hands, _| {
            let machine = json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
                "metadata": {"name": "rehearsed", "namespace": "fleet-local"},
                "spec": {
                    "clusterName": "local", "bootstrap": {"dataSecretName": "none"},
                    "infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "CustomMachine", "name": "rehearsed"},
                },
            });
            async move { hands.create(machine).await }.boxed()
        }),
        ..ROW
    },
    Row {
        name: "nodes-cordoned",
        begins: Moment::Node(NodeState::PreDrained),
        nodes: 2,
        happens: "All nodes are cordoned while one is drained.",
        shows: Shows::Doctor(&["D27"], "Node "),
        remedy: "Uncordon the nodes that the upgrade has not begun, as doctor says.",
        play: Play::Writes(|hands, _| cordon(hands).boxed()),
        ..ROW
    },
    Row {
        name: "drain-not-undone",
        object: Object::Node,
        default: "node-1",
        begins: Moment::Phase(Phase::NodeUpgrading),
        last: None,
        nodes: 2,
        happens: "NODE is upgraded and has the taint kubevirt.io/drain again.",
        shows: Shows::Doctor(&["D39"], "Node "),
        remedy: "Remove the taint, as doctor says.",
        play: Play::Writes(|hands, chosen| taint(hands, chosen).boxed()),
        ..ROW
    },
    Row {
        name: "chart-left-paused",
        object: Object::Chart,
        default: "harvester",
        begins: Moment::Phase(Phase::Succeeded),
        last: None,
        happens: "CHART is paused although no upgrade runs.",
        shows: Shows::Doctor(&["D45b"], "ManagedChart fleet-local/"),
        remedy: "Resume the ManagedChart, as doctor says.",
        play: Play::Writes(|hands, chosen| {
            let paused = async move {
                for chart in chosen.objects() {
                    let patch = json!({"spec": {"paused": true}});
                    hands.patch(CHART, ("fleet-local", &chart), patch).await?;
                }
                Ok(())
            };
            paused.boxed()
        }),
        ..ROW
    },
];

/// Changes each of the chosen nodes.
async fn each(hands: &Hands, chosen: &Chosen, patch: &serde_json::Value) -> anyhow::Result<()> {
    for node in chosen.objects() {
        hands.patch(NODE, ("", &node), patch.clone()).await?;
    }
    Ok(())
}

async fn pressure(hands: Hands, chosen: Chosen) -> anyhow::Result<()> {
    let conditions = json!([
        {"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True", "message": "kubelet has disk pressure"},
    ]);
    let status = Patch::Merge(json!({"status": {"conditions": conditions}}));
    for node in chosen.objects() {
        let nodes = hands.api(NODE, "");
        let patched = nodes.patch_status(&node, &PatchParams::default(), &status).await;
        patched.with_context(|| format!("failed to write the status of node {node}"))?;
    }
    Ok(())
}

async fn cordon(hands: Hands) -> anyhow::Result<()> {
    let nodes = hands.api(NODE, "").list(&ListParams::default()).await;
    for node in nodes.context("failed to list nodes")? {
        let name = node.metadata.name.unwrap_or_default();
        hands
            .patch(NODE, ("", &name), json!({"spec": {"unschedulable": true}}))
            .await?;
    }
    Ok(())
}

/// Each of the chosen nodes is tainted again as soon as its upgrade is over.
async fn taint(hands: Hands, chosen: Chosen) -> anyhow::Result<()> {
    let plans: Api<UpgradePlan> = Api::all(hands.client.clone());
    let patch =
        json!({"spec": {"taints": [{"key": "kubevirt.io/drain", "value": "draining", "effect": "NoSchedule"}]}});
    loop {
        let all = plans.list(&ListParams::default()).await;
        let all = all.context("failed to list UpgradePlans")?;
        let statuses = all.iter().flat_map(|plan| &plan.status);
        let mut statuses = statuses.flat_map(|status| &status.node_upgrade_statuses);
        if statuses.any(|(name, entry)| chosen.is(name) && entry.finished_at.is_some()) {
            break;
        }
        hands.clock.sleep(LOOK).await;
    }
    hands.clock.sleep(UNCORDONED).await;
    each(&hands, &chosen, &patch).await
}
