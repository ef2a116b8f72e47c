//! KubeVirt, webhooks, controllers, pods.

use serde_json::{Value, json};

use super::{Case, World, case, deployment};

fn kubevirt(world: &mut World, phase: &str, available: &str) {
    world.add(
        "kubevirts",
        json!({"metadata": {"name": "kubevirt", "namespace": "harvester-system"}, "status": {"phase": phase,
        "conditions": [{"type": "Available", "status": available, "message": "rolling out"}]}}),
    );
}

fn agents(world: &mut World, ready: i32) {
    world.add("daemon_sets", json!({"metadata": {"name": "virt-handler", "namespace": "harvester-system"},
        "spec": {"selector": {}, "template": {}},
        "status": {"numberReady": ready, "desiredNumberScheduled": 3, "currentNumberScheduled": 3, "numberMisscheduled": 0}}));
}

fn webhook(world: &mut World, kind: &str, policy: &str, ready: bool) {
    world.add(
        kind,
        json!({"metadata": {"name": "rancher.cattle.io"}, "webhooks": [{"name": "rancher.cattle.io.nodes",
        "failurePolicy": policy, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "cattle-system", "name": "rancher-webhook"}}}]}),
    );
    world.add(
        "endpoint_slices",
        json!({"metadata": {"name": "rancher-webhook-x", "namespace": "cattle-system",
        "labels": {"kubernetes.io/service-name": "rancher-webhook"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]}),
    );
}

fn budget(world: &mut World, namespace: &str, name: &str, allowed: i32) {
    world.add(
        "budgets",
        json!({"metadata": {"name": name, "namespace": namespace},
        "status": {"disruptionsAllowed": allowed, "expectedPods": 1, "currentHealthy": 1, "desiredHealthy": 1}}),
    );
}

fn quota(world: &mut World, used: &str) {
    world.add(
        "quotas",
        json!({"metadata": {"name": "q", "namespace": "harvester-system"},
        "status": {"hard": {"limits.memory": "10Gi"}, "used": {"limits.memory": used}}}),
    );
}

fn claim(world: &mut World, namespace: &str, phase: &str) {
    world.add(
        "claims",
        json!({"metadata": {"name": "data", "namespace": namespace}, "status": {"phase": phase}}),
    );
}

fn pod(world: &mut World, metadata: Value, status: Value) {
    let mut metadata = metadata;
    metadata["name"] = json!("web");
    metadata["namespace"] = json!("default");
    world.add(
        "pods",
        json!({"metadata": metadata, "spec": {"containers": []}, "status": status}),
    );
}

fn unready(since: &str) -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}]})
}

fn waiting(reason: &str, restarts: i32) -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [
        {"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": restarts, "state": {"waiting": {"reason": reason}}}]})
}

fn of_a_job() -> Value {
    json!({"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}]})
}

pub(super) const CASES: [Case; 19] = [
    case(
        "P77",
        "KubeVirt is not available (phase \"Deployed\"): \"rolling out\"",
        |world| kubevirt(world, "Deployed", "False"),
        |world| kubevirt(world, "Deployed", "True"),
    ),
    case(
        "P77",
        "phase \"Deploying\"",
        |world| kubevirt(world, "Deploying", "True"),
        |world| kubevirt(world, "", "True"),
    ),
    case(
        "P78",
        "does not run",
        |world| {
            world.empty("deployments");
            world.add(
                "deployments",
                deployment("cattle-system", "system-upgrade-controller", 0),
            );
        },
        |_| {},
    ),
    case(
        "P79",
        "cattle-system/rancher",
        |world| world.add("deployments", deployment("cattle-system", "rancher", 0)),
        |world| world.add("deployments", deployment("default", "rancher", 0)),
    ),
    case(
        "P80",
        "runs on 2 of 3 nodes",
        |world| agents(world, 2),
        |world| agents(world, 3),
    ),
    case(
        "P81",
        "rancher.cattle.io.nodes",
        |world| webhook(world, "validating_webhooks", "Fail", false),
        |world| webhook(world, "validating_webhooks", "Fail", true),
    ),
    case(
        "P81",
        "rancher.cattle.io.nodes",
        |world| webhook(world, "mutating_webhooks", "Fail", false),
        |world| webhook(world, "mutating_webhooks", "Ignore", false),
    ),
    case(
        "P82",
        "default/db",
        |world| budget(world, "default", "db", 0),
        |world| budget(world, "default", "db", 1),
    ),
    // Those of Longhorn and of VMs are handled during a drain.
    case(
        "P82",
        "default/db",
        |world| budget(world, "default", "db", 0),
        |world| {
            budget(world, "longhorn-system", "instance-manager-1", 0);
            budget(world, "default", "kubevirt-disruption-budget-x", 0);
        },
    ),
    case(
        "P83",
        "limits.memory 9Gi of 10Gi",
        |world| quota(world, "9Gi"),
        |world| quota(world, "8.9Gi"),
    ),
    case(
        "P84",
        "harvester-system/data",
        |world| claim(world, "harvester-system", "Pending"),
        |world| claim(world, "harvester-system", "Bound"),
    ),
    case(
        "P84",
        "cattle-x/data",
        |world| claim(world, "cattle-x", "Lost"),
        |world| claim(world, "default", "Pending"),
    ),
    case(
        "P85",
        "default/web",
        |world| pod(world, json!({}), unready("2026-03-13T11:49:59Z")),
        |world| pod(world, json!({}), unready("2026-03-13T11:50:00Z")),
    ),
    case(
        "P85",
        "default/web",
        |world| pod(world, json!({}), json!({"phase": "Pending"})),
        |world| pod(world, of_a_job(), json!({"phase": "Failed"})),
    ),
    case(
        "P85",
        "default/web",
        |world| pod(world, json!({}), unready("2026-03-13T11:00:00Z")),
        |world| pod(world, json!({}), json!({"phase": "Succeeded"})),
    ),
    case(
        "P86",
        "default/web",
        |world| pod(world, json!({}), waiting("CrashLoopBackOff", 20)),
        |world| pod(world, json!({}), waiting("CrashLoopBackOff", 19)),
    ),
    case(
        "P86",
        "default/web",
        |world| pod(world, json!({}), waiting("ImagePullBackOff", 0)),
        |world| pod(world, json!({}), waiting("ContainerCreating", 0)),
    ),
    case(
        "P87",
        "default/web",
        |world| pod(world, json!({"deletionTimestamp": "2026-03-13T11:49:59Z"}), json!({})),
        |world| pod(world, json!({"deletionTimestamp": "2026-03-13T11:50:00Z"}), json!({})),
    ),
    case(
        "P77",
        "KubeVirt is not available",
        |world| {
            world.add(
                "kubevirts",
                json!({"metadata": {"name": "kubevirt", "namespace": "harvester-system"},
                "status": {"conditions": [{"type": "Degraded", "status": "True"}]}}),
            );
        },
        |world| {
            world.add(
                "kubevirts",
                json!({"metadata": {"name": "kubevirt", "namespace": "harvester-system"}}),
            )
        },
    ),
];
