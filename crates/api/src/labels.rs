//! Label keys and values: ours, and those of others that we read.

/// On every object we create and on its pods: the name of the UpgradePlan.
pub const UPGRADE_PLAN: &str = "management.harvesterhci.io/upgrade-plan";
/// On every object we create and on its pods: which part of the upgrade it serves.
pub const UPGRADE_COMPONENT: &str = "management.harvesterhci.io/upgrade-component";
/// On node-upgrade Jobs and pods: [`job_type`].
pub const JOB_TYPE: &str = "management.harvesterhci.io/job-type";
/// On node-upgrade Jobs and pods: the node's name.
pub const NODE: &str = "management.harvesterhci.io/node";

/// Set by system-upgrade-controller on its Jobs: the node's name.
pub const SUC_NODE: &str = "upgrade.cattle.io/node";
/// Prefix of the label that system-upgrade-controller leaves on nodes: `plan.upgrade.cattle.io/<plan>`.
pub const SUC_NODE_PLAN_PREFIX: &str = "plan.upgrade.cattle.io/";
/// `"true"` on nodes that Harvester manages.
pub const MANAGED: &str = "harvesterhci.io/managed";
/// On witness nodes. The key alone decides; its value is ignored everywhere.
pub const WITNESS: &str = "node-role.harvesterhci.io/witness";
/// On control-plane nodes.
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// On etcd members.
pub const ETCD: &str = "node-role.kubernetes.io/etcd";
/// On EndpointSlices: the Service they belong to.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// On machine-plan Secrets: the name of the cluster.x-k8s.io Machine.
pub const MACHINE_NAME: &str = "rke.cattle.io/machine-name";

/// KubeVirt's, on a running VM: the node it runs on.
pub const VMI_NODE: &str = "kubevirt.io/nodeName";
/// Not empty on VMs that serve an upgrade themselves, as the repository of older releases did.
pub const UPGRADE_VM: &str = "harvesterhci.io/upgrade";

/// Values of [`UPGRADE_COMPONENT`].
pub mod component {
    /// The VirtualMachineImage that holds the ISO.
    pub const ISO: &str = "iso";
    /// Deployment and Service of the upgrade repository.
    pub const REPO: &str = "repo";
    /// The system-upgrade-controller Plan that preloads images.
    pub const IMAGE_PRELOAD: &str = "image-preload";
    /// The system-upgrade-controller Plan that shows that nodes can run the toolkit's image, where nothing is preloaded.
    pub const IMAGE_CHECK: &str = "image-check";
    /// The Job that applies the cluster's manifests.
    pub const CLUSTER_UPGRADE: &str = "cluster-upgrade";
    /// The Jobs that upgrade a node.
    pub const NODE_UPGRADE: &str = "node-upgrade";
    /// The system-upgrade-controller Plan that removes stale images.
    pub const IMAGE_CLEANUP: &str = "image-cleanup";
    /// The system-upgrade-controller Plan that makes RKE2 skip its bundled Multus manifest.
    pub const SKIP_MANIFESTS_APPLY: &str = "apply-skip-rke2-manifests";
    /// The system-upgrade-controller Plan that undoes [`SKIP_MANIFESTS_APPLY`].
    pub const SKIP_MANIFESTS_REMOVE: &str = "remove-skip-rke2-manifests";
    /// The Plan with which the Job of the cluster keeps the agents of Rancher from restarting RKE2.
    pub const HOLD_AGENT: &str = "skip-restart-rancher-system-agent";
}

/// Values of [`JOB_TYPE`].
pub mod job_type {
    /// Moves or stops the VMs of a node before it is drained.
    pub const PRE_DRAIN: &str = "pre-drain";
    /// Installs the operating system of a drained node and reboots it.
    pub const POST_DRAIN: &str = "post-drain";
    /// Both at once, on a cluster of one node.
    pub const SINGLE_NODE_UPGRADE: &str = "single-node-upgrade";
    /// Starts the VMs again that were stopped for the upgrade.
    pub const RESTORE_VM: &str = "restore-vm";
}
