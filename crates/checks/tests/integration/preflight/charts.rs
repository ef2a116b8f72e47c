//! Fleet and Helm.

use serde_json::{Value, json};

use super::{Case, World, case};

fn release(world: &mut World, namespace: &str, revision: &str, status: &str) {
    world.add(
        "helm_releases",
        json!({"type": "helm.sh/release.v1", "metadata": {"name": format!("sh.helm.release.v1.fleet.v{revision}"),
        "namespace": namespace, "labels": {"name": "fleet", "status": status, "version": revision}}}),
    );
}

fn bundle(world: &mut World, status: Value) {
    world.add(
        "bundles",
        json!({"metadata": {"name": "mcc-harvester", "namespace": "fleet-local", "generation": 2}, "status": status}),
    );
}

fn fleet_cluster(world: &mut World, status: &str) {
    let conditions = json!([{"type": "Ready", "status": status, "message": "NotReady(1)"}]);
    world.add(
        "fleet_clusters",
        json!({"metadata": {"name": "local", "namespace": "fleet-local"}, "status": {"conditions": conditions}}),
    );
}

pub(super) const CASES: [Case; 5] = [
    case(
        "P73",
        "bundle fleet-local/mcc-harvester is not ready: Fleet says \"Modified(1)\"",
        |world| {
            let conditions = json!([{"type": "Ready", "status": "False", "message": "Modified(1)"}]);
            bundle(world, json!({"observedGeneration": 2, "conditions": conditions}));
        },
        |world| {
            bundle(
                world,
                json!({"observedGeneration": 2, "conditions": [{"type": "Ready", "status": "True"}]}),
            )
        },
    ),
    case(
        "P73",
        "has not seen its last change",
        |world| bundle(world, json!({"observedGeneration": 1})),
        |world| bundle(world, json!({"observedGeneration": 2})),
    ),
    case(
        "P74",
        "Helm release default/fleet is pending-upgrade at revision 10",
        |world| {
            release(world, "default", "9", "deployed");
            release(world, "default", "10", "pending-upgrade");
        },
        // Only the newest revision counts, and revisions are numbers.
        |world| {
            release(world, "default", "9", "pending-upgrade");
            release(world, "default", "10", "deployed");
        },
    ),
    case(
        "P75",
        "Helm release cattle-fleet-system/fleet failed at revision 1",
        |world| release(world, "cattle-fleet-system", "1", "failed"),
        |world| release(world, "default", "1", "failed"),
    ),
    case(
        "P76",
        "is not Ready: \"NotReady(1)\"",
        |world| fleet_cluster(world, "False"),
        |world| fleet_cluster(world, "True"),
    ),
];
