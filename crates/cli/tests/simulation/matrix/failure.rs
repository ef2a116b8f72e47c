//! One way in which an upgrade stops.

use std::fmt;

use api::{ImagePreloadOption, JobKind, NodeState, Phase, UpgradePlanSpec};
use world::{Shape, Troubles, troubles::RepositoryTrouble};

use super::{
    jobs::{self, kind_of},
    ways::Way,
};

/// The cluster that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cluster {
    Three,
    One,
    /// Two nodes of the control plane, a witness and a worker.
    Mixed,
    /// Three nodes whose VMs can all move. Its plans stop none: `restoreVM` is false.
    Movable,
    /// One node, and plans with `restoreVM: false`: what they stop stays stopped.
    Unrestored,
}

impl Cluster {
    pub(super) fn shape(self) -> Shape {
        let (nodes, witness) = match self {
            Self::Three | Self::Movable => (3, false),
            Self::One | Self::Unrestored => (1, false),
            Self::Mixed => (4, true),
        };
        Shape {
            nodes,
            witness,
            // Of each kind at least one: those that can move, those that cannot, one that is stopped. The first two can move.
            vms: if matches!(self, Self::Movable) { 2 } else { 6 },
            ..Shape::default()
        }
    }
}

impl Cluster {
    /// Whether its plans stop VMs that cannot move, and start them again.
    pub(super) const fn restores_vms(self) -> bool {
        !matches!(self, Self::Movable | Self::Unrestored)
    }

    /// It has one node.
    pub(super) const fn is_single(self) -> bool {
        matches!(self, Self::One | Self::Unrestored)
    }

    /// Whether VMs that its plans stopped are to be stopped afterwards.
    pub(super) const fn leaves_vms_stopped(self) -> bool {
        matches!(self, Self::Unrestored)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Three => "three nodes",
            Self::One => "one node",
            Self::Mixed => "witness and worker",
            Self::Movable => "VMs that can move",
            Self::Unrestored => "VMs that stay stopped",
        }
    }

    /// Its nodes: the first, those in the middle, the last.
    pub(super) const fn nodes(self) -> &'static [&'static str] {
        match self {
            Self::Three | Self::Movable => &["node-1", "node-2", "node-3"],
            Self::One | Self::Unrestored => &["node-1"],
            Self::Mixed => &["node-1", "node-2", "node-3", "node-4"],
        }
    }

    /// What people call one of its nodes.
    pub(super) fn name_of(self, node: &str) -> &str {
        match (self, node) {
            (Self::Mixed, "node-3") => "the witness",
            (Self::Mixed, "node-4") => "the worker",
            _ => node,
        }
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How an upgrade stops.
#[allow(clippy::large_enum_variant, reason = "there are a few dozen of them, made once")]
#[derive(Clone, Debug)]
pub(super) enum Stop {
    /// The plan fails, or waits beyond a deadline.
    Troubles(Troubles, &'static [Way]),
    /// A user deletes the plan when it has entered a phase.
    DeletedAt(Phase),
    /// A user deletes the plan when a node is in a state.
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

    /// The failure until it is repaired.
    pub(super) fn troubles(&self) -> Troubles {
        match &self.stop {
            Stop::Troubles(troubles, _) => troubles.clone(),
            Stop::DeletedAt(_) | Stop::DeletedAtNode(..) => Troubles::default(),
        }
    }

    /// The phase in which it stops the plan, as far as it does.
    pub(super) fn phase(&self) -> Option<Phase> {
        let troubles = match &self.stop {
            Stop::DeletedAt(phase) => return Some(*phase),
            Stop::DeletedAtNode(..) => return None,
            Stop::Troubles(_, ways) if *ways == Way::WARNED || *ways == Way::STOPPED_VMS => return None,
            Stop::Troubles(troubles, _) => troubles,
        };
        if let Some(job) = troubles.jobs.first() {
            return Some(jobs::phase(kind_of(job)));
        }
        let phase = match troubles.repository {
            Some(RepositoryTrouble::NeverReady) => Phase::RepoCreating,
            Some(
                RepositoryTrouble::Unreachable
                | RepositoryTrouble::AnotherIso
                | RepositoryTrouble::SwappedRelease
                | RepositoryTrouble::ReplayedManifest
                | RepositoryTrouble::Impostor,
            ) => Phase::MetadataPopulating,
            Some(RepositoryTrouble::EmptyImageLists) => Phase::ImagePreloading,
            Some(RepositoryTrouble::NoImageLists) => Phase::CleaningUp,
            None if !troubles.full_disks.is_empty() || troubles.certificate_days.is_some() => Phase::Initializing,
            None if troubles.iso_failures > 0 || troubles.scratch_pending => Phase::ISODownloading,
            None if !troubles.stuck_charts.is_empty() => Phase::ClusterUpgrading,
            None => Phase::NodeUpgrading,
        };
        Some(phase)
    }

    /// What its plans ask for besides: only a plan that skips the preload has its nodes checked for the toolkit's image.
    pub(super) fn ask(&self, spec: &mut UpgradePlanSpec) {
        let checks = |job: &world::troubles::JobTrouble| kind_of(job) == JobKind::ImageCheck;
        if self.troubles().jobs.iter().any(checks) {
            spec.image_preload_option = Some(ImagePreloadOption { concurrency: Some(-1) });
        }
    }

    /// Nodes that must be paused for it to happen.
    pub(super) fn paused(&self) -> Vec<String> {
        match &self.stop {
            Stop::DeletedAtNode(node, NodeState::UpgradePaused) => vec![node.clone()],
            _ => Vec::new(),
        }
    }
}
