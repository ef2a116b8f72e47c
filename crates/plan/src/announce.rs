//! The events of phase changes, reported only from the plan's recorded history.
//!
//! Because only the recorded history is reported, an event never describes a lost change, and a manager that
//! stopped between a write and its events catches up when it is back.

use api::{
    Phase, PhaseTransition, UpgradePlan,
    overrides::Override,
    quoted::{LONGEST_NAME, plain, quoted},
    reasons,
};
use jiff::{SignedDuration, Timestamp};

use crate::pipeline;
use rules::{PlanEvent, tries};

/// Older changes are not announced again after a restart: their events may have expired by right.
const FRESH: SignedDuration = SignedDuration::from_mins(10);
/// How many changes back to look. Each change is seen before the next one, so two are enough.
const LOOK_BACK: usize = 2;

/// The events of the newest phase changes, each with its time.
#[must_use]
pub fn phase_events(plan: &UpgradePlan, now: Timestamp) -> Vec<(Timestamp, PlanEvent)> {
    let Some(status) = &plan.status else { return Vec::new() };
    let history = &status.phase_transition_timestamps;
    let recent = history.iter().enumerate().skip(history.len().saturating_sub(LOOK_BACK));
    recent
        .map(|(at, change)| (change.phase_transition_timestamp.0, &history[..at], change))
        .filter(|(moment, ..)| is_fresh(*moment, now))
        .filter_map(|(moment, before, change)| {
            let event = phase_event(plan, before, change)?;
            Some((moment, event.in_attempt(tries::failures(before))))
        })
        .collect()
}

/// The events for options that need a separate permission, each with its time. However old: a manager that was down
/// has not reported them, and one that was not finds them reported. Each has its time, so that the same use at another time is another event.
#[must_use]
pub fn override_events(plan: &UpgradePlan) -> Vec<(Timestamp, PlanEvent)> {
    let event = |used: Override| {
        let what: Vec<String> = used.what.iter().map(|what| plain(what, LONGEST_NAME)).collect();
        let text = format!("User {} uses {} at {}", quoted(&used.by), what.join(", "), used.at);
        (used.at, PlanEvent::warning(reasons::OVERRIDE_USED, text))
    };
    Override::all(plan).into_iter().map(event).collect()
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

/// The events of the newest of these failures, each with its time. For plans that have ended: nothing waits for the VMs of
/// the last nodes, and nothing is decided about such a plan any more.
#[must_use]
pub fn late_restore_events(
    plan: &UpgradePlan,
    failed: &[FailedRestore],
    now: Timestamp,
) -> Vec<(Timestamp, PlanEvent)> {
    let attempt = tries::failed_before(plan.status.as_ref());
    let newest = failed.iter().filter(|failed| is_fresh(failed.at, now));
    let event = |failed: &FailedRestore| restore_failed(&failed.job, &failed.node, &failed.why).in_attempt(attempt);
    newest.map(|failed| (failed.at, event(failed))).collect()
}

/// The events of what checks found before and after the upgrade, each with its time: one for each check.
#[must_use]
pub fn check_events(plan: &UpgradePlan, now: Timestamp) -> Vec<(Timestamp, PlanEvent)> {
    let Some(status) = &plan.status else { return Vec::new() };
    // By the time of the checks: the event stays the same when the try fails later.
    let failures = |at: Timestamp| {
        let history = status.phase_transition_timestamps.iter();
        let before = history.filter(|change| change.phase_transition_timestamp.0 <= at);
        before.filter(|change| tries::is_failure(change)).count()
    };
    let found = [
        (reasons::PREFLIGHT, "preflight", &status.preflight),
        (reasons::POSTFLIGHT, "postflight", &status.postflight),
    ];
    let found = found
        .into_iter()
        .filter_map(|(reason, command, summary)| Some((reason, command, summary.as_ref()?)));
    found
        .filter(|(.., summary)| is_fresh(summary.at.0, now))
        .flat_map(|(reason, command, summary)| {
            let shown = summary.findings.iter().map(|finding| finding.to_string());
            let others = match summary.not_shown() {
                0 => None,
                more => Some(format!(
                    "{more} more checks have found something: see `upgrade-toolkit {command}`"
                )),
            };
            let attempt = failures(summary.at.0);
            let event = move |text: String| (summary.at.0, PlanEvent::warning(reason, text).in_attempt(attempt));
            shown.chain(others).map(event)
        })
        .collect()
}

fn is_fresh(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at) < FRESH
}

/// The event of a phase change; `before` is the history up to it.
fn phase_event(plan: &UpgradePlan, before: &[PhaseTransition], change: &PhaseTransition) -> Option<PlanEvent> {
    let phase: Phase = change.phase.parse().ok()?;
    match phase {
        Phase::Succeeded => Some(PlanEvent::normal(
            reasons::UPGRADE_SUCCEEDED,
            "Upgrade completed successfully",
        )),
        Phase::Failed => {
            let text = match why_failed(plan, change) {
                Some(why) => format!("Upgrade failed: {why}"),
                None => "Upgrade failed".to_owned(),
            };
            Some(PlanEvent::warning(reasons::UPGRADE_FAILED, text))
        }
        // A retry: what the phases before it completed is kept, and not completed again.
        phase if before.last().is_some_and(tries::is_failure) => {
            let (entry, next) = pipeline::find(phase)?;
            let resumed = next.filter(|_| phase == entry.completed).unwrap_or(entry);
            let text = format!("Trying again from phase {}", resumed.name);
            Some(PlanEvent::normal(reasons::PHASE_TRANSITION, text))
        }
        Phase::Initializing | Phase::Initialized => None,
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

/// Why the upgrade failed then. Histories of managers that did not note it leave the condition, which says it of the last
/// failure.
fn why_failed<'a>(plan: &'a UpgradePlan, change: &'a PhaseTransition) -> Option<&'a str> {
    let condition = || {
        plan.condition(reasons::PROGRESSING)
            .map(|condition| condition.message.as_str())
    };
    change
        .message
        .as_deref()
        .or_else(condition)
        .filter(|why| !why.is_empty())
}
