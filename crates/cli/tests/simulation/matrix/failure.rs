//! One way in which an upgrade stops.

use std::fmt;

use api::{NodeState, Phase};
use world::{Shape, Troubles};

use super::ways::Way;

/// The cluster that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cluster {
    Three,
    One,
    /// Two nodes of the control plane, a witness and a worker.
    Mixed,
}

impl Cluster {
    pub(super) fn shape(self) -> Shape {
        let (nodes, witness) = match self {
            Self::Three => (3, false),
            Self::One => (1, false),
            Self::Mixed => (4, true),
        };
        Shape {
            nodes,
            witness,
            // Of each kind at least one: those that can move, those that cannot, one that is stopped.
            vms: 6,
            ..Shape::default()
        }
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Three => "three nodes",
            Self::One => "one node",
            Self::Mixed => "witness and worker",
        })
    }
}

/// How an upgrade stops.
#[allow(clippy::large_enum_variant, reason = "there are a few dozen of them, made once")]
#[derive(Clone, Debug)]
pub(super) enum Stop {
    /// The plan fails, or waits beyond a deadline.
    Troubles(Troubles, &'static [Way]),
    /// Somebody deletes the plan when it has entered a phase.
    DeletedAt(Phase),
    /// Somebody deletes the plan when a node is in a state.
    DeletedAtNode(String, NodeState),
}

/// One way in which an upgrade stops.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) name: String,
    pub(super) cluster: Cluster,
    pub(super) stop: Stop,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Failure {
    pub(super) fn new(cluster: Cluster, name: impl Into<String>, troubles: Troubles) -> Self {
        Self {
            name: name.into(),
            cluster,
            stop: Stop::Troubles(troubles, Way::FAILED),
        }
    }

    /// With other ways on from it than those of a plan that failed.
    pub(super) fn with(mut self, ways: &'static [Way]) -> Self {
        if let Stop::Troubles(_, its) = &mut self.stop {
            *its = ways;
        }
        self
    }

    /// The ways on from it.
    pub(super) fn ways(&self) -> &'static [Way] {
        match &self.stop {
            Stop::Troubles(_, ways) => ways,
            Stop::DeletedAt(_) | Stop::DeletedAtNode(..) => Way::DELETED,
        }
    }

    /// What goes wrong until somebody mends it.
    pub(super) fn troubles(&self) -> Troubles {
        match &self.stop {
            Stop::Troubles(troubles, _) => troubles.clone(),
            Stop::DeletedAt(_) | Stop::DeletedAtNode(..) => Troubles::default(),
        }
    }

    /// Nodes that must be held for it to happen.
    pub(super) fn held(&self) -> Vec<String> {
        match &self.stop {
            Stop::DeletedAtNode(node, NodeState::UpgradePaused) => vec![node.clone()],
            _ => Vec::new(),
        }
    }
}
