//! UpgradeLog: the logs of one upgrade, where they are and how complete they are.
//!
//! Doc comments on fields become the text of `kubectl explain upgradelogs.status`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{upgrade_plan::conditions, wire_enum::wire_enum};

/// The type of the condition that says whether the collector runs.
pub const COLLECTOR_READY: &str = "CollectorReady";
/// On UpgradeLogs: its manager removes what belongs to them before they go.
pub const FINALIZER: &str = "management.harvesterhci.io/upgradelog-cleanup";

/// Whose logs are collected.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "management.harvesterhci.io",
    version = "v1beta1",
    kind = "UpgradeLog",
    plural = "upgradelogs",
    singular = "upgradelog",
    shortname = "ul",
    shortname = "uls",
    status = "UpgradeLogStatus",
    derive = "PartialEq",
    doc = "The logs of one upgrade. They are collected while it runs, and kept until they are dismissed.",
    printcolumn(name = "UPGRADE_PLAN", type_ = "string", json_path = ".spec.upgradePlanName"),
    printcolumn(name = "PHASE", type_ = "string", json_path = ".status.currentPhase"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeLogSpec {
    /// Name of the UpgradePlan whose logs are collected.
    #[schemars(length(min = 1))]
    pub upgrade_plan_name: String,
}

/// The state of the logs of an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeLogStatus {
    /// CollectorReady: whether the collector runs, and what is wrong with it or with its volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,

    /// The phase of the collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_phase: Option<String>,

    /// The pods whose logs are collected, by `namespace/pod`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub tracked_pods: BTreeMap<String, TrackedPod>,

    /// Bytes that the logs take on their volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_usage: Option<i64>,
}

/// A pod whose log is collected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrackedPod {
    /// Which part of the upgrade or of the cluster the pod serves.
    pub component: String,
    /// The node that it runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Streaming while its log is read, Completed when it was read to its end, Failed when none of it could be read.
    #[schemars(schema_with = "tracked_pod_state")]
    pub state: TrackedPodState,
    /// Bytes of its log that were collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_collected: Option<i64>,
    /// Where the log is in a downloaded archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_path: Option<String>,
}

wire_enum! {
    /// Values of `status.trackedPods.*.state`.
    pub enum TrackedPodState {
        /// Its log is being read.
        Streaming = "Streaming",
        /// Its log was read to the end, or the pod is gone.
        Completed = "Completed",
        /// None of its log could be read.
        Failed = "Failed",
    }
}

wire_enum! {
    /// Values of `status.currentPhase` of an UpgradeLog, in the order of a collection.
    pub enum UpgradeLogPhase {
        /// The collector is being deployed.
        CollectorDeploying = "CollectorDeploying",
        /// The collector is deployed.
        CollectorDeployed = "CollectorDeployed",
        /// Logs are collected.
        Collecting = "Collecting",
        /// The upgrade has ended, and its logs are collected.
        Collected = "Collected",
        /// The collector is being stopped; the volume is kept.
        Stopping = "Stopping",
        /// The collector is stopped.
        Stopped = "Stopped",
        /// Logs cannot be collected.
        Failed = "Failed",
    }
}

fn tracked_pod_state(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["Streaming", "Completed", "Failed"]})
}
