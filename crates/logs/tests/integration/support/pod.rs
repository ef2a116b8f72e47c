//! A pod of the simulated cluster, and the files of its log.

use std::collections::BTreeSet;

use logs::{
    Class, Nanos,
    collector::{ContainerFacts, ContainerState, PodFacts},
    line,
};

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) time: Nanos,
    pub(crate) text: String,
    pub(crate) instance: u32,
    /// For how long the API has shown it to a running collector without a break.
    pub(crate) shown: Nanos,
    /// Its file was rotated.
    pub(crate) is_rotated: bool,
    /// The longest such time.
    pub(crate) longest: Nanos,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    /// Numbers of lines of the pod.
    pub(crate) lines: Vec<usize>,
    pub(crate) bytes: usize,
    pub(crate) long_since: Option<Nanos>,
}

#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) class: Class,
    pub(crate) is_job: bool,
    pub(crate) node: usize,
    pub(crate) created: Nanos,
    pub(crate) is_deleting: bool,
    pub(crate) removed_at: Option<Nanos>,
    pub(crate) is_gone: bool,
    pub(crate) state: ContainerState,
    pub(crate) starts_at: Option<Nanos>,
    pub(crate) instance: u32,
    pub(crate) current: File,
    pub(crate) previous: Option<File>,
    pub(crate) lines: Vec<Line>,
    /// Starts that a running collector was shown in a status.
    pub(crate) seen: BTreeSet<u32>,
}

impl Pod {
    pub(crate) fn facts(&self) -> PodFacts {
        PodFacts {
            namespace: "ns".to_owned(),
            name: self.name.clone(),
            uid: format!("uid-{}", self.name),
            class: self.class,
            component: "test".to_owned(),
            node: Some(format!("node-{}", self.node)),
            created: self.created,
            is_deleting: self.is_deleting,
            is_job: self.is_job,
            containers: vec![ContainerFacts {
                name: "c".to_owned(),
                instance: self.instance,
                state: self.state,
                has_previous: self.previous.is_some(),
            }],
        }
    }
}

pub(crate) fn shown(line: &Line) -> Vec<u8> {
    format!("{} {}\n", line::timestamp(line.time), line.text).into_bytes()
}
