//! The service accounts of an installation that programs of an upgrade run as. Their names follow its prefix.

/// Of the Job that upgrades the cluster, in `harvester-system`.
pub const CLUSTER_UPGRADE: &str = "cluster-upgrade";
/// What Helm upgrades Rancher as, in `harvester-system`. No pod runs as it: the Job of the cluster asks for a token.
pub const RANCHER_INSTALLER: &str = "rancher-installer";
/// Of the Jobs that drain and upgrade a node, in `harvester-system`.
pub const NODE_UPGRADE: &str = "node-upgrade";
/// Of the Jobs that start VMs again, in `harvester-system`.
pub const VM_RESTORE: &str = "vm-restore";
/// Of the Jobs of system-upgrade-controller's Plans, in `cattle-system`.
pub const NODE_PLANS: &str = "node-plans";

/// All of them that run in `harvester-system`.
pub const OF_JOBS: [&str; 4] = [CLUSTER_UPGRADE, RANCHER_INSTALLER, NODE_UPGRADE, VM_RESTORE];
