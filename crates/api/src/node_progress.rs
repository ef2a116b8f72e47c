//! How far a node is: a state that can only grow.
//!
//! The state of an entry is written in one place, which joins what is seen into what is recorded. There is no other:
//!
//! ```compile_fail,E0616
//! let mut entry = api::NodeUpgradeStatus::default();
//! entry.state = Some("ImagePreloading".to_owned());
//! ```
//!
//! ```compile_fail,E0451
//! let entry = api::NodeUpgradeStatus { state: Some("ImagePreloading".to_owned()), ..Default::default() };
//! ```
//!
//! ```
//! use api::{NodeState, NodeUpgradeStatus};
//!
//! let mut entry = NodeUpgradeStatus::default();
//! assert!(entry.advance(NodeState::PreDrained));
//! assert!(!entry.advance(NodeState::ImagePreloading));
//! assert_eq!(entry.state(), Some("PreDrained"));
//! ```
//!
//! Nor can the entry of a node be replaced or removed:
//!
//! ```compile_fail,E0596
//! let mut nodes = api::NodeUpgradeStatuses::default();
//! nodes.insert("node-1".to_owned(), api::NodeUpgradeStatus::default());
//! ```
//!
//! ```compile_fail,E0596
//! let mut nodes = api::NodeUpgradeStatuses::default();
//! nodes.remove("node-1");
//! ```

use std::{
    collections::{BTreeMap, btree_map},
    ops::Deref,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{NodeState, upgrade_plan::DateTime};

/// How far one node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeUpgradeStatus {
    /// What the node has reached. It never goes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    /// Why the node is in a failed or paused state, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the node is in a failed or paused state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the upgrade of this node began: its VMs are being moved away.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<DateTime>")]
    pub started_at: Option<Time>,
    /// When this node was back with the new operating system.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<DateTime>")]
    pub finished_at: Option<Time>,
}

impl NodeUpgradeStatus {
    /// The state as it is recorded. A newer manager may have written one that we do not know.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// The node is recorded to be in this state.
    #[must_use]
    pub fn is(&self, state: NodeState) -> bool {
        self.state() == Some(state.as_str())
    }

    /// What the node has reached.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress::recorded(self.state())
    }

    /// Merges an observed state into the recorded state, and returns whether it is the node's state now. The only place
    /// where a state is written. A state that we do not know stays: how far the node is, only its writer knows.
    pub fn advance(&mut self, observed: NodeState) -> bool {
        let joined = self.progress().join(observed);
        if let Some(state) = joined.state() {
            self.state = Some(state.to_string());
        }
        joined.state() == Some(observed)
    }
}

/// How far each node is, by name. Everything can be read; an entry only grows, and none is removed: a node that left the
/// cluster keeps its entry, which says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeUpgradeStatuses(BTreeMap<String, NodeUpgradeStatus>);

impl NodeUpgradeStatuses {
    /// Merges an observed state into what is recorded of a node, and returns whether it is the node's state now.
    pub fn reach(&mut self, node: &str, observed: NodeState) -> bool {
        self.0.entry(node.to_owned()).or_default().advance(observed)
    }

    /// Says something else about a node that has an entry. Its state stays.
    pub fn set_reason(&mut self, node: &str, reason: Option<&str>, message: Option<&str>) {
        if let Some(entry) = self.0.get_mut(node) {
            entry.reason = reason.map(str::to_owned);
            entry.message = message.map(str::to_owned);
        }
    }

    /// Records when the upgrade of a node began, and when it ended. The first record counts.
    pub fn record_times(&mut self, node: &str, started: Option<Time>, finished: Option<Time>) {
        if let Some(entry) = self.0.get_mut(node) {
            entry.started_at = entry.started_at.take().or(started);
            entry.finished_at = entry.finished_at.take().or(finished);
        }
    }
}

