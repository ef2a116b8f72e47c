//! Which disruption budgets keep pods of VMs on a node that is to be drained. Pure.

use std::sync::Arc;

use api::{
    ProgramWait,
    foreign::kubevirt::{VirtualMachineInstance, VirtualMachineInstanceMigration},
};
use k8s_openapi::{api::policy::v1::PodDisruptionBudget, apimachinery::pkg::util::intstr::IntOrString};

use super::{EVACUATION_ANNOTATION, EVACUATION_PREFIX, annotation, full_name, is_on};
use crate::Waiting;

/// Names of disruption budgets of KubeVirt's own migrations begin with this.
const BUDGET_PREFIX: &str = "kubevirt-migration-pdb-kubevirt-evacuation-";
/// On a disruption budget: the migration that it guards.
pub(super) const MIGRATION_NAME_LABEL: &str = "kubevirt.io/migrationName";

/// The disruption budgets that still guard migrations of VMs off this node. KubeVirt takes them away soon after; while
/// they are there, pods of those VMs cannot be evicted. Budgets of other nodes' VMs are none of its business.
#[must_use]
pub fn budgets(
    node: &str,
    budgets: &[Arc<PodDisruptionBudget>],
    migrations: &[Arc<VirtualMachineInstanceMigration>],
    instances: &[Arc<VirtualMachineInstance>],
) -> Vec<Waiting> {
    let concerns = |budget: &PodDisruptionBudget| {
        let Some(name) = guarded_migration(budget) else {
            return false;
        };
        let namespace = budget.metadata.namespace.as_deref();
        let migration = migrations.iter().find(|migration| {
            migration.metadata.namespace.as_deref() == namespace && migration.metadata.name.as_deref() == Some(name)
        });
        let owners = budget.metadata.owner_references.iter().flatten();
        let owner = owners
            .filter(|owner| owner.kind == "VirtualMachineInstance")
            .find_map(|owner| {
                let is_it = |instance: &&Arc<VirtualMachineInstance>| {
                    instance.metadata.namespace.as_deref() == namespace
                        && instance.metadata.name.as_deref() == Some(&owner.name)
                };
                instances.iter().find(is_it)
            });
        let leaves = |source: Option<&str>| source == Some(node);
        migration.is_some_and(|migration| {
            let state = migration.status.migration_state.as_ref();
            leaves(annotation(&migration.metadata, EVACUATION_ANNOTATION))
                || leaves(state.and_then(|state| state.source_node.as_deref()))
        }) || owner.is_some_and(|instance| {
            let state = instance.status.migration_state.as_ref();
            is_on(instance, node) || leaves(state.and_then(|state| state.source_node.as_deref()))
        })
    };
    let concerning = budgets.iter().filter(|budget| concerns(budget));
    concerning
        .map(|budget| Waiting {
            what: ProgramWait::EvacuationBudget,
            object: format!("PodDisruptionBudget {}", full_name(&budget.metadata)),
            message: format!(
                "disruption budget {} still guards the migration of a VM off {node}",
                full_name(&budget.metadata)
            ),
        })
        .collect()
}

/// The evacuation that a budget guards. Older KubeVirt makes a budget for it; newer raises and labels the VM's own.
fn guarded_migration(budget: &PodDisruptionBudget) -> Option<&str> {
    let name = budget.metadata.name.as_deref().unwrap_or_default();
    if name.starts_with(BUDGET_PREFIX) {
        return Some(&name[BUDGET_PREFIX.len() - EVACUATION_PREFIX.len()..]);
    }
    let labels = budget.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(MIGRATION_NAME_LABEL))?;
    let raised = matches!(
        budget.spec.as_ref().and_then(|spec| spec.min_available.as_ref()),
        Some(IntOrString::Int(least)) if *least > 1
    );
    (raised && label.starts_with(EVACUATION_PREFIX)).then_some(label.as_str())
}
