//! How VMs leave a node that is to be drained, and what to do with one that does not. Pure: what KubeVirt reports in;
//! what is waited for, and what to do, out.
//!
//! KubeVirt starts a migration for every VM on a node with the drain taint, and tries again by itself, later and later,
//! when one fails. [`decide`] watches that: each VM is waited for by name, with the phase of its migration and the
//! reason. A VM whose migration failed is dealt with by [`OnMigrationFailure`]:
//!
//! - `Block`: it is waited for until somebody acts;
//! - `Retry`: the failed migrations are deleted, which makes KubeVirt start anew at once, at most [`RETRIES`] times; how
//!   often is kept on the instance, so that a program that starts again goes on counting;
//! - `Stop`: it is stopped, unless another migration is copying it at this moment.

use std::{sync::Arc, time::Duration};

use api::{
    OnMigrationFailure, annotations,
    foreign::kubevirt::{VirtualMachineInstance, VirtualMachineInstanceMigration},
    labels,
};
use checks::migration::has_ended;
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use crate::{report::Waiting, vm::detector};

mod attend;
mod budgets;

pub use attend::attend;
pub use budgets::budgets;

/// On the pod that an instance moves to: the uid of the migration.
pub const MIGRATION_JOB_LABEL: &str = "kubevirt.io/migrationJobUID";
/// How often failed migrations of a VM are deleted to make KubeVirt start anew.
pub const RETRIES: u32 = 3;
/// The pause between the end of a failed migration and the first time it is tried again; doubles each time.
pub const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// On a migration: the node that is evacuated.
const EVACUATION_ANNOTATION: &str = "kubevirt.io/evacuationMigration";
/// Names of migrations that KubeVirt starts by itself begin with this.
const EVACUATION_PREFIX: &str = "kubevirt-evacuation-";

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
}

/// What is waited for and what to do about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The VMs that are still on the node; none when all have left.
    pub waiting: Vec<Waiting>,
    /// What to do.
    pub acts: Vec<Act>,
    /// When to look again although nothing has changed.
    pub look_again: Option<Timestamp>,
}

/// Looks at every VM on the node.
#[must_use]
pub fn decide(seen: &Evacuation<'_>) -> Decision {
    let mut decision = Decision::default();
    for instance in seen.instances.iter().filter(|instance| is_on(instance, seen.node)) {
        let found = look(seen, instance);
        decision.waiting.push(Waiting {
            what: "VMEvacuation",
            object: format!("VirtualMachineInstance {}", full_name(&instance.metadata)),
            message: format!("VM {} {}", full_name(&instance.metadata), found.message),
        });
        decision.acts.extend(found.act);
        decision.look_again = [decision.look_again, found.look_again].into_iter().flatten().min();
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
            what: "VMShutdown",
            object: format!("VirtualMachineInstance {}", full_name(&instance.metadata)),
            message: format!("VM {} {what}", full_name(&instance.metadata)),
        }
    })
    .collect()
}

