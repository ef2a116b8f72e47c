//! What each part of an upgrade weighs, and how much of it is done.

use api::{NodeUpgradeStatus, Phase, UpgradePlanStatus, node_progress::Stage};
use jiff::Timestamp;

use super::{HANDOVER, NodeForecast, PHASES, Part, PhaseForecast, seconds_of};
use crate::estimate::{Expected, Size, has_left};

/// The parts of an upgrade as its status shows them.
pub(super) struct Walk<'a> {
    pub(super) now: Timestamp,
    pub(super) status: &'a UpgradePlanStatus,
    pub(super) size: &'a Size,
    pub(super) expected: &'a Expected,
    pub(super) reached: Option<Phase>,
}

impl Walk<'_> {
    /// When a phase was entered, the last time.
    fn entered(&self, phase: Phase) -> Option<Timestamp> {
        let mut history = self.status.phase_transition_timestamps.iter().rev();
        history
            .find(|change| change.phase == phase.as_str())
            .map(|change| change.phase_transition_timestamp.0)
    }

    fn seconds(&self, from: Timestamp, to: Timestamp) -> f64 {
        to.duration_since(from).as_secs_f64().max(0.0)
    }

    pub(super) fn part(&self, index: usize) -> Part {
        let (_, active, completed) = PHASES[index];
        let expected = self.by_expectation(index);
        let Some(reached) = self.reached.filter(|reached| *reached >= active) else {
            return Part::pending(expected);
        };
        let began = self.entered(active);
        if reached > completed {
            // Until the next phase began, or the upgrade ended.
            let next = PHASES.get(index + 1).map_or(Phase::Succeeded, |(_, next, _)| *next);
            let took = began
                .zip(self.entered(next))
                .map(|(began, next)| self.seconds(began, next));
            return Part::done(took.unwrap_or(expected));
        }
        let elapsed = began.map_or(0.0, |began| self.seconds(began, self.now));
        if reached == completed {
            return Part {
                weight: elapsed + HANDOVER,
                done: elapsed,
                overdue: 0.0,
            };
        }
        match active {
            Phase::NodeUpgrading => self.nodes(began),
            Phase::ImagePreloading => Part::running(expected, elapsed, self.share(Stage::Preloaded, true)),
            Phase::CleaningUp => Part::running(expected, elapsed, self.share(Stage::Cleaned, false)),
            _ => Part::running(expected, elapsed, (0.0, 1.0)),
        }
    }

    fn by_expectation(&self, index: usize) -> f64 {
        let expected = self.expected;
        match PHASES[index].1 {
            Phase::Initializing => expected.initialize,
            Phase::ISODownloading => expected.iso,
            Phase::RepoCreating => expected.repository,
            Phase::MetadataPopulating => expected.metadata,
            Phase::ImagePreloading => expected.preload,
            Phase::ClusterUpgrading => expected.cluster,
            Phase::NodeUpgrading => self.nodes(None).weight,
            _ => expected.cleanup,
        }
    }

    /// Which share of the nodes has reached a stage, and how far the others can be at most: where nodes work at the same time,
    /// all of them may be about to reach it.
    fn share(&self, stage: Stage, at_once: bool) -> (f64, f64) {
        let nodes = self
            .status
            .node_upgrade_statuses
            .values()
            .filter(|node| !has_left(node));
        let all = self.size.nodes.max(1) as f64;
        let done = nodes.filter(|node| node.progress().stage() >= stage).count() as f64;
        let most = if at_once { 1.0 } else { (done + 1.0) / all };
        ((done / all).min(1.0), most.min(1.0))
    }

    /// The phase in which nodes are upgraded: until the first one begins, and then one after the other.
    fn nodes(&self, began: Option<Timestamp>) -> Part {
        let expected = self.expected;
        let nodes = || {
            self.status
                .node_upgrade_statuses
                .values()
                .filter(|node| !has_left(node))
        };
        let started = nodes().filter_map(|node| Some(node.started_at.as_ref()?.0)).min();
        let lead = match (started, began) {
            // Time in which a node was paused is no work.
            (Some(started), Some(began)) => Part::done(self.seconds(began, started).min(2.0 * expected.lead)),
            (Some(_), None) => Part::done(expected.lead),
            (None, Some(began)) => Part::running(expected.lead, self.seconds(began, self.now), (0.0, 1.0)),
            (None, None) => Part::pending(expected.lead),
        };
        let mut all = vec![lead];
        let mut first_is_ahead = started.is_none();
        for node in nodes() {
            let is_first = match &node.started_at {
                Some(at) => Some(at.0) == started,
                None => std::mem::take(&mut first_is_ahead),
            };
            all.push(self.node_part(node, is_first));
        }
        let known = nodes().count();
        for index in known..self.size.nodes {
            let is_first = index == 0;
            all.push(Part::pending(if is_first {
                expected.first.whole()
            } else {
                expected.next.whole()
            }));
        }
        all.iter().fold(Part::default(), |sum, part| Part {
            weight: sum.weight + part.weight,
            done: sum.done + part.done,
            overdue: sum.overdue.max(part.overdue),
        })
    }

    fn node_part(&self, node: &NodeUpgradeStatus, is_first: bool) -> Part {
        let steps = if is_first {
            &self.expected.first
        } else {
            &self.expected.next
        };
        let stage = node.progress().stage();
        if stage >= Stage::Ended {
            let took = node.started_at.as_ref().zip(node.finished_at.as_ref());
            let took = took.map_or(steps.work(), |(began, ended)| self.seconds(began.0, ended.0));
            let settling = node
                .finished_at
                .as_ref()
                .map_or(steps.settle, |at| self.seconds(at.0, self.now));
            return Part {
                weight: took + steps.settle,
                done: took + settling.min(steps.settle),
                overdue: 0.0,
            };
        }
        let (least, most) = steps.bounds(stage);
        let elapsed = node.started_at.as_ref().map_or(0.0, |at| self.seconds(at.0, self.now));
        Part {
            weight: steps.whole(),
            done: elapsed.clamp(least, most),
            overdue: (elapsed - steps.whole()).max(0.0),
        }
    }

    pub(super) fn node(&self, node: &NodeUpgradeStatus) -> NodeForecast {
        let stage = node.progress().stage();
        if stage >= Stage::Ended || has_left(node) || self.reached > Some(Phase::NodeUpgrading) {
            return NodeForecast::Over;
        }
        let nodes = &self.status.node_upgrade_statuses;
        let started = nodes
            .values()
            .filter_map(|node| Some(node.started_at.as_ref()?.0))
            .min();
        let own = node.started_at.as_ref().map(|at| at.0);
        let is_first = own.is_some() && own == started;
        let settle = if is_first {
            self.expected.first.settle
        } else {
            self.expected.next.settle
        };
        let left = (self.node_part(node, is_first).left() - settle).max(0.0);
        if stage.has_started() {
            NodeForecast::Running(seconds_of(left))
        } else {
            NodeForecast::Pending(seconds_of(left))
        }
    }

    pub(super) fn phase(&self, index: usize, part: Part) -> PhaseForecast {
        let (name, active, completed) = PHASES[index];
        let began = self.entered(active).filter(|_| self.reached >= Some(active));
        let ended = self
            .entered(completed)
            .filter(|ended| self.reached >= Some(completed) && began <= Some(*ended));
        PhaseForecast {
            name,
            began,
            ended,
            expected: seconds_of(part.weight),
        }
    }
}
