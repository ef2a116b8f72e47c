//! The values of `status.currentPhase`, in the order of an upgrade.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The phase of a plan. The order of the variants is the order of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The plan was picked up.
    Initializing,
    /// Version, previous version and cluster shape are recorded.
    Initialized,
    /// The ISO is being imported.
    ISODownloading,
    /// The ISO is imported.
    ISODownloaded,
    /// The repository is being deployed.
    RepoCreating,
    /// The repository serves the ISO.
    RepoCreated,
    /// The release metadata is being read.
    MetadataPopulating,
    /// The release metadata is recorded.
    MetadataPopulated,
    /// Images are being loaded onto the nodes.
    ImagePreloading,
    /// All nodes have the images.
    ImagePreloaded,
    /// The cluster's components are being upgraded.
    ClusterUpgrading,
    /// The cluster's components are upgraded.
    ClusterUpgraded,
    /// Nodes are being upgraded.
    NodeUpgrading,
    /// All nodes are upgraded.
    NodeUpgraded,
    /// Stale images are being removed.
    CleaningUp,
    /// Stale images are removed.
    CleanedUp,
    /// The upgrade is done.
    Succeeded,
    /// The upgrade ended without being done.
    Failed,
}

impl Phase {
    /// All values, in order.
    pub const ALL: [Self; 18] = [
        Self::Initializing,
        Self::Initialized,
        Self::ISODownloading,
        Self::ISODownloaded,
        Self::RepoCreating,
        Self::RepoCreated,
        Self::MetadataPopulating,
        Self::MetadataPopulated,
        Self::ImagePreloading,
        Self::ImagePreloaded,
        Self::ClusterUpgrading,
        Self::ClusterUpgraded,
        Self::NodeUpgrading,
        Self::NodeUpgraded,
        Self::CleaningUp,
        Self::CleanedUp,
        Self::Succeeded,
        Self::Failed,
    ];

    /// The value on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Initializing => "Initializing",
            Self::Initialized => "Initialized",
            Self::ISODownloading => "ISODownloading",
            Self::ISODownloaded => "ISODownloaded",
            Self::RepoCreating => "RepoCreating",
            Self::RepoCreated => "RepoCreated",
            Self::MetadataPopulating => "MetadataPopulating",
            Self::MetadataPopulated => "MetadataPopulated",
            Self::ImagePreloading => "ImagePreloading",
            Self::ImagePreloaded => "ImagePreloaded",
            Self::ClusterUpgrading => "ClusterUpgrading",
            Self::ClusterUpgraded => "ClusterUpgraded",
            Self::NodeUpgrading => "NodeUpgrading",
            Self::NodeUpgraded => "NodeUpgraded",
            Self::CleaningUp => "CleaningUp",
            Self::CleanedUp => "CleanedUp",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Nothing follows this phase.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A `status.currentPhase` that no version of ours writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPhase(pub String);

impl FromStr for Phase {
    type Err = UnknownPhase;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|phase| phase.as_str() == text)
            .ok_or_else(|| UnknownPhase(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_reads_back_from_its_own_text_and_order_is_that_of_the_upgrade() {
        for phase in Phase::ALL {
            assert_eq!(phase.as_str().parse::<Phase>(), Ok(phase));
        }
        assert!(Phase::ALL.is_sorted());
    }
}
