//! What an upgrade left behind: VMs that it stopped and that do not run.

use std::collections::HashMap;

use api::{JobType, Phase, ProgramWait, UpgradePlan, Wait, foreign::kubevirt::VirtualMachine, labels, names, owner};
use jiff::{SignedDuration, Timestamp};

use super::{
    Leads, Patient, Situation,
    found::{MOST, More, found, label, name, namespace},
    patient::{phase_since, states},
};
use crate::finding::{Finding, Missing, ObjectRef, Severity, needed};

/// VMs run again within this time after their node is back.
const RESTORE: SignedDuration = SignedDuration::from_mins(15);

/// VMs that are off.
pub(super) const D41: Situation = Situation {
    id: "D41",
    symptom: "VMs are off after the upgrade of their node",
    cause: "The Job that starts them again failed, or could not start them",
    remedy: "Start the VMs.",
    leads: &[
        Leads::Plan(Wait::RestoreVm),
        Leads::Program(ProgramWait::VmStart),
        Leads::Program(ProgramWait::KubeVirt),
    ],
    look: off,
};

/// When the VMs of a node should run again: their node is back, or the plan has ended.
fn due(plan: &UpgradePlan, node: &str) -> Option<Timestamp> {
    let entry = states(plan).find(|(name, _)| *name == node).map(|(_, entry)| entry);
    let finished = entry.and_then(|entry| entry.finished_at.as_ref()).map(|time| time.0);
    let ended = phase_since(plan).filter(|_| plan.phase().is_some_and(Phase::is_terminal));
    finished.or(ended)
}

/// A VM does not run and is not about to.
fn is_off(vm: &VirtualMachine) -> bool {
    let status = vm.status.printable_status.as_deref().unwrap_or_default();
    !matches!(
        status,
        "Running" | "Starting" | "Migrating" | "Paused" | "Provisioning" | "WaitingForVolumeBinding"
    )
}

fn off(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.newest()? else {
        return Ok(Vec::new());
    };
    if plan.spec.restore_vm != Some(true) {
        return Ok(Vec::new());
    }
    let lists = needed(&patient.snapshot.config_maps, "configmaps")?;
    let wanted = names::restore_config_map(name(plan));
    // One of another owner counts for nothing: it may be of an earlier plan of the same name.
    let list = lists
        .iter()
        .find(|list| name(*list) == wanted && owner::is_owned_by_plan(*list, &plan.metadata));
    let Some(list) = list else {
        return Ok(Vec::new());
    };
    let jobs = needed(&patient.snapshot.jobs, "jobs")?;
    let failed: Vec<&str> = jobs
        .iter()
        .filter(|job| {
            let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            label(*job, labels::UPGRADE_PLAN) == Some(name(plan))
                && label(*job, labels::JOB_TYPE) == Some(JobType::RestoreVm.as_str())
                && conditions.any(|condition| condition.type_ == "Failed" && condition.status == "True")
        })
        .filter_map(|job| label(job, labels::NODE))
        .collect();
    let vms = needed(&patient.snapshot.vms, "virtualmachines")?;
    let vms: HashMap<(&str, &str), &VirtualMachine> = vms.iter().map(|vm| ((namespace(vm), name(vm)), vm)).collect();
    let mut findings = Vec::new();
    for (node, text) in list.data.iter().flatten() {
        let since = due(plan, node);
        let has_failed = failed.contains(&node.as_str());
        if !has_failed && !patient.is_past(since, RESTORE) {
            continue;
        }
        let entries = text.split(',').filter_map(|entry| entry.trim().split_once('/'));
        for vm in entries.filter_map(|entry| vms.get(&entry)).filter(|vm| is_off(vm)) {
            if findings.len() == MOST {
                break;
            }
            let status = vm.status.printable_status.as_deref().unwrap_or("unknown");
            let why = if has_failed {
                "the Job that starts it again failed"
            } else {
                "it was not started again"
            };
            let message = format!(
                "VM {} was stopped for the upgrade of node {node} and is {}: {why}",
                name(*vm),
                api::quoted::quoted(status)
            );
            let severity = if has_failed { Severity::Error } else { Severity::Warning };
            findings.push(
                found(severity, ObjectRef::of(*vm), message)
                    .also(super::found::node_ref(node))
                    .since(since)
                    .command("virtctl start -n {} {}", &[namespace(*vm), name(*vm)]),
            );
        }
    }
    Ok(findings)
}
