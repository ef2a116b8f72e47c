//! Rancher, Cluster API and Fleet.

use serde_json::{Value, json};

use super::{
    Case,
    cluster::{Cluster, JUST_NOW, LONG_AGO, condition, deployment, machine_plan, plan, slice},
};

fn bundle(cluster: Cluster, ready: &str, since: &str) -> Cluster {
    cluster.with("bundles", json!({
        "metadata": {"name": "mcc-harvester", "namespace": "fleet-local", "generation": 3},
        "status": {"observedGeneration": 3, "conditions": [condition("Ready", ready, since, "Modified(1) [Cluster fleet-local/local]")]},
    }))
}

fn chart(cluster: Cluster, ready: Option<u32>) -> Cluster {
    cluster.with("managed_charts", json!({
        "metadata": {"name": "harvester", "namespace": "fleet-local"},
        "status": {"summary": {"ready": ready, "desiredReady": 1}, "conditions": [{"type": "Ready", "status": "False", "message": "ErrApplied"}]},
    }))
}

fn paused_chart(cluster: Cluster, paused: bool) -> Cluster {
    cluster.with(
        "managed_charts",
        json!({
            "metadata": {"name": "harvester", "namespace": "fleet-local"}, "spec": {"paused": paused},
            "status": {"summary": {"ready": 1}},
        }),
    )
}

fn release(revision: u32, status: &str, since: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("sh.helm.release.v1.rancher.v{revision}"), "namespace": "cattle-system", "creationTimestamp": since,
            "labels": {"name": "rancher", "owner": "helm", "status": status, "version": revision.to_string()},
        },
        "type": "helm.sh/release.v1",
    })
}

fn rancher(status: &str, since: &str) -> Cluster {
    let conditions = json!([condition(
        "Available",
        status,
        since,
        "Deployment does not have minimum availability."
    )]);
    Cluster::in_phase("ClusterUpgrading", json!({})).with(
        "deployments",
        deployment("cattle-system", "rancher", json!({"conditions": conditions})),
    )
}

fn webhook(policy: &str, ready: bool) -> Cluster {
    let hook = json!({
        "name": "a.b.c", "failurePolicy": policy, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": "rancher-webhook", "namespace": "cattle-system"}},
    });
    Cluster::in_phase("ClusterUpgrading", json!({}))
        .with(
            "validating_webhooks",
            json!({"metadata": {"name": "rancher.cattle.io"}, "webhooks": [hook]}),
        )
        .with("endpoint_slices", slice("cattle-system", "rancher-webhook", &[ready]))
}

fn capi(cluster: Cluster, paused: bool) -> Cluster {
    cluster.with(
        "capi_clusters",
        json!({"metadata": {"name": "local", "namespace": "fleet-local"}, "spec": {"paused": paused}}),
    )
}

fn orphan(cluster: Cluster, node: Option<&str>, created: &str) -> Cluster {
    let node = node.map(|name| json!({"name": name}));
    cluster.with(
        "machines",
        json!({
            "metadata": {"name": "machine-7", "namespace": "fleet-local", "creationTimestamp": created},
            "status": {"phase": "Provisioning", "nodeRef": node},
        }),
    )
}

fn says(cluster: Cluster, status: &str, message: &str) -> Cluster {
    cluster.with(
        "control_planes",
        json!({
            "metadata": {"name": "local", "namespace": "fleet-local"},
            "status": {"conditions": [{"type": "Updated", "status": status, "message": message}]},
        }),
    )
}

fn with_agent(cluster: Cluster, data: Value) -> Cluster {
    let mut cluster = cluster;
    cluster.0.machine_plans = Ok(Vec::new().into());
    cluster.with("machine_plans", machine_plan(1, json!({}), data))
}

fn with_hooks(cluster: Cluster, annotations: Value) -> Cluster {
    let mut cluster = cluster;
    cluster.0.machine_plans = Ok(Vec::new().into());
    cluster.with("machine_plans", machine_plan(1, annotations, json!({})))
}

fn kubeconfig(cluster: Cluster, labels: Value) -> Cluster {
    cluster.with(
        "kubeconfig_secrets",
        json!({
            "metadata": {"name": "local-kubeconfig", "namespace": "fleet-local", "labels": labels}, "type": "Opaque",
        }),
    )
}

