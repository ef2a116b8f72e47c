//! Live migrations that do not begin, fail or do not end.

use std::collections::HashMap;

use api::{
    OnMigrationFailure, ProgramWait, UpgradePlan, Wait,
    foreign::kubevirt::{VirtualMachineInstance, VirtualMachineInstanceMigration},
    node_progress::Stage,
    quoted::quoted,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use rules::evacuation::MIGRATION_JOB_LABEL;

use super::{
    Leads, Patient, Situation,
    found::{MOST, More, created, error, found, label, name, namespace, node_ref},
    patient::{started, waits_since},
};
use crate::finding::{Finding, Missing, ObjectRef, Severity, needed};

/// KubeVirt itself gives up a target that cannot be scheduled after five minutes.
const NO_TARGET: SignedDuration = SignedDuration::from_mins(2);
/// KubeVirt retries a failed evacuation within this time.
const RETRIED: SignedDuration = SignedDuration::from_mins(2);
/// A migration ends within this time, and some more for each GiB of memory.
const COPY: SignedDuration = SignedDuration::from_mins(20);
/// A link of 1 Gbit/s copies a GiB in 10 s; memory that changes is copied again.
const COPY_PER_GIB: SignedDuration = SignedDuration::from_secs(60);

pub(super) const LEADS: &[Leads] = &[
    Leads::Program(ProgramWait::VmEvacuation),
    Leads::Program(ProgramWait::VmsLeft),
    Leads::Plan(Wait::PreDrainJob),
];

/// No node takes the VM.
pub(super) const D08: Situation = Situation {
    id: "D08",
    symptom: "A node stays in PreDraining; a VM does not leave",
    cause: "The target of a migration cannot be scheduled",
    remedy: "Free CPU or memory on another node, or relax the node selector and the affinity of the VM. Or shut the VM down.",
    leads: LEADS,
    look: no_target,
};

/// The migration failed.
pub(super) const D09: Situation = Situation {
    id: "D09",
    symptom: "A node stays in PreDraining; a VM does not leave",
    cause: "The live migration of a VM failed",
    remedy: "Remove the cause and migrate the VM again, allow auto-converge by a MigrationPolicy, or shut the VM down. spec.onMigrationFailure: Retry or Stop does that for all.",
    leads: LEADS,
    look: failed,
};

/// The migration does not end.
pub(super) const D10: Situation = Situation {
    id: "D10",
    symptom: "A node stays in PreDraining; a VM does not leave",
    cause: "A live migration runs for very long: the VM changes its memory faster than it is copied",
    remedy: "Allow auto-converge or post-copy by a MigrationPolicy, reduce the load in the VM, or shut it down.",
    leads: LEADS,
    look: not_converging,
};

/// Nodes that are being emptied, with the beginning of that.
pub(super) fn emptying<'a>(patient: &Patient<'a>, plan: &'a UpgradePlan) -> HashMap<&'a str, Option<Timestamp>> {
    let nodes = patient.at(plan, &[Stage::Emptying, Stage::Emptied]);
    nodes.into_iter().map(|(name, entry)| (name, started(entry))).collect()
}

/// Running VMs of nodes that are being emptied, by namespace and name.
pub(super) fn instances<'a>(
    patient: &Patient<'a>,
    nodes: &HashMap<&str, Option<Timestamp>>,
) -> Result<Vec<(&'a VirtualMachineInstance, &'a str)>, Missing> {
    let instances = needed(&patient.snapshot.vmis, "virtualmachineinstances")?;
    let on = instances.iter().filter_map(|instance| {
        let node = instance.status.node_name.as_deref()?;
        nodes.contains_key(node).then_some((instance, node))
    });
    Ok(on.collect())
}

