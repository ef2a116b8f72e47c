//! Durations of the simulation. Data, so that a rehearsal can be as slow as a real cluster or take no time at all.

use std::time::Duration;

/// Durations in a simulated cluster. The default gives the timeline of a real upgrade of three nodes:
/// ISO 4:44, preload 10:01, cluster 15:15, first node 24 min after 12 min of silence, the next ones 13–14 min each,
/// cleanup 2:13.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Durations {
    /// Import of the ISO, from creation to Imported.
    pub iso_import: Duration,
    /// From the creation of a pod to Running.
    pub pod_start: Duration,
    /// From the deletion of a Job's pod to the end of its program. A program that is the first of its container is not ended by
    /// the signal that asks it to, unless it listens, but by the one after its grace period.
    pub pod_stop: Duration,
    /// From Running to Ready, for pods that serve.
    pub pod_ready: Duration,
    /// First pause of a Job before it replaces a failed pod; doubles.
    pub job_backoff: Duration,
    /// Preload of images on a node.
    pub preload: Duration,
    /// The cluster's manifests, in all.
    pub cluster_upgrade: Duration,
    /// A chart that changes its version.
    pub chart: Duration,
    /// A chart that changes its values only.
    pub chart_values: Duration,
    /// An addon that is turned on or off.
    pub addon: Duration,
    /// From the order to upgrade nodes to Rancher's first step.
    pub rancher_wait: Duration,
    /// What Rancher needs more for the first node.
    pub first_node: Duration,
    /// The least a pre-drain Job takes.
    pub pre_drain: Duration,
    /// The least a drain takes.
    pub drain: Duration,
    /// Upgrade and restart of RKE2 on a node.
    pub rke2: Duration,
    /// Installation of the operating system, in the post-drain Job.
    pub post_drain: Duration,
    /// From the end of the post-drain Job to the reboot.
    pub reboot_delay: Duration,
    /// From the reboot to Ready.
    pub reboot: Duration,
    /// From the acknowledged post-drain hook to the uncordoned node.
    pub uncordon: Duration,
    /// The upgrade of a single node, without its reboot.
    pub single_node: Duration,
    /// Removal of stale images from a node.
    pub cleanup: Duration,
    /// Skip-manifests on a node.
    pub skip_manifests: Duration,
    /// KubeVirt, until it can start the VMs of a node after the upgrade.
    pub restore_vm: Duration,
    /// A live migration, but for the copying of memory.
    pub migration: Duration,
    /// A live migration's copying of one GiB of memory: 10 seconds are what a link of 1 Gbit/s gives.
    pub migration_per_gib: Duration,
    /// A virtual machine that starts.
    pub vm_start: Duration,
    /// A virtual machine that shuts down.
    pub vm_stop: Duration,
    /// Rebuild of one replica after its node is back; five of a node at a time.
    pub rebuild: Duration,
    /// An instance manager of Longhorn that starts.
    pub instance_manager: Duration,
    /// What the repository and API servers take to answer the manager.
    pub answer: Duration,
    /// From the deletion of an owner to that of what it owned.
    pub garbage_collection: Duration,
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            iso_import: seconds(4 * 60 + 44),
            pod_start: seconds(2),
            pod_stop: Duration::ZERO,
            pod_ready: seconds(3),
            job_backoff: seconds(10),
            preload: seconds(10 * 60 - 2),
            // The chart's values come before it.
            cluster_upgrade: seconds(15 * 60 + 13 - 20),
            chart: seconds(60),
            chart_values: seconds(20),
            addon: seconds(20),
            rancher_wait: seconds(12 * 60),
            first_node: seconds(10 * 60 + 20),
            pre_drain: seconds(60),
            drain: seconds(30),
            rke2: seconds(4 * 60),
            post_drain: seconds(4 * 60),
            reboot_delay: seconds(20),
            reboot: seconds(3 * 60 + 30),
            uncordon: seconds(20),
            single_node: seconds(12 * 60),
            cleanup: seconds(42),
            skip_manifests: seconds(1),
            restore_vm: seconds(10),
            migration: seconds(5),
            migration_per_gib: seconds(10),
            vm_start: seconds(15),
            vm_stop: seconds(20),
            rebuild: seconds(20),
            instance_manager: seconds(10),
            answer: Duration::ZERO,
            garbage_collection: seconds(1),
        }
    }
}

impl Durations {
    /// Nothing takes any time.
    #[must_use]
    pub fn instant() -> Self {
        let zero = Duration::ZERO;
        Self {
            iso_import: zero,
            pod_start: zero,
            pod_stop: zero,
            pod_ready: zero,
            job_backoff: zero,
            preload: zero,
            cluster_upgrade: zero,
            chart: zero,
            chart_values: zero,
            addon: zero,
            rancher_wait: zero,
            first_node: zero,
            pre_drain: zero,
            drain: zero,
            rke2: zero,
            post_drain: zero,
            reboot_delay: zero,
            reboot: zero,
            uncordon: zero,
            single_node: zero,
            cleanup: zero,
            skip_manifests: zero,
            restore_vm: zero,
            migration: zero,
            migration_per_gib: zero,
            vm_start: zero,
            vm_stop: zero,
            rebuild: zero,
            instance_manager: zero,
            answer: zero,
            garbage_collection: zero,
        }
    }
}
