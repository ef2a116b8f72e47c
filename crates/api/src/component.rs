//! Which part of an upgrade an object serves: the values of two labels.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{labels, wire_enum::wire_enum};

wire_enum! {
    /// Values of the label [`UPGRADE_COMPONENT`](crate::labels::UPGRADE_COMPONENT).
    pub enum Component {
        /// The VirtualMachineImage that holds the ISO.
        Iso = "iso",
        /// Deployment and Service of the upgrade repository.
        Repo = "repo",
        /// The system-upgrade-controller Plan that preloads images.
        ImagePreload = "image-preload",
        /// The Plan that shows that nodes can run the toolkit's image, where nothing is preloaded.
        ImageCheck = "image-check",
        /// The Job that applies the cluster's manifests.
        ClusterUpgrade = "cluster-upgrade",
        /// The Jobs that upgrade a node.
        NodeUpgrade = "node-upgrade",
        /// The Plan that removes stale images.
        ImageCleanup = "image-cleanup",
        /// The Plan that makes RKE2 skip its bundled Multus manifest.
        SkipManifestsApply = "apply-skip-rke2-manifests",
        /// The Plan that undoes [`Self::SkipManifestsApply`].
        SkipManifestsRemove = "remove-skip-rke2-manifests",
        /// The Plan with which the Job of the cluster keeps the agents of Rancher from restarting RKE2.
        SuspendAgent = "skip-restart-rancher-system-agent",
    }
}

impl Component {
    /// What an object serves, by its label.
    #[must_use]
    pub fn of(object: &ObjectMeta) -> Option<Self> {
        Self::parse(object.labels.as_ref()?.get(labels::UPGRADE_COMPONENT)?)
    }
}

impl JobType {
    /// Which step of a node an object is of, by its label.
    #[must_use]
    pub fn of(object: &ObjectMeta) -> Option<Self> {
        Self::parse(object.labels.as_ref()?.get(labels::JOB_TYPE)?)
    }
}

wire_enum! {
    /// Values of the label [`JOB_TYPE`](crate::labels::JOB_TYPE): which step of a node a Job is.
    pub enum JobType {
        /// Moves or stops the VMs of a node before it is drained.
        PreDrain = "pre-drain",
        /// Installs the operating system of a drained node and reboots it.
        PostDrain = "post-drain",
        /// Both at once, on a cluster of one node.
        SingleNodeUpgrade = "single-node-upgrade",
        /// Starts the VMs again that were stopped for the upgrade.
        RestoreVm = "restore-vm",
    }
}

/// What the manager runs on all nodes by a system-upgrade-controller Plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum NodePlan {
    /// Loads images.
    ImagePreload,
    /// Shows that nodes can run the toolkit's image.
    ImageCheck,
    /// Makes RKE2 skip its bundled Multus manifest.
    SkipManifestsApply,
    /// Lets RKE2 apply it again.
    SkipManifestsRemove,
    /// Removes stale images.
    ImageCleanup,
}

impl NodePlan {
    /// All of them, in the order of an upgrade.
    pub const ALL: [Self; 5] = [
        Self::ImagePreload,
        Self::ImageCheck,
        Self::SkipManifestsApply,
        Self::SkipManifestsRemove,
        Self::ImageCleanup,
    ];

    /// The component that its objects serve.
    #[must_use]
    pub const fn component(self) -> Component {
        match self {
            Self::ImagePreload => Component::ImagePreload,
            Self::ImageCheck => Component::ImageCheck,
            Self::SkipManifestsApply => Component::SkipManifestsApply,
            Self::SkipManifestsRemove => Component::SkipManifestsRemove,
            Self::ImageCleanup => Component::ImageCleanup,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_written_as_their_texts() {
        for component in Component::ALL {
            assert_eq!(Component::parse(component.as_str()), Some(*component));
            let text = serde_json::to_string(component).unwrap();
            assert_eq!(text, format!("\"{component}\""));
            assert_eq!(serde_json::from_str::<Component>(&text).unwrap(), *component);
        }
        for job_type in JobType::ALL {
            assert_eq!(JobType::parse(job_type.as_str()), Some(*job_type));
        }
        assert!(
            Component::SkipManifestsApply < Component::ClusterUpgrade,
            "they are listed by their texts"
        );
        assert_eq!(Component::parse("lunch"), None);
        assert!(serde_json::from_str::<JobType>("\"lunch\"").is_err());
    }
}