/// Migrations that are not over, by the VM that they move.
fn running<'a>(
    patient: &Patient<'a>,
) -> Result<HashMap<(&'a str, &'a str), &'a VirtualMachineInstanceMigration>, Missing> {
    let migrations = needed(&patient.snapshot.migrations, "virtualmachineinstancemigrations")?;
    let open = migrations
        .iter()
        .filter(|migration| !rules::evacuation::is_over(migration));
    Ok(open
        .filter_map(|migration| Some(((namespace(migration), migration.spec.vmi_name.as_deref()?), migration)))
        .collect())
}

/// A plan, and since when its nodes are being emptied.
type Emptying<'a> = (&'a UpgradePlan, HashMap<&'a str, Option<Timestamp>>);

fn plan_and_nodes<'a>(patient: &Patient<'a>) -> Result<Option<Emptying<'a>>, Missing> {
    let Some(plan) = patient.active()? else {
        return Ok(None);
    };
    let nodes = emptying(patient, plan);
    Ok((!nodes.is_empty()).then_some((plan, nodes)))
}

/// Why a pod is not scheduled, in the scheduler's words.
pub(super) fn unscheduled(patient: &Patient<'_>, pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let event = patient
        .events_of_pod(pod)
        .into_iter()
        .find(|event| event.reason.as_deref() == Some("FailedScheduling"));
    let is_waiting = pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none());
    let said = condition
        .and_then(|condition| condition.message.as_deref())
        .or_else(|| event.and_then(|event| event.message.as_deref()));
    (is_waiting && (condition.is_some() || event.is_some())).then(|| quoted(said.unwrap_or("no reason given")))
}

fn no_target(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some((_, nodes)) = plan_and_nodes(patient)? else {
        return Ok(Vec::new());
    };
    let migrations = running(patient)?;
    let targets: HashMap<&str, &Pod> = patient
        .pods()?
        .iter()
        .filter_map(|pod| Some((label(pod, MIGRATION_JOB_LABEL)?, pod)))
        .collect();
    let mut findings = Vec::new();
    for (instance, node) in instances(patient, &nodes)? {
        let Some(migration) = migrations.get(&(namespace(instance), name(instance))) else {
            continue;
        };
        let target = migration.metadata.uid.as_deref().and_then(|uid| targets.get(uid));
        let Some((target, why)) = target.and_then(|pod| Some((*pod, unscheduled(patient, pod)?))) else {
            continue;
        };
        if findings.len() == MOST || !patient.is_past(created(target), NO_TARGET) {
            continue;
        }
        let message = format!(
            "VM {} cannot leave node {node}: no node takes it: {why}",
            name(instance)
        );
        findings.push(
            error(ObjectRef::of(instance), message)
                .also(ObjectRef::of(target))
                .also(node_ref(node))
                .since(created(target))
                .command("kubectl -n {} describe pod {}", &[namespace(target), name(target)])
                .command("kubectl -n {} get vmim", &[namespace(instance)]),
        );
    }
    Ok(findings)
}

fn failed(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some((plan, nodes)) = plan_and_nodes(patient)? else {
        return Ok(Vec::new());
    };
    let open = running(patient)?;
    let policy = plan.spec.on_migration_failure.unwrap_or_default();
    let mut findings = Vec::new();
    for (instance, node) in instances(patient, &nodes)? {
        let Some(state) = instance.status.migration_state.as_ref() else {
            continue;
        };
        if state.failed != Some(true) || open.contains_key(&(namespace(instance), name(instance))) {
            continue;
        }
        let ended: Option<Timestamp> = state.end_timestamp.as_deref().and_then(|at| at.parse().ok());
        let began = nodes.get(node).copied().flatten();
        // One that failed before the node was emptied says nothing about its evacuation.
        if ended.is_some() && ended < began {
            continue;
        }
        let object = format!("VirtualMachineInstance {}/{}", namespace(instance), name(instance));
        let said = waits_since(plan, ProgramWait::VmEvacuation.as_str(), Some(&object));
        if findings.len() == MOST || !patient.is_past(ended.or(said), RETRIED) {
            continue;
        }
        let severity = match policy {
            OnMigrationFailure::Stop => Severity::Warning,
            OnMigrationFailure::Block | OnMigrationFailure::Retry => Severity::Error,
        };
        let why = state.failure_reason.as_deref().unwrap_or("no reason given");
        let message = format!(
            "The migration of VM {} from node {node} failed: {}",
            name(instance),
            quoted(why)
        );
        findings.push(
            found(severity, ObjectRef::of(instance), message)
                .also(node_ref(node))
                .since(ended.or(said))
                .command("virtctl migrate -n {} {}", &[namespace(instance), name(instance)])
                .command("kubectl -n {} get vmim", &[namespace(instance)]),
        );
    }
    Ok(findings)
}

