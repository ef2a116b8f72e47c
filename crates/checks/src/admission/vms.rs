//! Running VMs: each can move to another node.

use api::UpgradePlan;

use crate::{Cluster, FieldError, migration};

use super::{SPEC, all, full_name};

pub(super) fn can_migrate(plan: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    // Those that cannot move are shut down, and the plan has them started again.
    if plan.spec.restore_vm == Some(true) {
        return Ok(Vec::new());
    }
    let hosts = migration::hosts(all(&cluster.nodes, "nodes")?);
    // With a single host VMs are shut down for the upgrade anyway.
    if hosts.len() <= 1 {
        return Ok(Vec::new());
    }
    let vmis = all(&cluster.vmis, "virtualmachineinstances")?.iter();
    let stuck = vmis.filter(|vmi| migration::is_stuck(vmi, &hosts));
    let stuck: Vec<String> = stuck.map(full_name).collect();
    if stuck.is_empty() {
        return Ok(Vec::new());
    }
    let text = "there are non-live migratable VMs that need to be shut off before initiating the upgrade";
    Ok(vec![FieldError::forbidden(
        SPEC,
        format!("{text}: {}", stuck.join(", ")),
    )])
}
