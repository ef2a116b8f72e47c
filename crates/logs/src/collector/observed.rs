//! What is known of pods: plain values, made from objects by the shell or by a test.

use crate::{key::Class, line::Nanos};

/// The pods whose logs are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// All of them. A pod that is not here is gone.
    pub pods: Vec<PodFacts>,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, or the hash of its file if it is the mirror of a static pod.
    pub uid: String,
    /// Whose it is.
    pub class: Class,
    /// Which part of the upgrade or of the cluster it serves.
    pub component: String,
    /// Its node.
    pub node: Option<String>,
    /// When it was created.
    pub created: Nanos,
    /// It is being deleted.
    pub is_deleting: bool,
    /// A Job owns it: it ends, and its last lines matter.
    pub is_job: bool,
    /// Its containers, those of its initialisation included.
    pub containers: Vec<ContainerFacts>,
}

/// A container of a pod, as the pod's status says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerFacts {
    /// Its name.
    pub name: String,
    /// How often it was restarted.
    pub instance: u32,
    /// What it does.
    pub state: ContainerState,
    /// The status has an earlier start that ended.
    pub has_previous: bool,
}

/// What a container does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// It was not started yet, or waits to be started again.
    Waiting,
    /// It runs.
    Running,
    /// It has ended.
    Ended,
}

/// Which log of a container the API shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Readable {
    /// The current log, and whether it is complete.
    pub(super) current: Option<bool>,
    /// The log of the start before.
    pub(super) previous: bool,
}

impl ContainerFacts {
    /// What the kubelet shows: of a container that waits after it ended, the current log is that of its last start.
    pub(super) fn readable(&self) -> Readable {
        match self.state {
            ContainerState::Running | ContainerState::Ended => Readable {
                current: Some(self.state == ContainerState::Ended),
                previous: self.has_previous && self.instance > 0,
            },
            ContainerState::Waiting => Readable {
                current: self.has_previous.then_some(true),
                previous: false,
            },
        }
    }
}
