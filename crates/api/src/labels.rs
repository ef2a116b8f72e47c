//! Label keys and values: ours, and those of others that we read.

/// On every object we create and on its pods: the name of the UpgradePlan.
pub const UPGRADE_PLAN: &str = "management.harvesterhci.io/upgrade-plan";
/// On every object we create and on its pods: which part of the upgrade it serves, a [`Component`](crate::Component).
pub const UPGRADE_COMPONENT: &str = "management.harvesterhci.io/upgrade-component";
/// On node-upgrade Jobs and pods: [`JobType`](crate::JobType).
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
/// Key of the taint that makes KubeVirt move the VMs of a node away.
pub const DRAIN_TAINT: &str = "kubevirt.io/drain";
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