fn not_converging(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some((_, nodes)) = plan_and_nodes(patient)? else {
        return Ok(Vec::new());
    };
    let open = running(patient)?;
    let mut findings = Vec::new();
    for (instance, node) in instances(patient, &nodes)? {
        let Some(migration) = open.get(&(namespace(instance), name(instance))) else {
            continue;
        };
        if migration.status.phase.as_deref() != Some("Running") {
            continue;
        }
        let states = [&instance.status.migration_state, &migration.status.migration_state];
        let mut starts = states
            .into_iter()
            .flatten()
            .filter_map(|state| state.start_timestamp.as_deref());
        let began: Option<Timestamp> = starts.next().and_then(|at| at.parse().ok());
        let limit = COPY + COPY_PER_GIB * memory_gib(instance);
        if findings.len() == MOST || !patient.is_past(began, limit) {
            continue;
        }
        let message = format!(
            "The migration of VM {} from node {node} has been running for more than {} minutes",
            name(instance),
            limit.as_mins()
        );
        findings.push(
            error(ObjectRef::of(instance), message)
                .also(ObjectRef::of(*migration))
                .also(node_ref(node))
                .since(began)
                .command(
                    "kubectl -n {} get vmim {} -o yaml",
                    &[namespace(*migration), name(*migration)],
                )
                .command(
                    "virtctl migrate-cancel -n {} {}",
                    &[namespace(instance), name(instance)],
                ),
        );
    }
    Ok(findings)
}

/// The memory of a VM in GiB, rounded up; 0 when it is not known.
fn memory_gib(instance: &VirtualMachineInstance) -> i32 {
    let domain = instance.spec.domain.as_ref();
    let text = domain.and_then(|domain| {
        let guest = domain.other.get("memory").and_then(|memory| memory.get("guest"));
        let resources = domain.other.get("resources");
        let requested = ["limits", "requests"]
            .into_iter()
            .find_map(|kind| resources?.get(kind)?.get("memory"));
        guest.or(requested)?.as_str()
    });
    let Some(text) = text else {
        return 0;
    };
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: i64 = number.parse().unwrap_or_default();
    let mib = match unit {
        "Ti" | "T" => number.saturating_mul(1024 * 1024),
        "Gi" | "G" => number.saturating_mul(1024),
        "Mi" | "M" => number,
        "Ki" | "K" | "k" => number / 1024,
        "" => number / (1024 * 1024),
        _ => 0,
    };
    i32::try_from((mib + 1023) / 1024).unwrap_or(i32::MAX).min(16 * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_gib() {
        let memory = |guest: &str| {
            let spec = serde_json::json!({"domain": {"memory": {"guest": guest}}});
            let mut instance = VirtualMachineInstance::named("vm");
            instance.spec = serde_json::from_value(spec).unwrap_or_default();
            memory_gib(&instance)
        };
        assert_eq!(memory("64Gi"), 64);
        assert_eq!(memory("512Mi"), 1);
        assert_eq!(memory("1Ti"), 1024);
        assert_eq!(memory("4294967296"), 4);
        assert_eq!(memory("lots"), 0);
    }
}
