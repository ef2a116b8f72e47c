//! Running VMs: each can move to another node. With `restoreVM: true` those that cannot are shut down and started again, so
//! they are not checked here.

use api::{OnMigrationFailure, UpgradePlan};

use crate::{Cluster, FieldError};
use rules::migration::{self, Stuck};

use super::{SPEC, all, full_name, restores_vms};

/// What else an administrator can do than to shut VMs off.
pub(super) const REMEDY: &str = "or set spec.restoreVM to true: then VMs that cannot move are shut down for the upgrade of their node and started again";

pub(super) fn can_migrate(plan: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    if restores_vms(plan) {
        return Ok(Vec::new());
    }
    let hosts = migration::hosts(all(&cluster.nodes, "nodes")?);
    // With a single host VMs are shut down for the upgrade anyway.
    if hosts.len() <= 1 {
        return Ok(Vec::new());
    }
    let vmis = all(&cluster.vmis, "virtualmachineinstances")?.iter();
    let stuck = vmis.filter(|vmi| match migration::why_stuck(vmi, &hosts) {
        // The plan says what is to be done with these.
        Some(Stuck::NotLiveMigratable { .. }) => plan.spec.on_migration_failure != Some(OnMigrationFailure::Stop),
        Some(_) => true,
        None => false,
    });
    let stuck: Vec<String> = stuck.map(full_name).collect();
    if stuck.is_empty() {
        return Ok(Vec::new());
    }
    let text = "there are non-live migratable VMs that need to be shut off before initiating the upgrade";
    Ok(vec![FieldError::forbidden(
        SPEC,
        format!("{text}: {}; {REMEDY}", stuck.join(", ")),
    )])
}
