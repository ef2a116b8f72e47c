//! How VMs leave a node that is to be drained, and what to do with one that does not. Pure: what KubeVirt reports in;
//! what is waited for, and what to do, out.
//!
//! KubeVirt starts a migration for every VM on a node with the drain taint, and tries again by itself, later and later,
//! when one fails. [`decide`] watches that: each VM is waited for by name, with the phase of its migration and the
//! reason. A VM whose migration failed is dealt with by [`OnMigrationFailure`]:
//!
//! - `Block`: the plan waits until an administrator acts;
//! - `Retry`: the failed migrations are deleted, which makes KubeVirt retry at once, at most [`RETRIES`] times; how
//!   often is kept on the instance, so that a program that starts again continues counting;
//! - `Stop`: it is stopped, unless another migration is currently copying it.
//!
//! A VM that KubeVirt says it cannot migrate at all (LiveMigratable=False) is one whose migration failed before it began:
//! `Stop` stops it, otherwise it is waited for.
//!
//! The taint itself is watched too: older releases of Harvester take it away from nodes that are Ready, and then KubeVirt moves
//! nothing more. It is set again for as long as VMs are waited for.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::migration::{denial, has_ended};
use api::{
    OnMigrationFailure, ProgramWait, annotations,
    foreign::kubevirt::{VirtualMachineInstance, VirtualMachineInstanceMigration},
    labels,
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::{Value, json};

use crate::{Waiting, migration};

mod budgets;
mod migrations;

pub use budgets::budgets;
pub use migrations::is_over;
use migrations::{created, ended, has_failed, is_copying, progress, reason};

/// On the pod that an instance moves to: the uid of the migration.
pub const MIGRATION_JOB_LABEL: &str = "kubevirt.io/migrationJobUID";
/// How often failed migrations of a VM are deleted to make KubeVirt retry.
pub const RETRIES: u32 = 3;
/// The pause between the end of a failed migration and the first time it is tried again; doubles each time.
pub const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// How many VMs that have not begun to move are named; the others are counted. An object has room for some hundred at most.
const NAMED_IDLE: usize = 20;
/// On a migration: the node that is evacuated.
const EVACUATION_ANNOTATION: &str = "kubevirt.io/evacuationMigration";
/// Names of migrations that KubeVirt starts by itself begin with this.
const EVACUATION_PREFIX: &str = "kubevirt-evacuation-";

type Migration = VirtualMachineInstanceMigration;
/// Namespace and name of an instance.
type InstanceKey<'a> = (&'a Option<String>, &'a Option<String>);

/// What KubeVirt reports, and what is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Evacuation<'a> {
    /// What time it is.
    pub now: Timestamp,
    /// The plan's name.
    pub plan: &'a str,
    /// The node that VMs are to leave.
    pub node: &'a str,
    /// What to do with a VM whose migration failed.
    pub policy: OnMigrationFailure,
    /// When the upgrade of the node began. Migrations from before say nothing about it.
    pub began: Option<Timestamp>,
    /// Instances; those of other nodes are passed over.
    pub instances: &'a [Arc<VirtualMachineInstance>],
    /// Migrations, of whatever instance.
    pub migrations: &'a [Arc<VirtualMachineInstanceMigration>],
    /// The pods that instances move to.
    pub target_pods: &'a [Arc<Pod>],
    /// The node carries the taint that makes KubeVirt move VMs away.
    pub tainted: bool,
}

/// Something to do about a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Note on the instance that this is the `number`-th time, then delete its failed migrations.
    Retry {
        /// Namespace of the VM.
        namespace: String,
        /// Name of the VM.
        name: String,
        /// Which time it is, from 1.
        number: u32,
        /// The failed migrations.
        migrations: Vec<String>,
    },
    /// Record the VM so that it is started again, then stop it.
    Stop {
        /// Namespace of the VM.
        namespace: String,
        /// Name of the VM.
        name: String,
        /// It is to be started again: neither was it paused, nor does it serve an upgrade.
        restore: bool,
        /// Why it could not be moved.
        why: String,
    },
    /// Give the node the drain taint again: another client removed it.
    Taint,
}

/// What is waited for and what to do about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// What is still on the node; nothing when all VMs have left. Those that need an administrator come first, those that have not
    /// begun to move last, and of these all but a few are counted.
    pub waiting: Vec<Waiting>,
    /// How many VMs are still on the node; nothing while that is unknown.
    pub left: Option<usize>,
    /// What to do.
    pub acts: Vec<Act>,
    /// When to look again although nothing has changed.
    pub look_again: Option<Timestamp>,
}

