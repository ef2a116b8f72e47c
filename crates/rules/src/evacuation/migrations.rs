//! What is known of the migrations of a VM: their progress, and its description. Pure.

use api::foreign::kubevirt::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{EVACUATION_ANNOTATION, EVACUATION_PREFIX, Evacuation, MIGRATION_JOB_LABEL, annotation};

/// The migration has ended, well or badly.
#[must_use]
pub fn is_over(migration: &VirtualMachineInstanceMigration) -> bool {
    matches!(migration.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Memory is being copied, or about to be: it would be a waste to stop the VM now.
pub(super) fn is_copying(migration: &VirtualMachineInstanceMigration) -> bool {
    matches!(
        migration.status.phase.as_deref(),
        Some("PreparingTarget" | "TargetReady" | "Running")
    )
}

/// KubeVirt's own migration off a node that failed since then.
pub(super) fn has_failed(migration: &VirtualMachineInstanceMigration, since: Option<Timestamp>) -> bool {
    let name = migration.metadata.name.as_deref().unwrap_or_default();
    let evacuates =
        name.starts_with(EVACUATION_PREFIX) || annotation(&migration.metadata, EVACUATION_ANNOTATION).is_some();
    let recent = since.is_none_or(|since| created(&migration.metadata).is_none_or(|created| created >= since));
    evacuates && recent && migration.status.phase.as_deref() == Some("Failed")
}

pub(super) fn progress(observed: &Evacuation<'_>, migration: &VirtualMachineInstanceMigration) -> String {
    let name = migration.metadata.name.as_deref().unwrap_or_default();
    let phase = migration
        .status
        .phase
        .as_deref()
        .filter(|phase| !phase.is_empty())
        .unwrap_or("not begun");
    let target = migration
        .status
        .migration_state
        .as_ref()
        .and_then(|state| state.target_node.as_deref());
    let target = target.map(|target| format!(" to {target}")).unwrap_or_default();
    let mut said = format!("is being moved{target}: migration {name} is {phase}");
    let pods = observed.target_pods.iter().filter(|pod| {
        let labels = pod.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(MIGRATION_JOB_LABEL)) == migration.metadata.uid.as_ref()
            && migration.metadata.uid.is_some()
    });
    let conditions = pods
        .filter_map(|pod| pod.status.as_ref()?.conditions.as_ref())
        .flatten();
    let unscheduled = conditions
        .filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
        .find_map(|condition| condition.message.as_deref());
    if let Some(message) = unscheduled {
        said.push_str(&format!(", no node takes it: {message}"));
    }
    said
}

/// Why a migration failed, as far as KubeVirt says.
pub(super) fn reason(migration: &VirtualMachineInstanceMigration, instance: &VirtualMachineInstance) -> String {
    let own = migration.status.migration_state.as_ref();
    let of_instance = instance.status.migration_state.as_ref().filter(|state| {
        state.failed == Some(true)
            && state
                .migration_uid
                .as_ref()
                .is_none_or(|uid| Some(uid) == migration.metadata.uid.as_ref())
    });
    let said = [own, of_instance].into_iter().flatten();
    let said = said
        .filter_map(|state| state.failure_reason.clone())
        .find(|reason| !reason.is_empty());
    let name = migration.metadata.name.as_deref().unwrap_or_default();
    match said {
        Some(reason) => format!("migration {name} failed: {reason}"),
        None => format!("migration {name} failed, KubeVirt gives no reason"),
    }
}

/// When a migration failed; when that is not known, when it was created.
pub(super) fn ended(
    migration: &VirtualMachineInstanceMigration,
    instance: &VirtualMachineInstance,
) -> Option<Timestamp> {
    let states = [
        migration.status.migration_state.as_ref(),
        instance.status.migration_state.as_ref(),
    ];
    let ended = states
        .into_iter()
        .flatten()
        .find_map(|state| state.end_timestamp.as_deref()?.parse().ok());
    ended.or_else(|| created(&migration.metadata))
}

pub(super) fn created(metadata: &ObjectMeta) -> Option<Timestamp> {
    metadata.creation_timestamp.as_ref().map(|time| time.0)
}
