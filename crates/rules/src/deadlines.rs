//! How long each wait may take before it counts as stalled, in one table.

use std::time::Duration;

use api::Wait;
use serde::{Deserialize, Serialize};

macro_rules! deadlines {
    ($( #[doc = $doc:literal] $name:ident: $minutes:literal, )*) => {
        /// How long each wait may take before it counts as stalled.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct Deadlines {
            $( #[doc = $doc] pub $name: Duration, )*
        }

        impl Default for Deadlines {
            fn default() -> Self {
                Self { $( $name: Duration::from_mins($minutes), )* }
            }
        }

        impl Deadlines {
            /// Every wait: its name, what it is for, and how many minutes it has.
            pub const TABLE: &[(&str, &str, u64)] = &[ $( (stringify!($name), $doc, $minutes), )* ];

            /// Sets the deadline of that name; returns whether there is one.
            pub fn set(&mut self, name: &str, limit: Duration) -> bool {
                match name.replace('-', "_").as_str() {
                    $( stringify!($name) => self.$name = limit, )*
                    _ => return false,
                }
                true
            }
        }
    };
}

deadlines! {
    /// For objects that should be there already.
    prerequisite: 5,
    /// For the facts of the pre-flight checks.
    preflight: 10,
    /// For the import of the ISO.
    iso: 30,
    /// For the repository to serve.
    repo: 10,
    /// For the release metadata.
    metadata: 10,
    /// For a node to run the toolkit's image.
    toolkit_image: 10,
    /// For a node to have the images.
    preload: 60,
    /// For the cluster's components.
    cluster: 45,
    /// For our changes to take effect.
    setting: 5,
    /// For a pod to start.
    pod: 5,
    /// For programs of the upgrade to end once they are stopped; then it continues without them.
    stop: 10,
    /// For a small Plan to run on all nodes.
    skip_manifests: 10,
    /// For the VMs of a node to be moved away.
    pre_drain: 30,
    /// For Rancher to take its next step.
    rancher: 20,
    /// For a node's operating system to be installed.
    post_drain: 30,
    /// For a node to come back.
    reboot: 20,
    /// For a single node's whole upgrade.
    single_node: 60,
    /// For stale images to be removed from a node.
    cleanup: 10,
}

/// A limit for what has none by its nature.
pub const UNBOUNDED: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

impl Deadlines {
    /// How long a wait may take before it counts as stalled. A Plan that serves nodes in waves has so long for each.
    #[must_use]
    pub fn of(&self, wait: Wait) -> Duration {
        match wait {
            Wait::StartRequest
            | Wait::OlderUpgrade
            | Wait::OtherUpgrade
            | Wait::Paused
            | Wait::BehindPaused
            | Wait::More => UNBOUNDED,
            Wait::Version | Wait::ServerVersion | Wait::Nodes | Wait::Cluster => self.prerequisite,
            Wait::Preflight | Wait::NewImages => self.preflight,
            Wait::IsoImport => self.iso,
            Wait::Annotation | Wait::RepositoryCertificate | Wait::Repository => self.repo,
            Wait::ReleaseManifest | Wait::ReleaseMetadata => self.metadata,
            Wait::ImagePreload => self.preload,
            Wait::ToolkitImage => self.toolkit_image,
            Wait::FailedJob | Wait::Setting | Wait::ManagedChart | Wait::PutBack => self.setting,
            Wait::ClusterUpgradeJob => self.cluster,
            Wait::SkipManifestsApply | Wait::SkipManifestsRemove => self.skip_manifests,
            Wait::RancherNextNode | Wait::RancherUpdate | Wait::RancherCompletion | Wait::RestoreVm => self.rancher,
            Wait::PreDrainJob | Wait::ImmovableVms => self.pre_drain,
            Wait::PostDrainJob => self.post_drain,
            Wait::SingleNodeJob => self.single_node,
            Wait::Reboot => self.reboot,
            // As long as the node before it may take.
            Wait::Turn => self.pre_drain + self.rancher + self.post_drain + self.reboot,
            Wait::ImageLists | Wait::ImageCleanup => self.cleanup,
            Wait::Pod => self.pod,
            Wait::StillRunning => self.stop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deadline_of_the_table_can_be_set_by_its_name() {
        for (name, _, minutes) in Deadlines::TABLE {
            let mut deadlines = Deadlines::default();
            let limit = Duration::from_mins(minutes + 1);
            assert!(deadlines.set(&name.replace('_', "-"), limit), "{name}");
            assert_ne!(deadlines, Deadlines::default(), "{name}");
        }
        assert!(!Deadlines::default().set("lunch", Duration::ZERO));
    }
}