/// Looks at every VM on the node.
#[must_use]
pub fn decide(observed: &Evacuation<'_>) -> Decision {
    let mut decision = Decision::default();
    let mut waiting: Vec<(Stage, Waiting)> = Vec::new();
    let migrations = by_instance(observed.migrations);
    for instance in observed
        .instances
        .iter()
        .filter(|instance| is_on(instance, observed.node))
    {
        let its = migrations.get(&(&instance.metadata.namespace, &instance.metadata.name));
        let found = look(observed, instance, its.map(Vec::as_slice).unwrap_or_default());
        let said = Waiting {
            what: ProgramWait::VmEvacuation,
            object: format!("VirtualMachineInstance {}", full_name(&instance.metadata)),
            message: format!("VM {} {}", full_name(&instance.metadata), found.message),
        };
        waiting.push((found.stage, said));
        decision.acts.extend(found.act);
        decision.look_again = [decision.look_again, found.look_again].into_iter().flatten().min();
    }
    decision.left = Some(waiting.len());
    if !waiting.is_empty() && !observed.tainted {
        decision.acts.push(Act::Taint);
        decision.waiting.push(Waiting {
            what: ProgramWait::DrainTaint,
            object: format!("Node {}", observed.node),
            message: format!(
                "the taint kubevirt.io/drain was removed from node {}, and KubeVirt migrates no VM without it; it is set again",
                observed.node
            ),
        });
    }
    // The sort is stable: within a stage, the order is that of the instances.
    waiting.sort_by_key(|(stage, _)| *stage);
    let idle = waiting.iter().filter(|(stage, _)| *stage == Stage::Idle).count();
    let shown = waiting.len() - idle.saturating_sub(NAMED_IDLE);
    decision.waiting.extend(waiting.drain(..shown).map(|(_, said)| said));
    if !waiting.is_empty() {
        decision.waiting.push(Waiting {
            what: ProgramWait::VmEvacuation,
            object: format!("Node {}", observed.node),
            message: format!(
                "{} more VMs have not begun to move: KubeVirt moves a few at a time",
                waiting.len()
            ),
        });
    }
    decision
}

/// The VMs that still run in a cluster of one node, where there is nothing to be moved, only stopped.
#[must_use]
pub fn remaining(node: &str, instances: &[Arc<VirtualMachineInstance>]) -> Vec<Waiting> {
    let here = instances.iter().filter(|instance| is_on(instance, node));
    here.map(|instance| {
        let what = match instance.metadata.deletion_timestamp {
            Some(_) => "is shutting down",
            None => "still runs, and there is no other node for it: stop it",
        };
        Waiting {
            what: ProgramWait::VmShutdown,
            object: format!("VirtualMachineInstance {}", full_name(&instance.metadata)),
            message: format!("VM {} {what}", full_name(&instance.metadata)),
        }
    })
    .collect()
}

/// The state of a VM, from those that need an administrator to those that leave without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// It could not be moved.
    Failed,
    /// It moves or goes down.
    #[default]
    Leaving,
    /// It has not begun to move.
    Idle,
}

/// What was found about one VM.
#[derive(Default)]
struct Found {
    stage: Stage,
    message: String,
    act: Option<Act>,
    look_again: Option<Timestamp>,
}

impl Found {
    fn waits(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }
}

/// The migrations of each instance, by its namespace and name. There are hundreds of both.
fn by_instance(migrations: &[Arc<VirtualMachineInstanceMigration>]) -> BTreeMap<InstanceKey<'_>, Vec<&Migration>> {
    let mut found: BTreeMap<InstanceKey<'_>, Vec<&Migration>> = BTreeMap::new();
    for migration in migrations {
        let key = (&migration.metadata.namespace, &migration.spec.vmi_name);
        found.entry(key).or_default().push(migration);
    }
    found
}

