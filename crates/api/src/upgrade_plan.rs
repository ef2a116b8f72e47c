//! UpgradePlan: one upgrade of the cluster, as its users write it and as we report on it.
//!
//! Doc comments on fields become the text of `kubectl explain upgradeplans.spec`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{CheckSummary, NodeUpgradeStatus, NodeUpgradeStatuses, ReleaseDigests, RepositoryAccess, UpgradeProgress};

/// What to upgrade to, and how.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "management.harvesterhci.io",
    version = "v1beta1",
    kind = "UpgradePlan",
    plural = "upgradeplans",
    singular = "upgradeplan",
    shortname = "up",
    shortname = "ups",
    status = "UpgradePlanStatus",
    derive = "PartialEq",
    doc = "An upgrade of this Harvester cluster to another version. It runs through eight phases; its status shows the current phase and what it waits for.",
    printcolumn(name = "VERSION", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "CURRENTPHASE", type_ = "string", json_path = ".status.currentPhase"),
    printcolumn(
        name = "AVAILABLE",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].status"#
    ),
    printcolumn(
        name = "PROGRESSING",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Progressing")].status"#
    ),
    printcolumn(
        name = "DEGRADED",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Degraded")].status"#
    ),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.upgrade) == has(oldSelf.upgrade) && (!has(self.upgrade) || self.upgrade == oldSelf.upgrade)",
        "message": "spec.upgrade is immutable after creation"
    },
    {
        "rule": "has(self.image) == has(oldSelf.image) && (!has(self.image) || self.image == oldSelf.image)",
        "message": "spec.image is immutable after creation"
    },
    {
        "rule": "has(self.version) == has(oldSelf.version) && (!has(self.version) || self.version == oldSelf.version)",
        "message": "spec.version is immutable after creation"
    },
    {
        "rule": "has(self.version) || has(self.image)",
        "message": "at least one of spec.version or spec.image must be set"
    }
]))]
pub struct UpgradePlanSpec {
    /// Name of a harvesterhci.io Version in namespace harvester-system: where the ISO comes from. Needed unless
    /// `image` is set. Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub version: Option<String>,

    /// Name, without namespace, of a VirtualMachineImage in harvester-system that already holds the ISO. It wins
    /// over `version`, is never modified, and need not be imported yet. Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,

    /// Tag of the upgrade-toolkit container image that the upgrade's own workloads run. When unset, they run the image of
    /// the manager itself. Immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<String>,

    /// Skip the check that this version may be upgraded to the new one. No other check is skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,

    /// How container images are loaded onto the nodes before anything is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_preload_option: Option<ImagePreloadOption>,

    /// How nodes are upgraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_upgrade_option: Option<NodeUpgradeOption>,

    /// Start the VMs again that had to be shut down for the upgrade of their node, once that node is back.
    #[serde(rename = "restoreVM", skip_serializing_if = "Option::is_none")]
    pub restore_vm: Option<bool>,

    /// What to do when a VM cannot leave a node because its live migration failed. Block, the default: wait, and name the
    /// VM and the reason, until an administrator acts. Retry: retry the migration a few times, then wait. Stop: shut the
    /// VM down, after it was recorded to be started again. May be changed while the upgrade waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "on_migration_failure")]
    pub on_migration_failure: Option<OnMigrationFailure>,
}

/// What to do when the live migration of a VM from a node failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnMigrationFailure {
    /// Wait until an administrator acts.
    #[default]
    Block,
    /// Retry it a few times, then wait.
    Retry,
    /// Shut the VM down.
    Stop,
}

/// How container images are loaded onto the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePreloadOption {
    /// How many nodes load images at once. Unset or 0: all of them. Negative: skip preloading altogether.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<i64>,
}

/// How nodes are upgraded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeUpgradeOption {
    /// Nodes to pause before their upgrade starts. Remove a name to resume that node. A node whose upgrade has
    /// started is not stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "set_of_names")]
    pub pause_nodes: Option<Vec<String>>,
}

