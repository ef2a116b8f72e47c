//! What is known of the other plans of the cluster.

use api::{Phase, UpgradePlan};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Another plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherPlan {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// It may still change the cluster.
    pub active: bool,
    /// The upgradeStrategy that it found, if it replaced it.
    pub saved_upgrade_strategy: Option<String>,
    /// What it has begun to make of the cluster; nothing before its first step that changes components.
    #[serde(default)]
    pub begun: Option<StartedUpgrade>,
}

/// What a plan has begun to make of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedUpgrade {
    /// When it last began to upgrade components.
    pub at: Timestamp,
    /// The version of Harvester that it upgrades to.
    pub harvester: String,
    /// The operating system that it upgrades nodes to.
    pub os: String,
    /// When it had upgraded all nodes, if it has since then.
    #[serde(default)]
    pub nodes_done_at: Option<Timestamp>,
}

impl StartedUpgrade {
    /// Of a plan, from its record.
    #[must_use]
    pub fn of(plan: &UpgradePlan) -> Option<Self> {
        let status = plan.status.as_ref()?;
        let mut history = status.phase_transition_timestamps.iter().rev();
        let entered = history.find(|change| change.phase == Phase::ClusterUpgrading.as_str())?;
        let mut since = status.phase_transition_timestamps.iter().rev();
        let done = since
            .find(|change| change.phase == Phase::NodeUpgraded.as_str())
            .map(|change| change.phase_transition_timestamp.0);
        let release = status.release_metadata.clone().unwrap_or_default();
        Some(Self {
            nodes_done_at: done.filter(|done| *done >= entered.phase_transition_timestamp.0),
            at: entered.phase_transition_timestamp.0,
            harvester: release.harvester.unwrap_or_default(),
            os: release.os.unwrap_or_default(),
        })
    }
}