impl Deref for NodeUpgradeStatuses {
    type Target = BTreeMap<String, NodeUpgradeStatus>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl IntoIterator for NodeUpgradeStatuses {
    type Item = (String, NodeUpgradeStatus);
    type IntoIter = btree_map::IntoIter<String, NodeUpgradeStatus>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a NodeUpgradeStatuses {
    type Item = (&'a String, &'a NodeUpgradeStatus);
    type IntoIter = btree_map::Iter<'a, String, NodeUpgradeStatus>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// The group of a state. A node moves to a later group or stays; it never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Its images are being loaded. A node that has reached nothing counts as here.
    #[default]
    Preloading,
    /// Its images are loaded, or could not be.
    Preloaded,
    /// It is paused.
    Paused,
    /// Its first Job empties it; on a cluster of one node, it does everything.
    Emptying,
    /// It is empty, or could not be emptied.
    Emptied,
    /// Its operating system is being installed.
    Installing,
    /// It reboots.
    Rebooting,
    /// Its upgrade has ended, well or not.
    Ended,
    /// Stale images are being removed from it.
    Cleaning,
    /// Stale images are removed, or could not be.
    Cleaned,
}

impl Stage {
    /// The group of a state.
    #[must_use]
    pub const fn of(state: NodeState) -> Self {
        match state {
            NodeState::ImagePreloading => Self::Preloading,
            NodeState::ImagePreloaded | NodeState::ImagePreloadFailed => Self::Preloaded,
            NodeState::UpgradePaused => Self::Paused,
            NodeState::PreDraining | NodeState::SingleNodeUpgrading => Self::Emptying,
            NodeState::PreDrained | NodeState::PreDrainFailed => Self::Emptied,
            NodeState::PostDraining => Self::Installing,
            NodeState::WaitingReboot => Self::Rebooting,
            NodeState::PostDrained
            | NodeState::PostDrainFailed
            | NodeState::SingleNodeUpgraded
            | NodeState::SingleNodeUpgradeFailed => Self::Ended,
            NodeState::ImageCleaning => Self::Cleaning,
            NodeState::ImageCleaned | NodeState::ImageCleanFailed => Self::Cleaned,
        }
    }

    /// How many groups are before it.
    #[must_use]
    pub const fn index(self) -> u8 {
        self as u8
    }

    /// The upgrade of the node has begun: a Job works on it, or has.
    #[must_use]
    pub fn has_started(self) -> bool {
        self >= Self::Emptying
    }

    /// The first Job of its upgrade has ended, well or not, or is behind it.
    #[must_use]
    pub fn has_ended_first_job(self) -> bool {
        self >= Self::Emptied
    }

    /// It is being emptied, upgraded or rebooted.
    #[must_use]
    pub fn is_in_flight(self) -> bool {
        self.has_started() && self < Self::Ended
    }
}

/// What a node has reached. There is no setter: it grows by joining what is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress(Reached);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    Nothing,
    State(NodeState),
    Unknown,
}

impl Progress {
    /// From a recorded state.
    #[must_use]
    pub fn recorded(state: Option<&str>) -> Self {
        Self(match state {
            None => Reached::Nothing,
            Some(text) => NodeState::parse(text).map_or(Reached::Unknown, Reached::State),
        })
    }

    /// What has been reached, if it is a state that we know.
    #[must_use]
    pub const fn state(self) -> Option<NodeState> {
        match self.0 {
            Reached::State(state) => Some(state),
            Reached::Nothing | Reached::Unknown => None,
        }
    }

    /// Something is recorded that is no state of ours. A newer manager may have written it.
    #[must_use]
    pub const fn is_unknown(self) -> bool {
        matches!(self.0, Reached::Unknown)
    }

    /// The group of what has been reached; nothing reached counts as the first. Of a state that we do not know, only this is
    /// safe to assume: the upgrade of the node has begun, and nothing of it has ended.
    #[must_use]
    pub const fn stage(self) -> Stage {
        match self.0 {
            Reached::Nothing => Stage::Preloading,
            Reached::State(state) => Stage::of(state),
            Reached::Unknown => Stage::Emptying,
        }
    }

    /// What was known merged with what is observed: a stale observation never moves a node back. Within a group the newer one
    /// wins, so that a Job that is tried again can turn a failure into a success. What we do not know is never replaced.
    #[must_use]
    pub fn join(self, observed: NodeState) -> Self {
        if self.is_unknown() || self.stage() > Stage::of(observed) {
            self
        } else {
            Self(Reached::State(observed))
        }
    }
}