pub(super) fn cases() -> Vec<Case> {
    let charts = || Cluster::in_phase("ClusterUpgrading", json!({}));
    let waits = || Cluster::node_in("PreDrained");
    let just_begun = || Cluster::node_since("PreDrained", JUST_NOW);
    let probes = "configuring bootstrap node(s) machine-1: waiting for probes: kube-scheduler";
    let applied = "configuring bootstrap node(s) machine-1: waiting for plan to be applied";
    let asked = "rke.cattle.io/pre-drain";
    let answered = "management.harvesterhci.io/pre-hook";
    vec![
        Case {
            id: "D15",
            object: "Bundle fleet-local/mcc-harvester",
            found: bundle(charts(), "False", LONG_AGO),
            near: vec![
                ("it is ready", bundle(charts(), "True", LONG_AGO)),
                ("it is not ready since just now", bundle(charts(), "False", JUST_NOW)),
                ("images are preloaded", bundle(Cluster::in_phase("ImagePreloading", json!({})), "False", LONG_AGO)),
            ],
        },
        Case {
            id: "D15",
            object: "ManagedChart fleet-local/harvester",
            found: chart(charts(), None),
            near: vec![
                ("it is ready", chart(charts(), Some(1))),
                (
                    "the phase has just begun",
                    chart(Cluster::idle().with("plans", plan("ClusterUpgrading", JUST_NOW, json!({}))), None),
                ),
            ],
        },
        Case {
            id: "D16",
            object: "Secret cattle-system/sh.helm.release.v1.rancher.v2",
            found: charts()
                .with("helm_releases", release(1, "deployed", LONG_AGO))
                .with("helm_releases", release(2, "pending-upgrade", LONG_AGO)),
            near: vec![
                (
                    "a newer revision is deployed",
                    charts()
                        .with("helm_releases", release(2, "pending-upgrade", LONG_AGO))
                        .with("helm_releases", release(10, "deployed", LONG_AGO)),
                ),
                ("helm runs since just now", charts().with("helm_releases", release(2, "pending-upgrade", JUST_NOW))),
            ],
        },
        Case {
            id: "D18",
            object: "Deployment cattle-system/rancher",
            found: rancher("False", LONG_AGO),
            near: vec![("it is available", rancher("True", LONG_AGO)), ("it is away since just now", rancher("False", JUST_NOW))],
        },
        Case {
            id: "D19",
            object: "ValidatingWebhookConfiguration rancher.cattle.io",
            found: webhook("Fail", false),
            near: vec![
                ("an endpoint is ready", webhook("Fail", true)),
                ("it need not answer", webhook("Ignore", false)),
                ("its endpoints are not known", webhook("Fail", false).only(&["default"])),
            ],
        },
        Case {
            id: "D20",
            object: "Cluster fleet-local/local",
            found: capi(waits(), true),
            near: vec![("it is not paused", capi(waits(), false)), ("no upgrade runs", capi(Cluster::idle(), true))],
        },
        Case {
            id: "D21",
            object: "Machine fleet-local/machine-7",
            found: orphan(waits(), None, LONG_AGO),
            near: vec![
                ("it was made just now", orphan(waits(), None, JUST_NOW)),
                ("all machines have nodes", waits()),
            ],
        },
        Case {
            id: "D21",
            object: "Node node-2",
            found: waits().patched("nodes", "node-2", json!({"metadata": {"annotations": {"cluster.x-k8s.io/machine": "gone"}}})),
            near: vec![(
                "Harvester does not manage it",
                waits().patched(
                    "nodes",
                    "node-2",
                    json!({"metadata": {"labels": {"harvesterhci.io/managed": "false"}, "annotations": {"cluster.x-k8s.io/machine": "gone"}}}),
                ),
            )],
        },
        Case {
            id: "D22",
            object: "RKEControlPlane fleet-local/local",
            found: says(waits(), "Unknown", applied),
            near: vec![
                ("Rancher is done", says(waits(), "True", applied)),
                ("Rancher began just now", says(just_begun(), "Unknown", applied)),
            ],
        },
        Case {
            id: "D23",
            object: "RKEControlPlane fleet-local/local",
            found: says(waits(), "Unknown", probes),
            near: vec![
                ("Rancher waits for something else", says(waits(), "Unknown", applied)),
                ("Rancher began just now", says(just_begun(), "Unknown", probes)),
            ],
        },
        Case {
            id: "D24",
            object: "Node node-1",
            found: with_agent(waits(), json!({"plan": "b", "appliedPlan": "a"})),
            near: vec![
                ("it is applied", with_agent(waits(), json!({"plan": "b", "appliedPlan": "b"}))),
                ("it was given just now", with_agent(just_begun(), json!({"plan": "b", "appliedPlan": "a"}))),
            ],
        },
        Case {
            id: "D24",
            object: "Node node-1",
            found: with_agent(just_begun(), json!({"plan": "b", "appliedPlan": "a", "failure-count": "3", "failed-checksum": "x"})),
            near: vec![(
                "it was applied after that",
                with_agent(just_begun(), json!({"plan": "b", "appliedPlan": "b", "failure-count": "3", "failed-checksum": "x"})),
            )],
        },
        Case {
            id: "D25",
            object: "Secret fleet-local/local-kubeconfig",
            found: kubeconfig(Cluster::idle(), json!({})),
            near: vec![("it has the label", kubeconfig(Cluster::idle(), json!({"cluster.x-k8s.io/cluster-name": "local"})))],
        },
        Case {
            id: "D26",
            object: "Secret fleet-local/machine-1-plan",
            found: with_hooks(waits(), json!({asked: "2", answered: "1"})),
            near: vec![
                ("it is answered", with_hooks(waits(), json!({asked: "2", answered: "2"}))),
                ("nothing was asked", with_hooks(waits(), json!({}))),
                ("the node was done just now", with_hooks(just_begun(), json!({asked: "2"}))),
                ("its Job still runs", with_hooks(Cluster::node_in("PreDraining"), json!({asked: "2"}))),
            ],
        },
        Case {
            id: "D45b",
            object: "ManagedChart fleet-local/harvester",
            found: paused_chart(Cluster::idle(), true),
            near: vec![
                ("it is not paused", paused_chart(Cluster::idle(), false)),
                ("an upgrade runs", paused_chart(charts(), true)),
                (
                    "a failed upgrade is still cleaned up",
                    paused_chart(Cluster::in_phase("Failed", json!({})), true).plan_with(
                        json!({"metadata": {"finalizers": ["management.harvesterhci.io/upgradeplan-cleanup"]}}),
                    ),
                ),
            ],
        },
    ]
}
