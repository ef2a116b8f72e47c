//! After the end of an upgrade: once what it started has settled, the cluster is compared with what was there before, and the
//! result is written once. The plan has ended by then: nothing here holds it.

use std::{collections::BTreeMap, time::Duration};

use api::{CheckSummary, Phase, UpgradePlan};
use jiff::Timestamp;

use crate::{Decision, decide::is_settled};

/// VMs that were started again need a moment until they run.
const SETTLE: Duration = Duration::from_mins(2);
/// The longest time that Jobs which start VMs again, and volumes whose replicas are being rebuilt, are waited for.
const PATIENCE: Duration = Duration::from_mins(30);
/// Later than this a comparison would show what users have done since.
const TOO_LATE: Duration = Duration::from_hours(24);

/// What is known of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Comparison {
    /// Nothing was compared.
    #[default]
    NotYet,
    /// It is under way.
    UnderWay,
    /// The record cannot be read.
    Impossible,
    /// What is worse than before.
    Made(CheckSummary),
}

/// What is seen after the end of an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aftermath {
    /// What was there before is stored.
    pub recorded: bool,
    /// VMs are still being started again, or replicas of volumes rebuilt.
    pub unsettled: bool,
    /// When the last Job ended that started VMs again.
    pub restored_at: Option<Timestamp>,
    /// Another upgrade runs, or has ended later: the difference would be its own.
    pub overtaken: bool,
    /// The comparison.
    pub comparison: Comparison,
}

/// What to do about a plan that has ended.
#[derive(Clone, Debug, PartialEq)]
pub enum LookBack {
    /// Nothing, for ever or until something changes.
    Nothing,
    /// Look again at this time.
    Wait(Timestamp),
    /// Compare.
    Compare,
    /// Write down the result.
    Report(Box<Decision>),
}

/// Decides about a plan that has ended.
#[must_use]
pub fn decide(now: Timestamp, plan: &UpgradePlan, seen: &Aftermath) -> LookBack {
    let Some(ended_at) = to_be_compared(plan).filter(|_| seen.recorded && !seen.overtaken) else {
        return LookBack::Nothing;
    };
    let after = |from: Timestamp, time: Duration| from.saturating_add(time).unwrap_or(Timestamp::MAX);
    if after(ended_at, TOO_LATE) <= now {
        return LookBack::Nothing;
    }
    match &seen.comparison {
        Comparison::UnderWay | Comparison::Impossible => return LookBack::Nothing,
        Comparison::Made(found) => return LookBack::Report(Box::new(report(plan, found))),
        Comparison::NotYet => {}
    }
    let last = seen.restored_at.unwrap_or(ended_at).max(ended_at);
    let latest = after(ended_at, PATIENCE);
    let due = match seen.unsettled {
        true => latest,
        false => after(last, SETTLE).min(latest),
    };
    if now < due {
        LookBack::Wait(due)
    } else {
        LookBack::Compare
    }
}

/// When a plan ended that is to be compared.
#[must_use]
pub fn to_be_compared(plan: &UpgradePlan) -> Option<Timestamp> {
    let status = plan.status.as_ref()?;
    let is_gone = plan.metadata.deletion_timestamp.is_some();
    if is_gone || status.postflight.is_some() || !is_settled(plan) {
        return None;
    }
    ended_at(plan)
}

/// When a plan ended, if it has.
#[must_use]
pub fn ended_at(plan: &UpgradePlan) -> Option<Timestamp> {
    let history = plan.status.as_ref()?.phase_transition_timestamps.last()?;
    let is_end = history.phase.parse::<Phase>().is_ok_and(Phase::is_terminal);
    is_end.then_some(history.phase_transition_timestamp.0)
}

/// The plan as it has ended, with the result.
fn report(plan: &UpgradePlan, found: &CheckSummary) -> Decision {
    let mut status = plan.status.clone().unwrap_or_default();
    status.postflight = Some(found.clone());
    Decision {
        annotations: BTreeMap::new(),
        finalizer: false,
        status,
        events: Vec::new(),
        actions: Vec::new(),
        needs: Vec::new(),
        wake_at: None,
    }
}
