//! May this UpgradePlan be created, changed, deleted?
//!
//! Every failure is reported, not only the first. Texts are part of the contract with existing users and tools; where
//! ours say more, they say it after the known text.

mod backups;
mod charts;
mod hotplug;
pub mod image;
mod machines;
mod name;
mod nodes;
pub mod notes;
pub mod options;
mod plans;
pub mod powers;
pub(crate) mod release;
mod source;
mod vms;
mod volumes;

/// Which objects a check could name: of kinds with very many, no others need to be kept.
pub mod matters {
    pub use super::{
        backups::{is_not_suspended as schedule, is_running as backup},
        volumes::matters as volume,
    };
}

use std::ops::Deref;

use api::{Phase, UpgradePlan, annotations, names};
use kube::{Resource, ResourceExt};

use crate::{Cluster, FieldError, NoAnswer};

/// A check of a new plan. `Err` when it could not look, which ends this check and no other.
pub type Check = fn(&UpgradePlan, &Cluster) -> Result<Vec<FieldError>, FieldError>;

/// What a check is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guards {
    /// That the upgrade can complete. A user who may skip checks may skip it.
    Course,
    /// That no data is lost and no two upgrades run together. Skipping it needs a second annotation.
    Data,
}
use Guards::{Course, Data};

/// All checks of a new plan, in the order in which they report: the fifteen of the contract with V1's on hotplug, then ours.
pub const CREATE: [(&str, Guards, Check); 21] = [
    ("the Version exists", Course, source::version_exists),
    ("no other upgrade runs", Data, plans::none_progresses),
    ("nodes are ready", Course, nodes::are_ready),
    ("the Rancher cluster is ready", Course, machines::cluster_is_ready),
    ("machines are running", Course, machines::are_running),
    ("nodes and machines are paired", Course, machines::are_paired_with_nodes),
    ("volumes are healthy", Data, volumes::are_safe),
    ("no VM backup is under way", Course, backups::are_done),
    (
        "backup schedules are suspended",
        Course,
        backups::schedules_are_suspended,
    ),
    ("VMs can migrate", Course, vms::can_migrate),
    ("nothing is left of old hotplugs", Course, hotplug::leaves_nothing),
    ("managed charts are ready", Course, charts::are_ready),
    ("addons are settled", Course, charts::addons_are_settled),
    ("no other upgrade cleans up", Data, plans::none_cleans_up),
    ("the image exists", Course, source::image_exists),
    ("nodes to pause exist", Course, nodes::to_pause_exist),
    ("no V1 upgrade runs", Data, plans::no_v1_upgrade_runs),
    ("the name fits the upgrade's objects", Course, name::fits_its_objects),
    ("the toolkit's image is one", Course, image::is_one),
    ("the version may be upgraded to", Course, release::may_be_upgraded_to),
    (
        "the ISO can be downloaded and verified",
        Course,
        release::iso_can_be_downloaded,
    ),
];

/// Where the checks on nodes, volumes and the like report.
pub(crate) const SPEC: &str = "spec";

/// How much of the cluster must be read before a question can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Nothing.
    Nothing,
    /// The nodes.
    Nodes,
    /// Everything.
    Everything,
}

/// What [`create`] will read.
#[must_use]
pub fn create_reads(plan: &UpgradePlan) -> Reads {
    if CREATE.iter().any(|(_, guards, _)| is_checked(plan, *guards)) {
        Reads::Everything
    } else {
        Reads::Nothing
    }
}

/// What [`update`] will read.
#[must_use]
pub fn update_reads(old: &UpgradePlan, new: &UpgradePlan) -> Reads {
    if nodes::newly_paused(old, new).is_empty() {
        Reads::Nothing
    } else {
        Reads::Nodes
    }
}

/// Whether such checks apply to a plan.
pub(crate) fn is_checked(plan: &UpgradePlan, guards: Guards) -> bool {
    match guards {
        Guards::Course => !plan.skips_webhook(),
        Guards::Data => !plan.skips_data_checks(),
    }
}

/// What is wrong with creating the plan.
#[must_use]
pub fn create(plan: &UpgradePlan, cluster: &Cluster) -> Vec<FieldError> {
    let checked = CREATE.iter().filter(|(_, guards, _)| is_checked(plan, *guards));
    let outcomes = checked.map(|(.., check)| check(plan, cluster));
    outcomes
        .flat_map(|outcome| outcome.unwrap_or_else(|error| vec![error]))
        .collect()
}

