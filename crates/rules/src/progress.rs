//! How far an upgrade is, and when it is expected to end. Pure: the time comes in, and the same input gives the same answer.
//!
//! Every part of an upgrade has a weight: what it took, or what it is expected to take ([`crate::estimate`]). The percent is the
//! share of what is done; the end is now plus what is left. What is recorded never decreases.

use std::collections::BTreeMap;

use api::{
    NodeUpgradeStatus, Phase, UpgradePlan, UpgradePlanSpec, UpgradePlanStatus, UpgradeProgress, Wait,
    node_progress::Stage,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    estimate::{Expected, Size, has_left},
    step,
};

/// The phases: their name in events, their value while they run, their value when they have run.
pub const PHASES: [(&str, Phase, Phase); 8] = [
    ("Initialize", Phase::Initializing, Phase::Initialized),
    ("ISODownload", Phase::ISODownloading, Phase::ISODownloaded),
    ("RepoCreate", Phase::RepoCreating, Phase::RepoCreated),
    ("MetadataPopulate", Phase::MetadataPopulating, Phase::MetadataPopulated),
    ("ImagePreload", Phase::ImagePreloading, Phase::ImagePreloaded),
    ("ClusterUpgrade", Phase::ClusterUpgrading, Phase::ClusterUpgraded),
    ("NodeUpgrade", Phase::NodeUpgrading, Phase::NodeUpgraded),
    ("ImageCleanup", Phase::CleaningUp, Phase::CleanedUp),
];

/// What is left, at least, of a part that takes longer than expected; as a share of it.
const TAIL: f64 = 0.1;
/// Seconds between a phase that has run and the next one.
const HANDOVER: f64 = 5.0;

/// When something is expected to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The most likely time.
    pub likely: Timestamp,
    /// The earliest that is likely.
    pub earliest: Timestamp,
    /// The latest that is likely.
    pub latest: Timestamp,
}

/// How far a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeForecast {
    /// Its upgrade has not begun; it takes about so long.
    Pending(SignedDuration),
    /// Its upgrade has begun; about so much is left.
    Running(SignedDuration),
    /// Nothing is left of its upgrade, or it has left the cluster.
    Over,
}

/// A phase with its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseForecast {
    /// Its name in events.
    pub name: &'static str,
    /// When it began.
    pub began: Option<Timestamp>,
    /// When it had run.
    pub ended: Option<Timestamp>,
    /// How long it takes: as it did, or as is expected.
    pub expected: SignedDuration,
}

/// How far an upgrade is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// How much is done; 100 only when the upgrade has succeeded.
    pub percent: u8,
    /// What is being done, in words.
    pub step: String,
    /// When it is expected to end; nothing when it has ended, has not begun, or waits for another upgrade.
    pub end: Option<End>,
    /// All phases.
    pub phases: Vec<PhaseForecast>,
    /// Every node.
    pub nodes: BTreeMap<String, NodeForecast>,
}

impl From<Forecast> for UpgradeProgress {
    fn from(forecast: Forecast) -> Self {
        let at = |time: fn(&End) -> Timestamp| forecast.end.as_ref().map(time).map(Time);
        Self {
            percent: i32::from(forecast.percent),
            estimated_end: at(|end| end.likely),
            estimated_end_earliest: at(|end| end.earliest),
            estimated_end_latest: at(|end| end.latest),
            step: forecast.step,
        }
    }
}

/// A part of an upgrade, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    weight: f64,
    done: f64,
    /// How much longer it takes already than was expected.
    overdue: f64,
}

impl Part {
    fn done(weight: f64) -> Self {
        let weight = weight.max(0.0);
        Self {
            weight,
            done: weight,
            overdue: 0.0,
        }
    }

    fn pending(weight: f64) -> Self {
        Self {
            weight,
            ..Self::default()
        }
    }

    /// It runs for so long. What is known of it says that it is between two shares.
    fn running(weight: f64, elapsed: f64, (least, most): (f64, f64)) -> Self {
        let highest = (most * weight).min((1.0 - TAIL) * weight).max(least * weight);
        Self {
            weight,
            done: elapsed.clamp(least * weight, highest),
            overdue: (elapsed - weight).max(0.0),
        }
    }

    fn left(&self) -> f64 {
        (self.weight - self.done).max(0.0)
    }
}

/// How far the upgrade of a plan is at this time, in a cluster of this size.
#[must_use]
pub fn forecast(now: Timestamp, plan: &UpgradePlan, size: &Size) -> Forecast {
    match &plan.status {
        Some(status) => of_status(now, &plan.spec, status, size),
        None => of_status(now, &plan.spec, &UpgradePlanStatus::default(), size),
    }
}

