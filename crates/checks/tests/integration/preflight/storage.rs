//! Longhorn.

use serde_json::{Value, json};

use super::{Case, World, case};

fn longhorn(name: &str, mut object: Value) -> Value {
    object["metadata"] = json!({"name": name, "namespace": "longhorn-system"});
    object
}

pub(super) fn volume(name: &str, replicas: i64, state: &str, robustness: &str) -> Value {
    longhorn(
        name,
        json!({"spec": {"numberOfReplicas": replicas}, "status": {"state": state, "robustness": robustness,
        "kubernetesStatus": {"namespace": "default", "pvcName": format!("{name}-data"), "workloadsStatus": [
            {"podName": "old", "podStatus": "Succeeded"}, {"podName": "p", "podStatus": "Running"}]}}}),
    )
}

fn replica(name: &str, volume: &str, node: &str, failed: &str) -> Value {
    longhorn(
        name,
        json!({"spec": {"volumeName": volume, "nodeID": node, "failedAt": failed, "healthyAt": "2026-01-01T00:00:00Z"}}),
    )
}

fn detached(world: &mut World, failed: &str) {
    world.add("volumes", volume("v", 2, "detached", "unknown"));
    world.add("replicas", replica("r1", "v", "node-1", ""));
    world.add("replicas", replica("r2", "v", "node-2", failed));
}

fn replicas_on(world: &mut World, other: &str) {
    world.add("volumes", volume("v", 2, "attached", "healthy"));
    world.add("replicas", replica("r1", "v", "node-1", ""));
    world.add("replicas", replica("r2", "v", other, ""));
}

fn scheduled(world: &mut World, status: &str) {
    let mut object = volume("v", 3, "attached", "healthy");
    object["status"]["conditions"] =
        json!([{"type": "Scheduled", "status": status, "message": "insufficient storage"}]);
    world.add("volumes", object);
}

fn workload(world: &mut World, state: &str, status: &str) {
    let mut object = volume("v", 3, state, "healthy");
    object["status"]["kubernetesStatus"]["workloadsStatus"] = json!([{"podName": "p", "podStatus": status}]);
    world.add("volumes", object);
}

/// Longhorn has recorded no workload yet; a pod runs.
fn pod_with_claim(world: &mut World, claim: &str) {
    let mut object = volume("v", 3, "attached", "healthy");
    object["status"]["kubernetesStatus"]["workloadsStatus"] = json!(null);
    world.add("volumes", object);
    let volumes = json!([{"name": "disk", "persistentVolumeClaim": {"claimName": claim}}]);
    world.add(
        "pods",
        json!({"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [], "volumes": volumes},
            "status": {"phase": "Running"}}),
    );
}

fn rebuild(world: &mut World, is_rebuilding: bool) {
    world.add(
        "engines",
        longhorn(
            "v-e-0",
            json!({"spec": {"volumeName": "v"}, "status": {
        "rebuildStatus": {"tcp://10.0.0.1": {"isRebuilding": is_rebuilding, "progress": 43}}}}),
        ),
    );
}

fn attachment(world: &mut World, deleted: &str) {
    world.add(
        "attachments",
        json!({"metadata": {"name": "csi-1", "deletionTimestamp": deleted},
        "spec": {"attacher": "driver.longhorn.io", "nodeName": "node-1", "source": {}},
        "status": {"attached": true, "detachError": {"message": "volume is in use"}}}),
    );
}

fn instance_manager(world: &mut World, state: &str, engine: &str) {
    world.add(
        "instance_managers",
        longhorn(
            "im-1",
            json!({"spec": {"nodeID": "node-1"}, "status": {"currentState": state,
        "instanceEngines": {engine: {}}}}),
        ),
    );
    world.add("engines", longhorn("v-e-0", json!({"spec": {"volumeName": "v"}})));
}

