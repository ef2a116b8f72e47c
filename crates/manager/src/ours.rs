//! Which objects are a plan's own: those that its UID owns, directly or through an object that it owns. Labels and names
//! prove nothing, because anybody who may create an object chooses them. Pure, over the caches.
//!
//! ```text
//! UpgradePlan ─┬─ Job (harvester-system) ── Pod
//!              ├─ Plan (cattle-system) ── Job (cattle-system) ── Pod
//!              ├─ Deployment ── ReplicaSet ── Pod
//!              ├─ Service ── EndpointSlice
//!              └─ VirtualMachineImage, ConfigMap
//! ```

use std::collections::{BTreeMap, BTreeSet};

use api::{UpgradePlan, labels, names};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Resource, ResourceExt};
use plan::observed::JobSeen;

use crate::{observe::SUC_COMPONENTS, watched::Watched};

/// The plan owns an object itself.
pub(crate) fn is_child<K: Resource>(object: &K, plan: &UpgradePlan) -> bool {
    plan.uid().is_some_and(|uid| is_owned_by(object, &uid))
}

/// An object names this UID as one of its owners.
pub(crate) fn is_owned_by<K: Resource>(object: &K, uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.uid == uid)
}

/// Who may own Jobs of a plan: the plan itself in harvester-system, and its Plans in cattle-system.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct JobOwners {
    plan: String,
    /// The plan's Plans that are there.
    suc_plans: BTreeSet<String>,
    /// All other Plans that are there.
    strangers: BTreeSet<String>,
    /// The names that Plans of the plan have.
    suc_names: BTreeSet<String>,
}

impl JobOwners {
    pub(crate) fn of(watched: &Watched, plan: &UpgradePlan) -> Self {
        let mut owners = Self {
            plan: plan.uid().unwrap_or_default(),
            suc_names: SUC_COMPONENTS
                .iter()
                .map(|component| names::suc_plan(&plan.name_any(), component))
                .collect(),
            ..Self::default()
        };
        for found in watched.suc_plans.list() {
            let uid = found.uid().unwrap_or_default();
            if is_child(found.as_ref(), plan) {
                owners.suc_plans.insert(uid);
            } else {
                owners.strangers.insert(uid);
            }
        }
        owners
    }

    /// The same for the same owners.
    pub(crate) fn key(&self) -> String {
        format!("{self:?}")
    }

    /// A Job is the plan's own. So is one that a Plan of it has left: the garbage collector removes it, but until then a
    /// new Plan of that name would take it for its own.
    pub(crate) fn own(&self, job: &Job) -> bool {
        let mut owners = job.owner_references().iter();
        match job.namespace().as_deref() {
            Some(names::HARVESTER_NAMESPACE) => owners.any(|owner| owner.uid == self.plan),
            Some(names::CATTLE_NAMESPACE) => owners.any(|owner| {
                let is_left = self.suc_names.contains(&owner.name) && !self.strangers.contains(&owner.uid);
                owner.kind == "Plan" && (self.suc_plans.contains(&owner.uid) || is_left)
            }),
            _ => false,
        }
    }
}

/// How a pod is tied to a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tie {
    /// It is the plan's own.
    Own,
    /// Its Job is gone and it is not: the garbage collector removes it. That it may run still counts, what it says does not.
    LeftOver,
    /// It is a stranger's.
    None,
}

/// Who may own pods of a plan: its Jobs, and the ReplicaSets of its Deployments.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PodOwners {
    plan: String,
    ours: BTreeSet<String>,
    /// Jobs that are there and not the plan's.
    strangers: BTreeSet<String>,
}

impl PodOwners {
    pub(crate) fn of(watched: &Watched, plan: &UpgradePlan, jobs: &BTreeMap<String, JobSeen>) -> Self {
        let mut ours: BTreeSet<String> = jobs.values().filter_map(|job| job.uid.clone()).collect();
        let all = watched.jobs.list().into_iter().chain(watched.suc_jobs.list());
        let strangers = all
            .filter_map(|job| job.uid())
            .filter(|uid| !ours.contains(uid))
            .collect();
        let deployments = watched.deployments.list();
        let deployments = deployments.iter().filter(|found| is_child(found.as_ref(), plan));
        let deployments: Vec<String> = deployments.filter_map(|found| found.uid()).collect();
        for set in watched.replica_sets.list() {
            if deployments.iter().any(|uid| is_owned_by(set.as_ref(), uid)) {
                ours.extend(set.uid());
            }
        }
        Self {
            plan: plan.name_any(),
            ours,
            strangers,
        }
    }

    /// The same for the same owners.
    pub(crate) fn key(&self) -> String {
        format!("{self:?}")
    }

    pub(crate) fn tie(&self, pod: &Pod) -> Tie {
        let owners = pod.owner_references();
        if owners.iter().any(|owner| self.ours.contains(&owner.uid)) {
            return Tie::Own;
        }
        let is_labelled = pod.labels().get(labels::UPGRADE_PLAN) == Some(&self.plan);
        let gone = |owner: &OwnerReference| owner.kind == "Job" && !self.strangers.contains(&owner.uid);
        if is_labelled && owners.iter().any(gone) {
            Tie::LeftOver
        } else {
            Tie::None
        }
    }
}
