//! Deployments, ManagedCharts, addons, and what follows the Harvester chart: KubeVirt and Longhorn.

use serde_json::json;

use crate::longhorn::image_label;

use super::{harness::World, objects::harvester_values, rancher_world};

const INSTANCE_MANAGER: &str = "longhornio/longhorn-instance-manager:v1.10";

/// The generation of an addon that Harvester has seen.
const SEEN: &str = "laboratory/seen";

pub(super) async fn tick(world: &World) {
    // Before the charts: what follows one takes a while longer.
    harvester(world).await;
    for deployment in world.list("apps", "deployments") {
        let replicas = &deployment["spec"]["replicas"];
        let status = json!({
            "observedGeneration": deployment["metadata"]["generation"], "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas, "availableReplicas": replicas,
            "conditions": [{"type": "Available", "status": "True"}],
        });
        world.patch_status(&deployment, status).await;
    }
    for chart in world.list("management.cattle.io", "managedcharts") {
        if chart["spec"]["paused"] == true {
            continue;
        }
        let summary = json!({"ready": 1, "desiredReady": 1});
        let generation = &chart["metadata"]["generation"];
        world
            .patch_status(
                &chart,
                json!({"observedGeneration": generation, "summary": summary, "unavailable": 0}),
            )
            .await;
    }
    for addon in world.list("harvesterhci.io", "addons") {
        let on = addon["spec"]["enabled"] == true;
        let generation = addon["metadata"]["generation"].to_string();
        // An addon does not say which generation it was brought to, so that is kept beside it.
        let is_seen = addon["metadata"]["annotations"][SEEN] == generation.as_str();
        let status = if !on {
            "AddonDisabled"
        } else if !is_seen {
            "AddonUpdating"
        } else {
            "AddonDeploySuccessful"
        };
        if !is_seen {
            world
                .patch(&addon, json!({"metadata": {"annotations": {SEEN: generation}}}))
                .await;
        }
        world.patch_status(&addon, json!({ "status": status })).await;
    }
}

/// The Harvester chart was applied: KubeVirt and Longhorn follow, one after the other.
async fn harvester(world: &World) {
    let chart = world.get("management.cattle.io", "managedcharts", "fleet-local", "harvester");
    if chart["spec"]["version"] != "1.8.0" || chart["status"]["observedGeneration"] != chart["metadata"]["generation"] {
        return;
    }
    let kubevirt = world.get("kubevirt.io", "kubevirts", "harvester-system", "kubevirt");
    if kubevirt["status"]["observedKubeVirtVersion"] != "1.7.0-150700.3" {
        world
            .patch_status(
                &kubevirt,
                json!({"observedKubeVirtVersion": "1.7.0-150700.3", "phase": "Deployed"}),
            )
            .await;
        let metadata = json!({"name": "harvester", "version": "1.8.0", "appVersion": "v1.8.0"});
        let values = harvester_values("v1.10");
        rancher_world::release(
            world,
            "harvester-system",
            "harvester",
            &metadata,
            &values,
            "deployed",
            "",
        )
        .await;
        return;
    }
    let set = world.get("apps", "daemonsets", "longhorn-system", "longhorn-manager");
    let image = &set["spec"]["template"]["spec"]["containers"][0]["image"];
    if image != "longhornio/longhorn-manager:v1.10" {
        let containers = json!([{"name": "m", "image": "longhornio/longhorn-manager:v1.10"}]);
        world
            .patch(
                &set,
                json!({"spec": {"template": {"spec": {"containers": containers}}}}),
            )
            .await;
        return;
    }
    let counts = json!({"observedGeneration": set["metadata"]["generation"], "numberReady": 3, "updatedNumberScheduled": 3,
        "currentNumberScheduled": 3, "desiredNumberScheduled": 3, "numberMisscheduled": 0});
    world.patch_status(&set, counts).await;
    let setting = world.get(
        "longhorn.io",
        "settings",
        "longhorn-system",
        "default-instance-manager-image",
    );
    if setting["value"] != INSTANCE_MANAGER {
        world.patch(&setting, json!({"value": INSTANCE_MANAGER})).await;
        for node in ["node-1", "node-2", "node-3"] {
            let labels = json!({
                "longhorn.io/node": node, "longhorn.io/instance-manager-type": "aio", "longhorn.io/data-engine": "v1",
                "longhorn.io/instance-manager-image": image_label(INSTANCE_MANAGER),
            });
            let manager = json!({
                "apiVersion": "longhorn.io/v1beta2", "kind": "InstanceManager", "status": {"currentState": "running"},
                "metadata": {"name": format!("instance-manager-{node}"), "namespace": "longhorn-system", "labels": labels},
            });
            world.create(&manager).await;
        }
    }
}
