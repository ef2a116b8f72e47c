//! How far an upgrade is, and when it is expected to end. Pure: the time comes in, and the same input gives the same answer.
//!
//! Every part of an upgrade has a weight: what it took, or what it is expected to take ([`crate::estimate`]). The percent is the
//! share of what is done; the end is now plus what is left. What is recorded never decreases.

mod walk;

use std::collections::BTreeMap;

use api::{Phase, UpgradePlan, UpgradePlanSpec, UpgradePlanStatus, UpgradeProgress, Wait};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use self::walk::Walk;
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
