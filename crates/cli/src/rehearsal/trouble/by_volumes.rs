//! Troubles of Longhorn's volumes: a volume that nothing of the simulated cluster takes care of keeps a node.

use anyhow::Context as _;
use api::{NodeState, Phase};
use futures::FutureExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::{
    Lift, Moment, Object, Play, Row, Shows,
    writes::{Hands, PLAN},
};

const VOLUME: &str = "Volume longhorn-system/pvc-rehearsed";

const DELETE: &str = "Delete the volume: kubectl -n longhorn-system delete volumes.longhorn.io pvc-rehearsed.";

/// What they have in common.
const ROW: Row = Row {
    name: "",
    object: Object::None,
    default: "",
    begins: Moment::Node(NodeState::PreDraining),
    last: Some(Phase::NodeUpgrading),
    nodes: 3,
    happens: "",
    shows: Shows::Succeeds,
    remedy: DELETE,
    lift: Lift::Never,
    play: Play::Manager,
};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "last-replica",
        happens: "The only replica of a volume that is used elsewhere is on the node that is emptied.",
        shows: Shows::Doctor(&["D03"], VOLUME),
        play: Play::Writes(|hands, _| last_replica(hands).boxed()),
        ..ROW
    },
    Row {
        name: "replica-without-place",
        happens: "A replica of a volume finds no place, so the volume stays degraded.",
        shows: Shows::Doctor(&["D05"], VOLUME),
        play: Play::Writes(|hands, _| {
            let conditions = condition(&hands, "Scheduled", "False", "insufficient storage");
            volume(hands, json!({"conditions": conditions, "robustness": "degraded"})).boxed()
        }),
        ..ROW
    },
    Row {
        name: "backing-image-missing",
        happens: "A volume waits for its backing image.",
        shows: Shows::Doctor(&["D06"], VOLUME),
        play: Play::Writes(|hands, _| {
            let conditions = condition(
                &hands,
                "WaitForBackingImage",
                "True",
                "waiting for backing image default-image",
            );
            volume(hands, json!({"conditions": conditions, "robustness": "degraded"})).boxed()
        }),
        ..ROW
    },
    Row {
        name: "stale-attachment",
        happens: "A volume is attached to the node that is emptied, although no pod uses it.",
        shows: Shows::Doctor(&["D07"], VOLUME),
        play: Play::Writes(|hands, _| {
            let claim = json!({"namespace": "default", "pvcName": "unused"});
            volume(hands, json!({"robustness": "healthy", "kubernetesStatus": claim})).boxed()
        }),
        ..ROW
    },
];

/// A condition that is already older than usual.
fn condition(hands: &Hands, type_: &str, status: &str, message: &str) -> Value {
    json!([{"type": type_, "status": status, "lastTransitionTime": hands.ago(5), "message": message, "reason": "Rehearsed"}])
}

/// The node that is being upgraded, else the first.
async fn node_in_flight(hands: &Hands) -> anyhow::Result<String> {
    let plans = hands.api(PLAN, "").list(&ListParams::default()).await;
    let plans = plans.context("failed to list UpgradePlans")?;
    for plan in plans {
        let statuses = plan.data["status"]["nodeUpgradeStatuses"].as_object().cloned();
        let is_in_flight = |status: &Value| !status["startedAt"].is_null() && status["finishedAt"].is_null();
        let found = statuses.iter().flatten().find(|(_, status)| is_in_flight(status));
        if let Some((node, _)) = found {
            return Ok(node.clone());
        }
    }
    Ok("node-1".to_owned())
}

async fn volume(hands: Hands, status: Value) -> anyhow::Result<()> {
    let node = node_in_flight(&hands).await?;
    create(&hands, &node, 3, status).await
}

async fn create(hands: &Hands, node: &str, replicas: i64, mut status: Value) -> anyhow::Result<()> {
    status["state"] = json!("attached");
    status["currentNodeID"] = json!(node);
    let volume = json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
        "metadata": {"name": "pvc-rehearsed", "namespace": "longhorn-system"},
        "spec": {"numberOfReplicas": replicas, "backingImage": "default-image", "size": "10737418240", "nodeID": node},
        "status": status,
    });
    hands.create(volume).await
}

async fn last_replica(hands: Hands) -> anyhow::Result<()> {
    let node = node_in_flight(&hands).await?;
    let other = if node == "node-1" { "node-2" } else { "node-1" };
    let replica = json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "Replica",
        "metadata": {"name": "pvc-rehearsed-r", "namespace": "longhorn-system"},
        "spec": {"volumeName": "pvc-rehearsed", "nodeID": node},
        "status": {"currentState": "running"},
    });
    hands.create(replica).await?;
    create(&hands, other, 1, json!({"robustness": "healthy"})).await
}
