//! The kinds of Jobs that an upgrade runs.

use crate::{Component, JobType};

/// A kind of Job of an upgrade. Its labels identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKind {
    /// Loads images onto a node.
    ImagePreload,
    /// Shows that a node can run the toolkit's image.
    ImageCheck,
    /// Upgrades the cluster's components.
    ClusterUpgrade,
    /// Keeps Rancher's agent of a node from restarting RKE2.
    SuspendAgent,
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
        Self::SuspendAgent,
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
    pub const fn component(self) -> Component {
        match self {
            Self::ImagePreload => Component::ImagePreload,
            Self::ImageCheck => Component::ImageCheck,
            Self::ClusterUpgrade => Component::ClusterUpgrade,
            Self::SuspendAgent => Component::SuspendAgent,
            Self::SkipManifestsApply => Component::SkipManifestsApply,
            Self::SkipManifestsRemove => Component::SkipManifestsRemove,
            Self::PreDrain | Self::PostDrain | Self::SingleNodeUpgrade | Self::RestoreVm => Component::NodeUpgrade,
            Self::ImageCleanup => Component::ImageCleanup,
        }
    }

    /// The value of its label [`JOB_TYPE`](crate::labels::JOB_TYPE), for Jobs that have one.
    #[must_use]
    pub const fn job_type(self) -> Option<JobType> {
        match self {
            Self::PreDrain => Some(JobType::PreDrain),
            Self::PostDrain => Some(JobType::PostDrain),
            Self::SingleNodeUpgrade => Some(JobType::SingleNodeUpgrade),
            Self::RestoreVm => Some(JobType::RestoreVm),
            _ => None,
        }
    }

    /// The kind of a Job with these labels.
    #[must_use]
    pub fn of(component: Component, job_type: Option<JobType>) -> Option<Self> {
        let is_it = |kind: &Self| kind.component() == component && kind.job_type() == job_type;
        Self::ALL.into_iter().find(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_identified_by_its_labels() {
        for kind in JobKind::ALL {
            assert_eq!(JobKind::of(kind.component(), kind.job_type()), Some(kind));
        }
        assert_eq!(JobKind::of(Component::NodeUpgrade, None), None);
        assert_eq!(JobKind::of(Component::Repo, Some(JobType::PreDrain)), None);
    }
}
