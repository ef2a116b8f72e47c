//! VMs: what would happen to them, and what is unusual about them.

use std::collections::BTreeSet;

use api::{
    OnMigrationFailure,
    foreign::{
        condition_is,
        kubevirt::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration},
    },
};
use rules::{
    capacity::launched,
    evacuation::is_over,
    migration::{self, Stuck},
};

use super::{Found, Question, found::together};
use crate::finding::{Missing, needed};

/// VMs that the plan would shut down, by its own options.
pub(super) fn keep_running(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let nodes = needed(&question.snapshot.nodes, "nodes")?;
    let vmis = needed(&question.snapshot.vmis, "virtualmachineinstances")?;
    let hosts = migration::hosts(nodes);
    let spec = &question.plan.spec;
    let restores = spec.restore_vm == Some(true);
    let stopped: Vec<&VirtualMachineInstance> = vmis
        .iter()
        .filter(|vmi| match migration::why_stuck(vmi, &hosts) {
            Some(Stuck::SingleHost) => true,
            Some(Stuck::NotLiveMigratable { .. }) => spec.on_migration_failure == Some(OnMigrationFailure::Stop),
            // Without restoreVM admission refuses the plan.
            Some(_) => restores,
            None => false,
        })
        .collect();
    let text = if restores {
        "VMs are shut down for the upgrade of their node and started again"
    } else {
        "VMs are shut down for the upgrade of their node, and start again only if the plan has spec.restoreVM: true"
    };
    Ok(together(text, &stopped))
}

pub(super) fn are_as_specified(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let vms = needed(&question.snapshot.vms, "virtualmachines")?;
    let changed: Vec<&VirtualMachine> = vms
        .iter()
        .filter(|vm| condition_is(vm.status.conditions.as_deref().unwrap_or_default(), "RestartRequired") == Some(true))
        .collect();
    Ok(together(
        "VMs were changed and must be restarted before that takes effect",
        &changed,
    ))
}

pub(super) fn are_not_migrating(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let migrations = needed(&question.snapshot.migrations, "virtualmachineinstancemigrations")?;
    let running: Vec<&VirtualMachineInstanceMigration> =
        migrations.iter().filter(|migration| !is_over(migration)).collect();
    Ok(together("VMs are being migrated", &running))
}

/// KubeVirt leaves a VM with this strategy alone until the drain ends it.
pub(super) fn move_when_evicted(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let vmis = needed(&question.snapshot.vmis, "virtualmachineinstances")?;
    if migration::hosts(needed(&question.snapshot.nodes, "nodes")?).len() < 2 {
        return Ok(Vec::new());
    }
    let staying: Vec<&VirtualMachineInstance> = vmis
        .iter()
        .filter(|vmi| !migration::has_ended(vmi))
        .filter(|vmi| matches!(vmi.spec.eviction_strategy.as_deref(), Some("None" | "External")))
        .collect();
    Ok(together(
        "VMs are not migrated when their node is drained (evictionStrategy None or External)",
        &staying,
    ))
}

/// A VM that KubeVirt takes for running, whose pod is gone: a drain waits for it in vain.
pub(super) fn have_their_pods(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let vmis = needed(&question.snapshot.vmis, "virtualmachineinstances")?;
    let pods = needed(&question.snapshot.pods, "pods")?;
    let owners: BTreeSet<(&str, &str)> = pods
        .iter()
        .filter_map(|pod| Some((pod.metadata.namespace.as_deref().unwrap_or_default(), launched(pod)?)))
        .collect();
    // Bundles have the pods of some namespaces only.
    let namespaces: BTreeSet<&str> = pods
        .iter()
        .filter_map(|pod| pod.metadata.namespace.as_deref())
        .collect();
    let lost: Vec<&VirtualMachineInstance> = vmis
        .iter()
        .filter(|vmi| vmi.status.phase.as_deref() == Some("Running"))
        .filter(|vmi| {
            let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
            let name = vmi.metadata.name.as_deref().unwrap_or_default();
            namespaces.contains(namespace) && !owners.contains(&(namespace, name))
        })
        .collect();
    Ok(together("VMs are recorded as running, but have no pod", &lost))
}