/// The state of the upgrade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradePlanStatus {
    /// Progressing, Degraded and Available, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,

    /// The phase the upgrade is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_phase: Option<String>,

    /// Known situations that explain why a wait is past its deadline, the worst first: what `upgrade-toolkit doctor` finds
    /// among the objects that the manager watches. Absent while nothing is stalled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub insights: Vec<Insight>,

    /// Name of the VirtualMachineImage in harvester-system that holds the ISO.
    #[serde(rename = "isoImageID", skip_serializing_if = "Option::is_none")]
    pub iso_image_id: Option<String>,

    /// How far each node is.
    #[serde(default, skip_serializing_if = "no_nodes")]
    #[schemars(with = "BTreeMap<String, NodeUpgradeStatus>", extend("x-kubernetes-map-type" = "atomic"))]
    pub node_upgrade_statuses: NodeUpgradeStatuses,

    /// When each phase was entered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub phase_transition_timestamps: Vec<PhaseTransition>,

    /// What the manager must remember: what was there before it changed it, and what the last try was for. Absent on
    /// plans of older managers, which kept it in annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<BTreeMap<String, String>>,

    /// What is worse than before the upgrade: what `upgrade-toolkit postflight` found a while after its end. Absent before that,
    /// and where the plan has no record of the cluster before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postflight: Option<CheckSummary>,

    /// What the checks of `upgrade-toolkit preflight` found right before the first change, as far as the manager can run them.
    /// They do not keep an upgrade from starting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<CheckSummary>,

    /// The Harvester version before the upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_version: Option<String>,

    /// How far the upgrade is, and when it is expected to end. Written together with other changes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<UpgradeProgress>,

    /// The provisionGeneration that this upgrade gives to the Rancher cluster; recorded before it is written there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provision_generation: Option<i64>,

    /// Digests of the new release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_digests: Option<ReleaseDigests>,

    /// What the ISO says about the new release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_metadata: Option<ReleaseMetadata>,

    /// How the repository is identified. Absent for an upgrade that began under an older manager: its repository is
    /// read over plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryAccess>,

    /// Name of the node in a cluster of one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub single_node: Option<String>,

    /// The Version as it was when the upgrade started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionSnapshot>,

    /// What the upgrade currently waits for. Absent when it does not wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub waiting_for: Vec<WaitingFor>,
}

/// When a phase was entered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PhaseTransition {
    /// The phase.
    pub phase: String,
    /// When it was entered.
    #[schemars(with = "DateTime")]
    pub phase_transition_timestamp: Time,
    /// Why the upgrade failed, where the phase is Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What the ISO says about the new release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseMetadata {
    /// The Harvester version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harvester: Option<String>,
    /// The version of the Harvester chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harvester_chart: Option<String>,
    /// The name of the operating system image, as an upgraded node reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// The RKE2 version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// The Rancher version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rancher: Option<String>,
    /// The version of the monitoring chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitoring_chart: Option<String>,
    /// The oldest version that may be upgraded to this release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_upgradable_version: Option<String>,
}

/// The Version as it was when the upgrade started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionSnapshot {
    /// Where the ISO is downloaded from.
    #[serde(rename = "isoURL")]
    pub iso_url: String,
    /// The SHA-512 of the ISO.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso_checksum: Option<String>,
}

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Insight {
    /// Which check, as in the documentation: D01, … of `upgrade-toolkit doctor`, P01, … of `preflight`, F01, … of `postflight`.
    pub id: String,
    /// error, warning or info.
    pub severity: String,
    /// The object that it is about, as `Kind namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// What is wrong, in a sentence.
    pub message: String,
    /// What helps, in a sentence.
    pub remedy: String,
}

/// One wait of the upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingFor {
    /// The name of the wait: ISOImport, PreDrainJob, Reboot, …
    pub what: String,
    /// The object that is waited for, as `Kind namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The same in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Since when.
    #[schemars(with = "DateTime")]
    pub since: Time,
    /// When it counts as stalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<DateTime>")]
    pub deadline: Option<Time>,
}

/// Stands for a date-time in schemas.
pub(crate) struct DateTime;

impl JsonSchema for DateTime {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DateTime".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

fn no_nodes(nodes: &NodeUpgradeStatuses) -> bool {
    nodes.is_empty()
}

fn on_migration_failure(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["Block", "Retry", "Stop"]})
}

fn set_of_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {"type": "string", "minLength": 1},
        "x-kubernetes-list-type": "set"
    })
}

/// The schema that Kubernetes itself prescribes for conditions.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "description": "One aspect of the current state of the upgrade.",
            "properties": {
                "lastTransitionTime": {
                    "type": "string", "format": "date-time",
                    "description": "When the status of the condition changed last."
                },
                "message": {
                    "type": "string", "maxLength": 32768,
                    "description": "Details of the transition, for people. May be empty."
                },
                "observedGeneration": {
                    "type": "integer", "format": "int64", "minimum": 0,
                    "description": "The metadata.generation that the condition was set upon."
                },
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "The reason of the last transition, in one CamelCase word."
                },
                "status": {
                    "type": "string", "enum": ["True", "False", "Unknown"],
                    "description": "True, False or Unknown."
                },
                "type": {
                    "type": "string", "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                    "description": "The aspect, in CamelCase."
                }
            },
            "required": ["lastTransitionTime", "message", "reason", "status", "type"]
        },
        "x-kubernetes-list-map-keys": ["type"],
        "x-kubernetes-list-type": "map"
    })
}
