//! Backups and snapshots of VMs: none under way, none about to start.

use api::{
    UpgradePlan,
    foreign::harvester::{ScheduleVMBackup, VirtualMachineBackup},
};

use crate::{Cluster, FieldError};

use super::{all, forbidden, full_name};

pub(super) fn are_done(_: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let backups = all(&cluster.vm_backups, "vmbackups")?.iter();
    let running: Vec<String> = backups.filter(|backup| is_running(backup)).map(full_name).collect();
    Ok(forbidden(&running, |first| {
        format!("please wait until all vmbackups are stopped, for example {first} is under processing")
    }))
}

/// Neither done nor failed.
#[must_use]
pub fn is_running(backup: &VirtualMachineBackup) -> bool {
    backup.status.ready_to_use != Some(true) && backup.status.error.is_none()
}

/// It starts backups.
#[must_use]
pub fn is_not_suspended(schedule: &ScheduleVMBackup) -> bool {
    schedule.status.suspended != Some(true)
}

pub(super) fn schedules_are_suspended(_: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let schedules = all(&cluster.backup_schedules, "schedulevmbackups")?.iter();
    let running = schedules.filter(|schedule| is_not_suspended(schedule));
    let running: Vec<String> = running.map(full_name).collect();
    Ok(forbidden(&running, |first| {
        format!("please suspend all backup/snapshot schedule, for example {first} is running")
    }))
}
