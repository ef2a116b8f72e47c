//! Which objects are a plan's own: those that its UID owns, directly or through an object that it owns. Labels and names
//! prove nothing, because any user who may create an object chooses them. Pure, over the caches.
//!
//! ```text
//! UpgradePlan ─┬─ Job (harvester-system) ── Pod
//!              ├─ Plan (cattle-system) ── Job (cattle-system) ── Pod
//!              ├─ Deployment ── ReplicaSet ── Pod
//!              ├─ Service ── EndpointSlice
//!              └─ VirtualMachineImage, ConfigMap
//! ```

use std::collections::{BTreeMap, BTreeSet};

use api::{
    Component, UpgradePlan, labels, names,
    owner::{self, is_owned_by},
};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Resource, ResourceExt};
use plan::observed::ObservedJob;

use crate::{observe::SUC_COMPONENTS, watched::Watched};

/// The plan owns an object itself.
pub(crate) fn is_child<K: Resource>(object: &K, plan: &UpgradePlan) -> bool {
    owner::is_owned_by_plan(object, &plan.metadata)
}

/// How a Job or a pod is tied to a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tie {
    /// It is the plan's own.
    Own,
    /// Its owner is gone and it is not: the garbage collector removes it. That it may run still counts, what it says does
    /// not, and it must not be deleted: a name of an owner that is not there proves nothing.
    LeftOver,
    /// It is a stranger's.
    None,
}

/// What owns Jobs of system-upgrade-controller.
const SUC_OWNER: (&str, &str) = ("upgrade.cattle.io/v1", "Plan");
/// What owns pods of Jobs.
const JOB_OWNER: (&str, &str) = ("batch/v1", "Job");

/// Who made an object, if it is of that apiVersion and kind.
fn controller<'a, K: Resource>(object: &'a K, (api_version, kind): (&str, &str)) -> Option<&'a OwnerReference> {
    let mut owners = object.owner_references().iter();
    owners.find(|owner| owner.controller == Some(true) && owner.kind == kind && owner.api_version == api_version)
}

/// Who may own Jobs of a plan: the plan itself in harvester-system, and its Plans in cattle-system.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct JobOwners {
    plan: String,
    /// UIDs of the plan's Plans that are there, and what each is for. Their Jobs are for nothing else.
    suc_plans: BTreeMap<String, Component>,
    /// All other Plans that are there.
    strangers: BTreeSet<String>,
    /// What the plan's Plans are for, by the names that they have.
    suc_names: BTreeMap<String, Component>,
}

impl JobOwners {
    pub(crate) fn of(watched: &Watched, plan: &UpgradePlan) -> Self {
        let mut owners = Self {
            plan: plan.uid().unwrap_or_default(),
            suc_names: SUC_COMPONENTS
                .into_iter()
                .map(|component| (names::suc_plan(&plan.name_any(), component), component))
                .collect(),
            ..Self::default()
        };
        for found in watched.suc_plans.list() {
            let uid = found.uid().unwrap_or_default();
            match owners.suc_names.get(&found.name_any()) {
                Some(component) if is_child(found.as_ref(), plan) => {
                    owners.suc_plans.insert(uid, *component);
                }
                _ => {
                    owners.strangers.insert(uid);
                }
            }
        }
        owners
    }

    /// The same for the same owners.
    pub(crate) fn key(&self) -> String {
        format!("{self:?}")
    }

    /// How a Job is tied to the plan. One that a Plan of it has left is not gone yet, and a new Plan of that name would take
    /// it for its own.
    pub(crate) fn tie(&self, job: &Job) -> Tie {
        match job.namespace().as_deref() {
            Some(names::HARVESTER_NAMESPACE) if is_owned_by(job, &self.plan) => Tie::Own,
            Some(names::CATTLE_NAMESPACE) => self.suc_tie(job),
            _ => Tie::None,
        }
    }

    fn suc_tie(&self, job: &Job) -> Tie {
        let (Some(owner), Some(is_for)) = (controller(job, SUC_OWNER), Component::of(&job.metadata)) else {
            return Tie::None;
        };
        let is_named = || {
            self.suc_names
                .get(&owner.name)
                .is_some_and(|component| *component == is_for)
        };
        match self.suc_plans.get(&owner.uid) {
            Some(component) if *component == is_for => Tie::Own,
            None if !self.strangers.contains(&owner.uid) && is_named() => Tie::LeftOver,
            _ => Tie::None,
        }
    }
}

/// Who may own pods of a plan: its Jobs, and the ReplicaSets of its Deployments.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PodOwners {
    plan: String,
    /// UIDs, each with where its pods are and what they are for.
    ours: BTreeMap<String, (String, Component)>,
    /// Jobs that are there and not the plan's.
    strangers: BTreeSet<String>,
}

impl PodOwners {
    pub(crate) fn of(watched: &Watched, plan: &UpgradePlan, jobs: &BTreeMap<String, ObservedJob>) -> Self {
        let known: BTreeSet<&String> = jobs.values().filter_map(|job| job.uid.as_ref()).collect();
        let own = jobs.values().filter(|job| !job.left_over);
        let mut ours: BTreeMap<String, (String, Component)> = own
            .filter_map(|job| Some((job.uid.clone()?, (job.namespace.clone(), job.component))))
            .collect();
        let all = watched.jobs.list().into_iter().chain(watched.suc_jobs.list());
        let strangers = all
            .filter_map(|job| job.uid())
            .filter(|uid| !known.contains(uid))
            .collect();
        let deployments = watched.deployments.list();
        let deployments = deployments.iter().filter(|found| is_child(found.as_ref(), plan));
        let deployments: Vec<String> = deployments.filter_map(|found| found.uid()).collect();
        for set in watched.replica_sets.list() {
            if deployments.iter().any(|uid| is_owned_by(set.as_ref(), uid)) {
                let place = (set.namespace().unwrap_or_default(), Component::Repo);
                ours.extend(set.uid().map(|uid| (uid, place)));
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
        let is_for = Component::of(&pod.metadata);
        let is_theirs = |(namespace, component): &(String, Component)| {
            pod.metadata.namespace.as_ref() == Some(namespace) && is_for == Some(*component)
        };
        let mut owners = pod.owner_references().iter();
        if owners.any(|owner| self.ours.get(&owner.uid).is_some_and(is_theirs)) {
            return Tie::Own;
        }
        let is_labelled = pod.labels().get(labels::UPGRADE_PLAN) == Some(&self.plan);
        let gone = |owner: &OwnerReference| !self.strangers.contains(&owner.uid) && !self.ours.contains_key(&owner.uid);
        if is_labelled && controller(pod, JOB_OWNER).is_some_and(gone) {
            Tie::LeftOver
        } else {
            Tie::None
        }
    }
}