fn look(observed: &Evacuation<'_>, instance: &VirtualMachineInstance, migrations: &[&Migration]) -> Found {
    if instance.metadata.deletion_timestamp.is_some() {
        return Found::waits("is shutting down");
    }
    let mut migrations = migrations.to_vec();
    migrations.sort_by_key(|migration| (created(&migration.metadata), migration.metadata.name.clone()));
    let active = migrations.iter().rev().find(|migration| !is_over(migration));
    let failed: Vec<_> = migrations
        .iter()
        .filter(|migration| has_failed(migration, observed.began))
        .collect();
    let Some(last) = failed.last() else {
        return match active {
            Some(migration) => Found::waits(progress(observed, migration)),
            None => unmoved(observed, instance),
        };
    };
    let why = reason(last, instance);
    let times = if failed.len() > 1 {
        format!(" {} times", failed.len())
    } else {
        String::new()
    };
    let failure = format!("could not be moved{times}: {why}");
    let found = match (active, observed.policy) {
        (Some(migration), OnMigrationFailure::Stop) if !is_copying(migration) => stop(instance, &failure, why),
        (Some(migration), _) => Found::waits(format!("{failure}; now {}", progress(observed, migration))),
        (None, OnMigrationFailure::Block) => Found::waits(format!(
            "{failure}. It stays until it is migrated or stopped, or until spec.onMigrationFailure of the plan is \
             Retry or Stop"
        )),
        (None, OnMigrationFailure::Retry) => retry(observed, instance, last, &failed, &failure),
        (None, OnMigrationFailure::Stop) => stop(instance, &failure, why),
    };
    Found {
        stage: Stage::Failed,
        ..found
    }
}

fn stop(instance: &VirtualMachineInstance, failure: &str, why: String) -> Found {
    Found {
        message: format!("{failure}; it is being stopped, as spec.onMigrationFailure requires"),
        act: Some(Act::Stop {
            namespace: instance.metadata.namespace.clone().unwrap_or_default(),
            name: instance.metadata.name.clone().unwrap_or_default(),
            restore: migration::unlisted(instance).is_none(),
            why,
        }),
        ..Found::default()
    }
}

fn retry(
    observed: &Evacuation<'_>,
    instance: &VirtualMachineInstance,
    last: &Migration,
    failed: &[&&Migration],
    failure: &str,
) -> Found {
    let done = retries(&instance.metadata, observed.plan);
    if done >= RETRIES {
        return Found::waits(format!(
            "{failure}, also after {done} retries. It stays until it is migrated or stopped, or until \
             spec.onMigrationFailure of the plan is Stop"
        ));
    }
    let pause = RETRY_PAUSE * 2_u32.pow(done);
    let due = ended(last, instance).and_then(|ended| ended.checked_add(pause).ok());
    let number = done + 1;
    let message = format!("{failure}; try {number} of {RETRIES} follows");
    match due.filter(|due| observed.now < *due) {
        Some(due) => Found {
            message,
            look_again: Some(due),
            ..Found::default()
        },
        None => Found {
            message,
            act: Some(Act::Retry {
                namespace: instance.metadata.namespace.clone().unwrap_or_default(),
                name: instance.metadata.name.clone().unwrap_or_default(),
                number,
                migrations: failed
                    .iter()
                    .filter_map(|migration| migration.metadata.name.clone())
                    .collect(),
            }),
            ..Found::default()
        },
    }
}

/// How often failed migrations of an instance were tried again for a plan.
#[must_use]
pub fn retries(instance: &ObjectMeta, plan: &str) -> u32 {
    let annotation = annotation(instance, annotations::EVACUATION_RETRIES);
    let (of, number) = annotation.and_then(|text| text.split_once('=')).unwrap_or_default();
    if of == plan {
        number.parse().unwrap_or_default()
    } else {
        0
    }
}

/// The patch that notes how often; [`retries`] reads it.
#[must_use]
pub fn retry_note(plan: &str, number: u32) -> Value {
    json!({"metadata": {"annotations": {annotations::EVACUATION_RETRIES: format!("{plan}={number}")}}})
}

/// An instance that runs on a node, or is about to.
fn is_on(instance: &VirtualMachineInstance, node: &str) -> bool {
    let labels = instance.metadata.labels.as_ref();
    labels
        .and_then(|known| known.get(labels::VMI_NODE))
        .is_some_and(|label| label == node)
        && !has_ended(instance)
}

/// A VM for which there is no migration: none yet, or none at all since KubeVirt says that it cannot be migrated.
fn unmoved(observed: &Evacuation<'_>, instance: &VirtualMachineInstance) -> Found {
    let Some(why) = denial(instance) else {
        return Found {
            stage: Stage::Idle,
            ..Found::waits("has not begun to move")
        };
    };
    let why = if why.is_empty() {
        "not live-migratable".to_owned()
    } else {
        why
    };
    let failure = format!("cannot be moved, KubeVirt says: {why}");
    let found = match observed.policy {
        OnMigrationFailure::Stop => stop(instance, &failure, why),
        OnMigrationFailure::Block | OnMigrationFailure::Retry => Found::waits(format!(
            "{failure}. It stays until it can be moved or is stopped, or until spec.onMigrationFailure of the plan is Stop"
        )),
    };
    Found {
        stage: Stage::Failed,
        ..found
    }
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn full_name(metadata: &ObjectMeta) -> String {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}", metadata.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests;