/// What was found about one VM.
#[derive(Default)]
struct Found {
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

fn look(seen: &Evacuation<'_>, instance: &VirtualMachineInstance) -> Found {
    if instance.metadata.deletion_timestamp.is_some() {
        return Found::waits("is shutting down");
    }
    let mut migrations: Vec<_> = seen
        .migrations
        .iter()
        .filter(|migration| moves(migration, instance))
        .collect();
    migrations.sort_by_key(|migration| (created(&migration.metadata), migration.metadata.name.clone()));
    let active = migrations.iter().rev().find(|migration| !is_over(migration));
    let failed: Vec<_> = migrations
        .iter()
        .filter(|migration| has_failed(migration, seen.began))
        .collect();
    let Some(last) = failed.last() else {
        return match active {
            Some(migration) => Found::waits(progress(seen, migration)),
            None => Found::waits(unmoved(instance)),
        };
    };
    let why = reason(last, instance);
    let times = if failed.len() > 1 {
        format!(" {} times", failed.len())
    } else {
        String::new()
    };
    let failure = format!("could not be moved{times}: {why}");
    match (active, seen.policy) {
        (Some(migration), OnMigrationFailure::Stop) if !is_copying(migration) => stop(instance, &failure, why),
        (Some(migration), _) => Found::waits(format!("{failure}; now {}", progress(seen, migration))),
        (None, OnMigrationFailure::Block) => Found::waits(format!(
            "{failure}. It stays until it is migrated or stopped, or until spec.onMigrationFailure of the plan is \
             Retry or Stop"
        )),
        (None, OnMigrationFailure::Retry) => retry(seen, instance, last, &failed, &failure),
        (None, OnMigrationFailure::Stop) => stop(instance, &failure, why),
    }
}

fn stop(instance: &VirtualMachineInstance, failure: &str, why: String) -> Found {
    Found {
        message: format!("{failure}; it is being stopped, as spec.onMigrationFailure asks"),
        act: Some(Act::Stop {
            namespace: instance.metadata.namespace.clone().unwrap_or_default(),
            name: instance.metadata.name.clone().unwrap_or_default(),
            restore: detector::unlisted(instance).is_none(),
            why,
        }),
        look_again: None,
    }
}

fn retry(
    seen: &Evacuation<'_>,
    instance: &VirtualMachineInstance,
    last: &VirtualMachineInstanceMigration,
    failed: &[&&Arc<VirtualMachineInstanceMigration>],
    failure: &str,
) -> Found {
    let done = retries(&instance.metadata, seen.plan);
    if done >= RETRIES {
        return Found::waits(format!(
            "{failure}, also after {done} more tries. It stays until it is migrated or stopped, or until \
             spec.onMigrationFailure of the plan is Stop"
        ));
    }
    let pause = RETRY_PAUSE * 2_u32.pow(done);
    let due = ended(last, instance).and_then(|ended| ended.checked_add(pause).ok());
    let number = done + 1;
    let message = format!("{failure}; try {number} of {RETRIES} follows");
    match due.filter(|due| seen.now < *due) {
        Some(due) => Found {
            message,
            act: None,
            look_again: Some(due),
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
            look_again: None,
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

/// An instance that runs on a node, or is about to.
fn is_on(instance: &VirtualMachineInstance, node: &str) -> bool {
    let labels = instance.metadata.labels.as_ref();
    labels
        .and_then(|known| known.get(labels::VMI_NODE))
        .is_some_and(|label| label == node)
        && !has_ended(instance)
}

fn moves(migration: &VirtualMachineInstanceMigration, instance: &VirtualMachineInstance) -> bool {
    migration.metadata.namespace == instance.metadata.namespace && migration.spec.vmi_name == instance.metadata.name
}

fn is_over(migration: &VirtualMachineInstanceMigration) -> bool {
    matches!(migration.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Memory is being copied, or about to be: it would be a waste to stop the VM now.
fn is_copying(migration: &VirtualMachineInstanceMigration) -> bool {
    matches!(
        migration.status.phase.as_deref(),
        Some("PreparingTarget" | "TargetReady" | "Running")
    )
}

/// KubeVirt's own migration off a node that failed since then.
fn has_failed(migration: &VirtualMachineInstanceMigration, since: Option<Timestamp>) -> bool {
    let name = migration.metadata.name.as_deref().unwrap_or_default();
    let evacuates =
        name.starts_with(EVACUATION_PREFIX) || annotation(&migration.metadata, EVACUATION_ANNOTATION).is_some();
    let recent = since.is_none_or(|since| created(&migration.metadata).is_none_or(|created| created >= since));
    evacuates && recent && migration.status.phase.as_deref() == Some("Failed")
}

fn progress(seen: &Evacuation<'_>, migration: &VirtualMachineInstanceMigration) -> String {
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
    let pods = seen.target_pods.iter().filter(|pod| {
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

fn unmoved(instance: &VirtualMachineInstance) -> String {
    let conditions = instance.status.conditions.iter().flatten();
    let migratable = conditions.clone().find(|condition| condition.type_ == "LiveMigratable");
    match migratable.filter(|condition| condition.status.as_deref() == Some("False")) {
        Some(condition) => format!(
            "cannot be moved, KubeVirt says: {}",
            condition
                .message
                .as_deref()
                .or(condition.reason.as_deref())
                .unwrap_or("not live-migratable")
        ),
        None => "has not begun to move".to_owned(),
    }
}

/// Why a migration failed, as far as KubeVirt says.
fn reason(migration: &VirtualMachineInstanceMigration, instance: &VirtualMachineInstance) -> String {
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
fn ended(migration: &VirtualMachineInstanceMigration, instance: &VirtualMachineInstance) -> Option<Timestamp> {
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

fn created(metadata: &ObjectMeta) -> Option<Timestamp> {
    metadata.creation_timestamp.as_ref().map(|time| time.0)
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
