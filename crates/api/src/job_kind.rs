//! The kinds of Jobs that an upgrade runs.

use crate::labels::{component, job_type};

/// A kind of Job of an upgrade. Its labels tell which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKind {
    /// Loads images onto a node.
    ImagePreload,
    /// Shows that a node can run the toolkit's image.
    ImageCheck,
    /// Upgrades the cluster's components.
    ClusterUpgrade,
    /// Keeps Rancher's agent of a node from restarting RKE2.
    HoldAgent,
    /// Makes RKE2 of a node skip a manifest of its own.
    SkipManifestsApply,
    /// Lets RKE2 of a node apply that manifest again.
    SkipManifestsRemove,
    /// Moves or stops the VMs of a node.
    PreDrain,
    /// Installs the operating system of a drained node and reboots it.
    PostDrain,
    /// Both at once, on a cluster of one node.
    SingleNodeUpgrade,
    /// Starts the VMs again that were stopped for a node.
    RestoreVm,
    /// Removes stale images from a node.
    ImageCleanup,
}

impl JobKind {
    /// All of them, in the order of an upgrade.
    pub const ALL: [Self; 11] = [
        Self::ImagePreload,
        Self::ImageCheck,
        Self::ClusterUpgrade,
        Self::HoldAgent,
        Self::SkipManifestsApply,
        Self::SkipManifestsRemove,
        Self::PreDrain,
        Self::PostDrain,
        Self::SingleNodeUpgrade,
        Self::RestoreVm,
        Self::ImageCleanup,
    ];

    /// The value of its label [`UPGRADE_COMPONENT`](crate::labels::UPGRADE_COMPONENT).
    #[must_use]
    pub const fn component(self) -> &'static str {
        match self {
            Self::ImagePreload => component::IMAGE_PRELOAD,
            Self::ImageCheck => component::IMAGE_CHECK,
            Self::ClusterUpgrade => component::CLUSTER_UPGRADE,
            Self::HoldAgent => component::HOLD_AGENT,
            Self::SkipManifestsApply => component::SKIP_MANIFESTS_APPLY,
            Self::SkipManifestsRemove => component::SKIP_MANIFESTS_REMOVE,
            Self::PreDrain | Self::PostDrain | Self::SingleNodeUpgrade | Self::RestoreVm => component::NODE_UPGRADE,
            Self::ImageCleanup => component::IMAGE_CLEANUP,
        }
    }

    /// The value of its label [`JOB_TYPE`](crate::labels::JOB_TYPE), for Jobs that have one.
    #[must_use]
    pub const fn job_type(self) -> Option<&'static str> {
        match self {
            Self::PreDrain => Some(job_type::PRE_DRAIN),
            Self::PostDrain => Some(job_type::POST_DRAIN),
            Self::SingleNodeUpgrade => Some(job_type::SINGLE_NODE_UPGRADE),
            Self::RestoreVm => Some(job_type::RESTORE_VM),
            _ => None,
        }
    }

    /// The kind of a Job with these labels; an empty text is no label.
    #[must_use]
    pub fn of(component: &str, job_type: &str) -> Option<Self> {
        let is_it = |kind: &Self| kind.component() == component && kind.job_type().unwrap_or_default() == job_type;
        Self::ALL.into_iter().find(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_by_its_labels() {
        for kind in JobKind::ALL {
            assert_eq!(
                JobKind::of(kind.component(), kind.job_type().unwrap_or_default()),
                Some(kind)
            );
        }
        assert_eq!(JobKind::of(component::NODE_UPGRADE, ""), None);
        assert_eq!(JobKind::of(component::NODE_UPGRADE, "lunch"), None);
    }
}