fn disk(world: &mut World, type_: &str, status: &str) {
    world.add(
        "longhorn_nodes",
        longhorn(
            "node-1",
            json!({"status": {"diskStatus": {"disk-1": {
        "conditions": [{"type": type_, "status": status, "message": "no space"}]}}}}),
        ),
    );
}

fn eviction(world: &mut World, requested: bool) {
    world.add(
        "longhorn_nodes",
        longhorn(
            "node-1",
            json!({"spec": {"disks": {"disk-1": {"evictionRequested": requested}}}}),
        ),
    );
}

fn policy(world: &mut World, value: &str) {
    world.add(
        "longhorn_settings",
        longhorn("node-drain-policy", json!({"value": value})),
    );
}

fn backing_image(world: &mut World, copies: i64) {
    world.add(
        "backing_images",
        longhorn("image", json!({"spec": {"minNumberOfCopies": copies}})),
    );
}

fn job(world: &mut World, task: &str) {
    world.add(
        "recurring_jobs",
        longhorn("daily", json!({"spec": {"task": task, "cron": "0 0 * * *"}})),
    );
}

fn share(world: &mut World, state: &str) {
    world.add("share_managers", longhorn("v", json!({"status": {"state": state}})));
}

/// A network with that many addresses taken of fourteen, where the upgrade needs two.
fn network(world: &mut World, taken: usize) {
    let allocations: Value = (1..=taken)
        .map(|number| (number.to_string(), json!({})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let setting = json!({"vlan": 1, "clusterNetwork": "mgmt", "range": "192.168.0.0/28"}).to_string();
    world.add(
        "settings",
        json!({"metadata": {"name": "storage-network"}, "value": setting}),
    );
    world.add(
        "ip_pools",
        json!({"metadata": {"name": "192.168.0.0-28", "namespace": "kube-system"},
        "spec": {"range": "192.168.0.0/28", "allocations": allocations}}),
    );
    world.add(
        "instance_managers",
        longhorn("im-1", json!({"status": {"currentState": "running"}})),
    );
    world.add(
        "pods",
        json!({"metadata": {"name": "bim", "namespace": "longhorn-system",
        "labels": {"longhorn.io/component": "backing-image-manager"}}, "spec": {"containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
}

fn shared_network(world: &mut World, taken: usize) {
    network(world, taken);
    let shared = json!({"share-storage-network": true}).to_string();
    world.add(
        "settings",
        json!({"metadata": {"name": "rwx-network"}, "value": shared}),
    );
}

pub(super) const CASES: [Case; 23] = [
    case(
        "P50",
        "(\"insufficient storage\"): longhorn-system/v",
        |world| scheduled(world, "False"),
        |world| scheduled(world, "True"),
    ),
    case(
        "P51",
        "longhorn-system/v",
        |world| workload(world, "attached", "Succeeded"),
        |world| workload(world, "attached", "Running"),
    ),
    case(
        "P51",
        "longhorn-system/v",
        |world| {
            let mut object = volume("v", 3, "attached", "healthy");
            object["status"]["kubernetesStatus"]["workloadsStatus"] = json!(null);
            world.add("volumes", object);
        },
        |world| workload(world, "detached", "Succeeded"),
    ),
    case(
        "P51",
        "longhorn-system/v",
        |world| pod_with_claim(world, "another"),
        |world| pod_with_claim(world, "v-data"),
    ),
    case(
        "P52",
        "longhorn-system/v",
        |world| detached(world, "2026-03-01T00:00:00Z"),
        |world| detached(world, ""),
    ),
    case(
        "P53",
        "longhorn-system/v",
        |world| replicas_on(world, "node-1"),
        |world| replicas_on(world, "node-2"),
    ),
    case(
        "P54",
        "v (43%)",
        |world| rebuild(world, true),
        |world| rebuild(world, false),
    ),
    case(
        "P55",
        "\"volume is in use\"",
        |world| attachment(world, "2026-03-13T11:54:59Z"),
        |world| attachment(world, "2026-03-13T11:55:00Z"),
    ),
    case(
        "P56",
        "of node-1 runs engines that Longhorn does not know: gone-e-0",
        |world| instance_manager(world, "running", "gone-e-0"),
        |world| instance_manager(world, "running", "v-e-0"),
    ),
    case(
        "P57",
        "disk disk-1 of Longhorn's node node-1 is not Schedulable: \"no space\"",
        |world| disk(world, "Schedulable", "False"),
        |world| disk(world, "Schedulable", "True"),
    ),
    case(
        "P57",
        "Longhorn's node node-1 is not ready",
        |world| {
            let conditions = json!([{"type": "Ready", "status": "False"}]);
            world.add(
                "longhorn_nodes",
                longhorn("node-1", json!({"status": {"conditions": conditions}})),
            );
        },
        |world| disk(world, "Ready", "True"),
    ),
    case(
        "P58",
        "longhorn-system/node-1",
        |world| eviction(world, true),
        |world| eviction(world, false),
    ),
    case(
        "P59",
        "last replica",
        |world| policy(world, "always-allow"),
        |world| policy(world, "allow-if-replica-is-stopped"),
    ),
    case(
        "P59",
        "takes long",
        |world| policy(world, "block-for-eviction"),
        |world| policy(world, "block-if-contains-last-replica"),
    ),
    case(
        "P60",
        "no copy at all",
        |world| backing_image(world, 0),
        |world| backing_image(world, 3),
    ),
    case(
        "P60",
        "fewer than 3 copies",
        |world| backing_image(world, 2),
        |world| backing_image(world, 3),
    ),
    case(
        "P61",
        "longhorn-system/daily",
        |world| job(world, "backup"),
        |world| job(world, "snapshot-cleanup"),
    ),
    case(
        "P62",
        "longhorn-system/v",
        |world| share(world, "error"),
        |world| share(world, "running"),
    ),
    case(
        "P63",
        "longhorn-system/im-1",
        |world| instance_manager(world, "error", "v-e-0"),
        |world| instance_manager(world, "running", "v-e-0"),
    ),
    case(
        "P64",
        "has 1 free addresses (13 of 14 are taken), and the upgrade needs 2",
        |world| network(world, 13),
        |world| network(world, 12),
    ),
    case(
        "P64",
        "needs 3",
        |world| shared_network(world, 12),
        |world| shared_network(world, 11),
    ),
    case(
        "P64",
        "network of shared volumes",
        |world| {
            let own = json!({"network": {"range": "10.0.0.0/30"}}).to_string();
            world.add("settings", json!({"metadata": {"name": "rwx-network"}, "value": own}));
            world.add(
                "ip_pools",
                json!({"metadata": {"name": "10.0.0.0-30", "namespace": "kube-system"},
                "spec": {"range": "10.0.0.0/30", "allocations": {"1": {}, "2": {}}}}),
            );
        },
        |world| {
            let own = json!({"network": {"range": "10.0.0.0/30"}}).to_string();
            world.add("settings", json!({"metadata": {"name": "rwx-network"}, "value": own}));
            world.add(
                "ip_pools",
                json!({"metadata": {"name": "10.0.0.0-30", "namespace": "kube-system"},
                "spec": {"range": "10.0.0.0/30", "allocations": {"1": {}}}}),
            );
        },
    ),
    // Longhorn's own setting decides before v1.8.
    case(
        "P64",
        "needs 3",
        |world| {
            network(world, 12);
            world.add(
                "longhorn_settings",
                longhorn("storage-network-for-rwx-volume-enabled", json!({"value": "true"})),
            );
        },
        |world| {
            network(world, 12);
            world.add(
                "longhorn_settings",
                longhorn("storage-network-for-rwx-volume-enabled", json!({"value": "false"})),
            );
        },
    ),
];
