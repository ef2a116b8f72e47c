//! What metrics show of a plan. Pure: a plan and the time in, numbers and labels out.

use std::collections::BTreeSet;

use api::{Phase, UpgradePlan, reasons};
use jiff::Timestamp;
use kube::ResourceExt;
use plan::pipeline;

/// What gauges show of one plan.
pub(super) struct PlanMetrics {
    pub(super) name: String,
    pub(super) phase: String,
    /// Nodes and their states.
    pub(super) nodes: Vec<(String, String)>,
    /// What is waited for, the object, and for how many seconds.
    pub(super) waiting: Vec<(String, String, f64)>,
    pub(super) stalled: bool,
    /// Known situations that explain it: id and severity.
    pub(super) insights: BTreeSet<(String, String)>,
}

impl PlanMetrics {
    pub(super) fn of(plan: &UpgradePlan, now: Timestamp) -> Self {
        let status = plan.status.clone().unwrap_or_default();
        let nodes = status.node_upgrade_statuses.into_iter();
        let waiting = status.waiting_for.into_iter();
        Self {
            name: plan.name_any(),
            phase: status.current_phase.unwrap_or_default(),
            nodes: nodes
                .filter_map(|(name, node)| Some((name, node.state()?.to_owned())))
                .collect(),
            waiting: waiting
                .map(|wait| (wait.what, wait.object.unwrap_or_default(), seconds(wait.since.0, now)))
                .collect(),
            insights: status
                .insights
                .into_iter()
                .map(|insight| (insight.id, insight.severity))
                .collect(),
            stalled: plan
                .condition(reasons::DEGRADED)
                .is_some_and(|condition| condition.status == "True" && condition.reason == reasons::STALLED),
        }
    }
}

/// Seconds between two times; none when the second is earlier.
fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}

/// Phases that were completed since `counted` changes of phase, and how long each took.
pub(super) fn phases_since(plan: &UpgradePlan, counted: &mut usize) -> Vec<(String, f64)> {
    let changes = plan
        .status
        .as_ref()
        .map(|status| status.phase_transition_timestamps.as_slice());
    let changes = changes.unwrap_or_default();
    let from = std::mem::replace(counted, changes.len()).min(changes.len());
    let completed = |before: &str, after: &str| {
        let (before, after): (Phase, Phase) = (before.parse().ok()?, after.parse().ok()?);
        pipeline::find(before).filter(|(entry, _)| entry.active == before && entry.completed == after)
    };
    let pairs = changes.windows(2).skip(from.saturating_sub(1));
    pairs
        .filter_map(|pair| {
            let [before, after] = pair else { return None };
            let (entry, _) = completed(&before.phase, &after.phase)?;
            let took = seconds(before.phase_transition_timestamp.0, after.phase_transition_timestamp.0);
            Some((entry.name.to_owned(), took))
        })
        .collect()
}

/// How long nodes took that were finished and are not `counted` yet.
pub(super) fn nodes_since(plan: &UpgradePlan, counted: &mut BTreeSet<String>) -> Vec<f64> {
    let nodes = plan.status.iter().flat_map(|status| &status.node_upgrade_statuses);
    nodes
        .filter_map(|(name, node)| {
            let took = seconds(node.started_at.as_ref()?.0, node.finished_at.as_ref()?.0);
            counted.insert(name.clone()).then_some(took)
        })
        .collect()
}
