//! The values of `status.nodeUpgradeStatuses[].state`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a node has reached, or failed to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NodeState {
    /// Images are being loaded.
    ImagePreloading,
    /// Images are loaded.
    ImagePreloaded,
    /// Images could not be loaded.
    ImagePreloadFailed,
    /// An administrator paused the node.
    UpgradePaused,
    /// VMs are being moved away.
    PreDraining,
    /// The single node is being upgraded.
    SingleNodeUpgrading,
    /// VMs have been moved away.
    PreDrained,
    /// VMs could not be moved away.
    PreDrainFailed,
    /// The operating system is being installed.
    PostDraining,
    /// The operating system is installed; the node reboots into it.
    WaitingReboot,
    /// The node runs the new operating system.
    PostDrained,
    /// The operating system could not be installed.
    PostDrainFailed,
    /// The single node runs the new operating system.
    SingleNodeUpgraded,
    /// The single node could not be upgraded.
    SingleNodeUpgradeFailed,
    /// Stale images are being removed.
    ImageCleaning,
    /// Stale images are removed.
    ImageCleaned,
    /// Stale images could not be removed.
    ImageCleanFailed,
}

impl NodeState {
    /// All values, in order of their group.
    pub const ALL: [Self; 17] = [
        Self::ImagePreloading,
        Self::ImagePreloaded,
        Self::ImagePreloadFailed,
        Self::UpgradePaused,
        Self::PreDraining,
        Self::SingleNodeUpgrading,
        Self::PreDrained,
        Self::PreDrainFailed,
        Self::PostDraining,
        Self::WaitingReboot,
        Self::PostDrained,
        Self::PostDrainFailed,
        Self::SingleNodeUpgraded,
        Self::SingleNodeUpgradeFailed,
        Self::ImageCleaning,
        Self::ImageCleaned,
        Self::ImageCleanFailed,
    ];

    /// The value on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ImagePreloading => "ImagePreloading",
            Self::ImagePreloaded => "ImagePreloaded",
            Self::ImagePreloadFailed => "ImagePreloadFailed",
            Self::UpgradePaused => "UpgradePaused",
            Self::PreDraining => "PreDraining",
            Self::SingleNodeUpgrading => "SingleNodeUpgrading",
            Self::PreDrained => "PreDrained",
            Self::PreDrainFailed => "PreDrainFailed",
            Self::PostDraining => "PostDraining",
            Self::WaitingReboot => "WaitingReboot",
            Self::PostDrained => "PostDrained",
            Self::PostDrainFailed => "PostDrainFailed",
            Self::SingleNodeUpgraded => "SingleNodeUpgraded",
            Self::SingleNodeUpgradeFailed => "SingleNodeUpgradeFailed",
            Self::ImageCleaning => "ImageCleaning",
            Self::ImageCleaned => "ImageCleaned",
            Self::ImageCleanFailed => "ImageCleanFailed",
        }
    }

    /// The state a text names, if any of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