/// What its creator should know about a plan though it is not refused.
#[must_use]
pub fn warnings(plan: &UpgradePlan, cluster: &Cluster) -> Vec<String> {
    source::unverified(plan, cluster).into_iter().collect()
}

/// What is wrong with changing the plan. Only what is new is looked at, names added to `pauseNodes` for one, so that a
/// node that is gone never blocks a finalizer.
#[must_use]
pub fn update(old: &UpgradePlan, new: &UpgradePlan, cluster: &Cluster) -> Vec<FieldError> {
    let outcome = nodes::exist(&nodes::newly_paused(old, new), cluster);
    let mut faults = outcome.unwrap_or_else(|error| vec![error]);
    faults.extend(image::newly_wrong(old, new));
    faults
}

/// An upgrade of Harvester's own controller is under way.
#[must_use]
pub fn is_v1_upgrade_running(upgrade: &api::foreign::harvester::Upgrade) -> bool {
    !plans::has_ended(upgrade)
}

/// A plan is under way: it progresses or cleans up.
#[must_use]
pub fn is_under_way(plan: &UpgradePlan) -> bool {
    plans::progresses(plan) || plan.phase() == Some(Phase::CleaningUp)
}

/// What is wrong with deleting the plan.
#[must_use]
pub fn delete(plan: &UpgradePlan) -> Vec<FieldError> {
    let refused = |why: &str| vec![FieldError::forbidden("metadata.name", why)];
    if !plans::progresses(plan) {
        return Vec::new();
    }
    match plan.phase() {
        Some(Phase::ClusterUpgrading) => refused("cannot delete UpgradePlan while cluster is being upgraded"),
        Some(Phase::NodeUpgrading) => refused("cannot delete UpgradePlan while nodes are being upgraded"),
        _ if is_true(plan, annotations::ALLOW_DELETION) => Vec::new(),
        _ => refused(&format!(
            "cannot delete a progressing UpgradePlan without the {} annotation",
            annotations::ALLOW_DELETION
        )),
    }
}

/// Exactly `"true"`: overrides are never guessed.
fn is_true(plan: &UpgradePlan, annotation: &str) -> bool {
    plan.annotation(annotation) == Some("true")
}

/// An earlier plan was interrupted while Rancher upgraded nodes, and Rancher waits at its hooks. The next plan finds the
/// node that was being upgraded cordoned and the cluster not ready, and only another plan ends that.
fn takes_over(cluster: &Cluster) -> bool {
    let clusters = within(&cluster.rancher_clusters, "clusters", names::FLEET_NAMESPACE).unwrap_or_default();
    let mut local = clusters.iter().filter(|found| found.name_any() == names::LOCAL_CLUSTER);
    local.any(|found| found.annotations().contains_key(annotations::SAVED_UPGRADE_STRATEGY))
}

/// VMs that cannot move are shut down for the upgrade of their node and started again.
fn restores_vms(plan: &UpgradePlan) -> bool {
    plan.spec.restore_vm == Some(true)
}

/// The objects, or the error that reports that there is no list of them.
fn all<'a, K, L: Deref<Target = [K]>>(listed: &'a Result<L, NoAnswer>, what: &str) -> Result<&'a [K], FieldError> {
    match listed {
        Ok(objects) => Ok(objects),
        Err(error) => Err(FieldError::not_listed(what, &error.to_string())),
    }
}

/// Those objects that are in a namespace.
fn within<'a, K: Resource + 'a, L: Deref<Target = [K]>>(
    listed: &'a Result<L, NoAnswer>,
    what: &str,
    namespace: &str,
) -> Result<Vec<&'a K>, FieldError> {
    let objects = all(listed, what)?.iter();
    Ok(objects
        .filter(|object| object.meta().namespace.as_deref() == Some(namespace))
        .collect())
}

/// `<namespace>/<name>`.
fn full_name<K: Resource>(object: &K) -> String {
    let namespace = object.meta().namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}", object.name_any())
}

/// The known text about the first, followed by what concerns the others.
fn with_others(text: String, others: &[String]) -> String {
    if others.is_empty() {
        return text;
    }
    format!("{text}; also {}", others.join(", "))
}

/// Of reasons for one error, the first with the others behind it.
fn forbidden(reasons: &[String], text: impl Fn(&str) -> String) -> Vec<FieldError> {
    let Some((first, others)) = reasons.split_first() else {
        return Vec::new();
    };
    vec![FieldError::forbidden(SPEC, with_others(text(first), others))]
}

/// A condition of a plan is True.
fn condition_is_true(plan: &UpgradePlan, type_: &str) -> bool {
    plan.condition(type_)
        .is_some_and(|condition| condition.status == "True")
}
