//! What is seen of the workloads of a plan: Plans of system-upgrade-controller, Jobs and pods.

use api::{Component, JobType, WaitingFor, names};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A pod of the upgrade that has something to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedPod {
    /// Its namespace and name.
    #[serde(default)]
    pub name: String,
    /// Which part of the upgrade it serves.
    pub component: Component,
    /// Which step of a node, for pods of nodes.
    #[serde(default)]
    pub job_type: Option<JobType>,
    /// The node it is for, if it is for one.
    #[serde(default)]
    pub node: Option<String>,
    /// The uid of the Job it belongs to, if it belongs to one.
    #[serde(default)]
    pub owner: Option<String>,
    /// Why it cannot start, if it cannot.
    #[serde(default)]
    pub problem: Option<String>,
    /// The image that its node does not have and cannot pull, if that is why.
    #[serde(default)]
    pub missing_image: Option<String>,
    /// What its program says that it waits for.
    #[serde(default)]
    pub said: Vec<WaitingFor>,
    /// The termination message of its program when it failed, if it has.
    #[serde(default)]
    pub termination_message: Option<TerminationMessage>,
    /// Its program has ended well, and reported that the node need not be rebooted.
    #[serde(default)]
    pub no_reboot: bool,
    /// Its program has ended well, and reported that it armed the reboot of its node in this boot.
    #[serde(default)]
    pub armed_in: Option<String>,
    /// It is a pod of a Job, and has not ended: its program may still change something.
    #[serde(default)]
    pub works: bool,
}

impl ObservedPod {
    /// A pod that serves a part of the upgrade, and of which nothing else is known. The part has no default: what an object
    /// serves decides what becomes of it.
    #[must_use]
    pub const fn of(component: Component) -> Self {
        Self {
            name: String::new(),
            component,
            job_type: None,
            node: None,
            owner: None,
            problem: None,
            missing_image: None,
            said: Vec::new(),
            termination_message: None,
            no_reboot: false,
            armed_in: None,
            works: false,
        }
    }

    /// The pod without anything that it says.
    #[must_use]
    pub fn silent(self) -> Self {
        Self {
            problem: None,
            missing_image: None,
            said: Vec::new(),
            termination_message: None,
            no_reboot: false,
            armed_in: None,
            ..self
        }
    }
}

/// The termination message of a failed program. Later ones are greater.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminationMessage {
    /// When.
    pub at: Timestamp,
    /// What.
    pub text: String,
}

/// A system-upgrade-controller Plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedSucPlan {
    /// Its uid: Jobs of another Plan of its name are none of its own.
    pub uid: Option<String>,
    /// It has run on all nodes.
    pub complete: bool,
    /// A Job of it has failed.
    pub job_failed: bool,
    /// It is being deleted.
    pub deleting: bool,
}

/// A Job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedJob {
    /// Its uid.
    #[serde(default)]
    pub uid: Option<String>,
    /// The uid of the system-upgrade-controller Plan that made it, if one did.
    #[serde(default)]
    pub owner: Option<String>,
    /// The Plan that made it is gone, or says that it did and was never there: it may run still, and says nothing.
    #[serde(default)]
    pub left_over: bool,
    /// Its namespace.
    #[serde(default)]
    pub namespace: String,
    /// Which part of the upgrade it serves.
    pub component: Component,
    /// Which step of a node, for Jobs of nodes.
    #[serde(default)]
    pub job_type: Option<JobType>,
    /// Its node, if it has one.
    #[serde(default)]
    pub node: Option<String>,
    /// It is suspended.
    #[serde(default)]
    pub suspended: bool,
    /// How many of its pods have failed.
    #[serde(default)]
    pub failed_pods: u32,
    /// It is being deleted. It is there until its pods are gone.
    #[serde(default)]
    pub deleting: bool,
    /// Its state.
    #[serde(default)]
    pub outcome: JobOutcome,
}

impl ObservedJob {
    /// A Job that serves a part of the upgrade, and of which nothing else is known.
    #[must_use]
    pub const fn of(component: Component) -> Self {
        Self {
            uid: None,
            owner: None,
            left_over: false,
            namespace: String::new(),
            component,
            job_type: None,
            node: None,
            suspended: false,
            failed_pods: 0,
            deleting: false,
            outcome: JobOutcome::Running,
        }
    }

    /// The Job without anything that it says: it may run, and that is all that is known.
    #[must_use]
    pub fn left_over(self) -> Self {
        Self {
            left_over: true,
            suspended: false,
            failed_pods: 0,
            outcome: JobOutcome::Running,
            ..self
        }
    }
}

/// By what Jobs and pods go: those of harvester-system by their name, all others by namespace and name. No name has a slash,
/// so no object in another namespace is ever found in the place of one of harvester-system.
#[must_use]
pub fn key(namespace: &str, name: &str) -> String {
    match namespace {
        "" | names::HARVESTER_NAMESPACE => name.to_owned(),
        other => format!("{other}/{name}"),
    }
}

/// The name of an object that goes by a [`key`].
#[must_use]
pub fn name_of(key: &str) -> &str {
    key.rsplit_once('/').map_or(key, |(_, name)| name)
}

/// The state of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JobOutcome {
    /// Not ended.
    #[default]
    Running,
    /// Ended well.
    Complete,
    /// Ended badly.
    Failed {
        /// Why, in one word.
        reason: String,
        /// Why, in a sentence.
        message: String,
    },
}