/// The same of a status that the plan does not have yet.
#[must_use]
pub fn of_status(now: Timestamp, spec: &UpgradePlanSpec, status: &UpgradePlanStatus, size: &Size) -> Forecast {
    let recorded = status
        .progress
        .as_ref()
        .map_or(0, |progress| progress.percent.clamp(0, 100));
    let recorded = u8::try_from(recorded).unwrap_or_default();
    let left = status
        .node_upgrade_statuses
        .values()
        .filter(|node| has_left(node))
        .count();
    let known = status.node_upgrade_statuses.len() - left;
    let size = Size {
        nodes: if known > 0 { known } else { size.nodes },
        ..*size
    };
    let expected = Expected::of(spec, &status.node_upgrade_statuses, &size);
    let phase = status.current_phase.as_deref().and_then(|phase| phase.parse().ok());
    let reached = reached(status, phase);
    // Of an upgrade that has ended, no time passes.
    let now = match phase {
        Some(Phase::Succeeded | Phase::Failed) => last_change(status).unwrap_or(now),
        _ => now,
    };
    let walk = Walk {
        now,
        status,
        size: &size,
        expected: &expected,
        reached,
    };
    let parts: Vec<Part> = (0..PHASES.len()).map(|index| walk.part(index)).collect();
    let (weight, done) = parts.iter().fold((0.0, 0.0), |(weight, done), part| {
        (weight + part.weight, done + part.done)
    });
    let percent = if weight > 0.0 {
        (100.0 * done / weight).floor().clamp(0.0, 99.0)
    } else {
        0.0
    };
    let percent = match phase {
        Some(Phase::Succeeded) => 100,
        // A retry can begin before what was reached: what is recorded stays.
        _ => (percent as u8).max(recorded).min(99),
    };
    let waits_for_another = status
        .waiting_for
        .iter()
        .any(|wait| wait.what == Wait::OlderUpgrade.as_str());
    let runs = phase.is_some_and(|phase| !phase.is_terminal()) && !waits_for_another;
    let left: f64 = parts.iter().map(Part::left).sum();
    let overdue = parts.iter().map(|part| part.overdue).fold(0.0, f64::max);
    Forecast {
        percent,
        step: step::of(status, phase),
        end: runs.then(|| end(now, left, overdue, &expected)),
        phases: (0..PHASES.len()).map(|index| walk.phase(index, parts[index])).collect(),
        nodes: status
            .node_upgrade_statuses
            .iter()
            .map(|(name, node)| (name.clone(), walk.node(node)))
            .collect(),
    }
}

/// The end with its spread. Before the first node is done, nothing says how fast this cluster is.
fn end(now: Timestamp, left: f64, overdue: f64, expected: &Expected) -> End {
    let (less, more) = match expected.range {
        None => (0.35, 0.6),
        Some((least, most)) => ((1.0 - least).clamp(0.12, 0.6), (most - 1.0).clamp(0.25, 2.0)),
    };
    let after = |seconds: f64| now.saturating_add(seconds_of(seconds)).unwrap_or(Timestamp::MAX);
    End {
        likely: after(left),
        earliest: after(left * (1.0 - less)),
        latest: after(left * (1.0 + more) + overdue),
    }
}

fn seconds_of(seconds: f64) -> SignedDuration {
    // A century is more than any upgrade takes, and far from what does not fit.
    SignedDuration::from_secs(seconds.clamp(0.0, 3e9).round() as i64)
}

/// The last phase that the upgrade was in before it failed, if it has.
fn reached(status: &UpgradePlanStatus, phase: Option<Phase>) -> Option<Phase> {
    if phase != Some(Phase::Failed) {
        return phase;
    }
    let history = status.phase_transition_timestamps.iter().rev();
    history
        .filter_map(|change| change.phase.parse().ok())
        .find(|phase: &Phase| !phase.is_terminal())
}

fn last_change(status: &UpgradePlanStatus) -> Option<Timestamp> {
    status
        .phase_transition_timestamps
        .last()
        .map(|change| change.phase_transition_timestamp.0)
}

struct Walk<'a> {
    now: Timestamp,
    status: &'a UpgradePlanStatus,
    size: &'a Size,
    expected: &'a Expected,
    reached: Option<Phase>,
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

    fn part(&self, index: usize) -> Part {
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

    fn node(&self, node: &NodeUpgradeStatus) -> NodeForecast {
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

    fn phase(&self, index: usize, part: Part) -> PhaseForecast {
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
