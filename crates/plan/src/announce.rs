//! The events of phase changes, told from the plan's recorded history and nothing else.
//!
//! Because only what is on record is announced, an event never speaks of a change that was lost, and a manager that
//! died between a write and its events catches up when it is back.

use api::{Phase, UpgradePlan, reasons};
use jiff::{SignedDuration, Timestamp};

use crate::{decision::PlanEvent, pipeline};

/// Older changes are not announced again after a restart: their events may have expired by right.
const FRESH: SignedDuration = SignedDuration::from_mins(10);
/// How many changes back to look. Each change is seen before the next one, so two are enough.
const LOOK_BACK: usize = 2;

/// The events of the newest phase changes, each with its moment.
#[must_use]
pub fn phase_events(plan: &UpgradePlan, now: Timestamp) -> Vec<(Timestamp, PlanEvent)> {
    let Some(status) = &plan.status else { return Vec::new() };
    let history = &status.phase_transition_timestamps;
    let recent = &history[history.len().saturating_sub(LOOK_BACK)..];
    recent
        .iter()
        .map(|change| (change.phase_transition_timestamp.0, change.phase.as_str()))
        .filter(|(at, _)| is_fresh(*at, now))
        .filter_map(|(at, phase)| Some((at, phase_event(plan, phase.parse().ok()?)?)))
        .collect()
}

/// VMs that were stopped for a node could not be started again.
#[must_use]
pub fn restore_failed(job: &str, node: &str, why: &str) -> PlanEvent {
    let text = format!(
        "Job harvester-system/{job} could not start every VM of node {node} again ({why}); see its log and start them by \
         hand"
    );
    PlanEvent::warning(reasons::RESTORE_VM_JOB_FAILED, text)
}

/// A Job that should have started the VMs of a node again, and failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRestore {
    /// Its name.
    pub job: String,
    /// The node.
    pub node: String,
    /// Why, in a sentence.
    pub why: String,
    /// When.
    pub at: Timestamp,
}

/// The events of the newest of these failures, each with its moment. For plans that have ended: nothing waits for the VMs of
/// the last nodes, and nothing is decided about such a plan any more.
#[must_use]
pub fn late_restore_events(failed: &[FailedRestore], now: Timestamp) -> Vec<(Timestamp, PlanEvent)> {
    let newest = failed.iter().filter(|failed| is_fresh(failed.at, now));
    newest
        .map(|failed| (failed.at, restore_failed(&failed.job, &failed.node, &failed.why)))
        .collect()
}

fn is_fresh(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at) < FRESH
}

fn phase_event(plan: &UpgradePlan, phase: Phase) -> Option<PlanEvent> {
    match phase {
        Phase::Initializing | Phase::Initialized => None,
        Phase::Succeeded => Some(PlanEvent::normal(
            reasons::UPGRADE_SUCCEEDED,
            "Upgrade completed successfully",
        )),
        Phase::Failed => {
            let why = plan
                .condition(reasons::PROGRESSING)
                .map(|condition| condition.message.as_str());
            let text = match why.filter(|why| !why.is_empty()) {
                Some(why) => format!("Upgrade failed: {why}"),
                None => "Upgrade failed".to_owned(),
            };
            Some(PlanEvent::warning(reasons::UPGRADE_FAILED, text))
        }
        phase => {
            let (entry, _) = pipeline::find(phase)?;
            Some(if phase == entry.active {
                PlanEvent::normal(reasons::PHASE_TRANSITION, format!("Entering phase {}", entry.name))
            } else {
                PlanEvent::normal(reasons::PHASE_COMPLETED, format!("Completed phase {}", entry.name))
            })
        }
    }
}
