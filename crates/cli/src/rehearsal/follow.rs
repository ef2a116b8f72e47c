//! How a person sees an upgrade happen: a line per change, or bars on a terminal.

use std::{collections::BTreeSet, fmt::Write as _, io::Write as _};

use api::{
    Phase, UpgradePlan,
    quoted::{LONGEST_MESSAGE, printable},
    reasons,
};
use jiff::{Timestamp, tz::TimeZone};

use super::bars::Bars;

/// Shows an upgrade.
pub enum View {
    /// A line per change, on standard error or, when nothing else is printed, on standard output.
    Lines {
        /// The plan as it was shown last.
        before: Option<Box<UpgradePlan>>,
        /// Print to standard error.
        to_stderr: bool,
    },
    /// Bars on a terminal.
    Bars(Box<Bars>),
}

impl View {
    /// Shows the plan as it is now.
    pub fn show(&mut self, now: Timestamp, plan: &UpgradePlan) {
        match self {
            Self::Lines { before, to_stderr } => {
                for line in changes(now, before.as_deref(), plan) {
                    print_line(*to_stderr, &line);
                }
                *before = Some(Box::new(plan.clone()));
            }
            Self::Bars(bars) => bars.show(now, plan),
        }
    }

    /// Another plan is shown from now on, or the same one again.
    pub fn begin(&mut self) {
        if let Self::Lines { before, .. } = self {
            *before = None;
        }
    }

    /// Moves the clock on when nothing else happens.
    pub fn tick(&mut self, now: Timestamp) {
        if let Self::Bars(bars) = self {
            bars.tick(now);
        }
    }

    /// Says something in between.
    pub fn say(&self, now: Timestamp, text: &str) {
        let line = format!("{}  {text}", time_of(now));
        match self {
            Self::Lines { to_stderr, .. } => print_line(*to_stderr, &line),
            Self::Bars(bars) => bars.say(&line),
        }
    }

    /// Leaves the terminal as it should be.
    pub fn end(&mut self) {
        if let Self::Bars(bars) = self {
            bars.end();
        }
    }
}

/// Prints a line. A reader that has gone (`| head`) must not end an upgrade half-way.
fn print_line(to_stderr: bool, line: &str) {
    let _ = if to_stderr {
        writeln!(std::io::stderr(), "{line}")
    } else {
        writeln!(std::io::stdout(), "{line}")
    };
}

/// The time of day.
#[must_use]
pub fn time_of(moment: Timestamp) -> String {
    moment.to_zoned(TimeZone::UTC).strftime("%H:%M:%S").to_string()
}

/// What changed between two looks at a plan, a line each.
#[must_use]
pub fn changes(now: Timestamp, before: Option<&UpgradePlan>, after: &UpgradePlan) -> Vec<String> {
    let empty = api::UpgradePlanStatus::default();
    let old = before.and_then(|plan| plan.status.as_ref()).unwrap_or(&empty);
    let new = after.status.as_ref().unwrap_or(&empty);
    let mut lines = Vec::new();
    for change in new
        .phase_transition_timestamps
        .iter()
        .skip(old.phase_transition_timestamps.len())
    {
        lines.push(format!(
            "{}  phase {}",
            time_of(change.phase_transition_timestamp.0),
            change.phase
        ));
    }
    for (name, node) in &new.node_upgrade_statuses {
        let known = old.node_upgrade_statuses.get(name);
        if known.map(|known| known.state()) != Some(node.state()) {
            let mut line = format!("{}  node {name}: {}", time_of(now), node.state().unwrap_or("?"));
            if let Some(message) = &node.message {
                let _ = write!(line, " ({message})");
            }
            lines.push(line);
        }
    }
    let known = waits(old);
    for wait in waits(new).difference(&known) {
        lines.push(format!("{}    {wait}", time_of(now)));
    }
    let degraded = |plan: Option<&UpgradePlan>| {
        let condition = plan.and_then(|plan| plan.condition(reasons::DEGRADED)).cloned();
        condition
            .filter(|condition| condition.status == "True")
            .map(|condition| condition.message)
    };
    if let Some(message) = degraded(Some(after)).filter(|message| degraded(before).as_ref() != Some(message)) {
        lines.push(format!("{}    degraded: {message}", time_of(now)));
    }
    if after.phase() == Some(Phase::Failed) && before.and_then(UpgradePlan::phase) != Some(Phase::Failed) {
        let why = after
            .condition(reasons::PROGRESSING)
            .map(|condition| condition.message.clone());
        lines.push(format!("{}  failed: {}", time_of(now), why.unwrap_or_default()));
    }
    // Messages have text of others in them.
    lines.iter().map(|line| printable(line, 4 * LONGEST_MESSAGE)).collect()
}

/// The waits, each once.
pub(super) fn waits(status: &api::UpgradePlanStatus) -> BTreeSet<String> {
    let messages = status
        .waiting_for
        .iter()
        .map(|wait| wait.message.as_deref().unwrap_or(&wait.what));
    messages
        .map(|message| match message.strip_prefix("waiting for ") {
            Some(_) => message.to_owned(),
            None => format!("waiting: {message}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "json! makes values")]
    fn plan(status: serde_json::Value) -> UpgradePlan {
        serde_json::from_value(json!({
            "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
            "metadata": {"name": "up"}, "spec": {"version": "v1.8.0"}, "status": status
        }))
        .unwrap()
    }

    #[test]
    fn each_change_is_one_line_and_no_change_is_none() {
        let now = "2026-03-13T04:00:00Z".parse().unwrap();
        let first = plan(json!({
            "currentPhase": "NodeUpgrading",
            "phaseTransitionTimestamps": [{"phase": "NodeUpgrading", "phaseTransitionTimestamp": "2026-03-13T03:59:00Z"}],
            "nodeUpgradeStatuses": {"node-1": {"state": "ImagePreloaded"}},
        }));
        let second = plan(json!({
            "currentPhase": "NodeUpgrading",
            "phaseTransitionTimestamps": [{"phase": "NodeUpgrading", "phaseTransitionTimestamp": "2026-03-13T03:59:00Z"}],
            "nodeUpgradeStatuses": {"node-1": {"state": "UpgradePaused", "message": "paused"}},
            "waitingFor": [{"what": "Paused", "message": "node upgrade paused: node-1", "since": "2026-03-13T04:00:00Z"}],
        }));
        assert_eq!(
            changes(now, None, &first),
            ["03:59:00  phase NodeUpgrading", "04:00:00  node node-1: ImagePreloaded"]
        );
        assert_eq!(
            changes(now, Some(&first), &second),
            [
                "04:00:00  node node-1: UpgradePaused (paused)",
                "04:00:00    waiting: node upgrade paused: node-1"
            ]
        );
        assert_eq!(changes(now, Some(&second), &second), [""; 0]);
    }

    #[test]
    fn waits_that_read_the_same_are_reported_once_and_not_twice_as_waiting() {
        let now = "2026-03-13T04:00:00Z".parse().unwrap();
        let wait =
            |what: &str, message: &str| json!({"what": what, "message": message, "since": "2026-03-13T04:00:00Z"});
        let after = plan(json!({"waitingFor": [
            wait("Removal", "objects are being removed"),
            wait("Other", "objects are being removed"),
            wait("Plan", "waiting for the plan"),
        ]}));
        assert_eq!(
            changes(now, None, &after),
            [
                "04:00:00    waiting for the plan",
                "04:00:00    waiting: objects are being removed"
            ]
        );
    }
}
