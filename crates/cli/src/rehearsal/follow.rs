//! How a person sees an upgrade happen: a line per change, or bars on a terminal.

use std::{collections::BTreeMap, fmt::Write as _};

use api::{NodeState, Phase, UpgradePlan, reasons};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::{Timestamp, tz::TimeZone};

/// More node bars than this do not fit a terminal; the others share one.
const NODE_BARS: usize = 12;
/// Steps of a plan: every phase but Failed.
const PHASES: u64 = 17;
/// Steps of a node.
const NODE_STEPS: u64 = 10;

/// Shows an upgrade.
pub enum View {
    /// A line per change, on standard error or, when nothing else is printed, on standard output.
    Lines {
        /// The plan as it was shown last.
        before: Option<UpgradePlan>,
        /// Print to standard error.
        to_stderr: bool,
    },
    /// Bars on a terminal.
    Bars(Box<Bars>),
}

impl View {
    /// Shows the plan as it is now.
    #[allow(
        clippy::print_stdout,
        clippy::print_stderr,
        reason = "this is what the user asked to see"
    )]
    pub fn show(&mut self, now: Timestamp, plan: &UpgradePlan) {
        match self {
            Self::Lines { before, to_stderr } => {
                for line in changes(now, before.as_ref(), plan) {
                    if *to_stderr {
                        eprintln!("{line}");
                    } else {
                        println!("{line}");
                    }
                }
                *before = Some(plan.clone());
            }
            Self::Bars(bars) => bars.show(now, plan),
        }
    }

    /// Moves the clock on when nothing else happens.
    pub fn tick(&self, now: Timestamp) {
        if let Self::Bars(bars) = self {
            bars.tick(now);
        }
    }

    /// Says something in between.
    #[allow(
        clippy::print_stdout,
        clippy::print_stderr,
        reason = "this is what the user asked to see"
    )]
    pub fn say(&self, now: Timestamp, text: &str) {
        let line = format!("{}  {text}", time_of(now));
        match self {
            Self::Lines { to_stderr: true, .. } => eprintln!("{line}"),
            Self::Lines { to_stderr: false, .. } => println!("{line}"),
            Self::Bars(bars) => {
                // A terminal that is gone has nobody to tell.
                let _ = bars.all.println(line);
            }
        }
    }

    /// Leaves the terminal as it should be.
    pub fn end(&self) {
        if let Self::Bars(bars) = self {
            bars.end();
        }
    }
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
        if known.map(|known| &known.state) != Some(&node.state) {
            let mut line = format!(
                "{}  node {name}: {}",
                time_of(now),
                node.state.as_deref().unwrap_or("?")
            );
            if let Some(message) = &node.message {
                let _ = write!(line, " ({message})");
            }
            lines.push(line);
        }
    }
    let known: Vec<_> = old.waiting_for.iter().map(|wait| &wait.message).collect();
    for wait in new.waiting_for.iter().filter(|wait| !known.contains(&&wait.message)) {
        let message = wait.message.as_deref().unwrap_or(&wait.what);
        lines.push(format!("{}    waiting: {message}", time_of(now)));
    }
    let degraded = |plan: Option<&UpgradePlan>| {
        let condition = plan.and_then(|plan| plan.condition(reasons::DEGRADED)).cloned();
        condition
            .filter(|condition| condition.status == "True")
            .map(|condition| condition.message)
    };
    if let Some(trouble) = degraded(Some(after)).filter(|trouble| degraded(before).as_ref() != Some(trouble)) {
        lines.push(format!("{}    trouble: {trouble}", time_of(now)));
    }
    if after.phase() == Some(Phase::Failed) && before.and_then(UpgradePlan::phase) != Some(Phase::Failed) {
        let why = after
            .condition(reasons::PROGRESSING)
            .map(|condition| condition.message.clone());
        lines.push(format!("{}  failed: {}", time_of(now), why.unwrap_or_default()));
    }
    lines
}

/// Bars: one for the plan, one per node, a line for what is waited for.
pub struct Bars {
    all: MultiProgress,
    plan: ProgressBar,
    waiting: ProgressBar,
    nodes: BTreeMap<String, ProgressBar>,
    others: Option<ProgressBar>,
}

impl Bars {
    /// Bars on standard error, so that standard output stays for results.
    #[must_use]
    pub fn new() -> Self {
        Self::on(ProgressDrawTarget::stderr())
    }

    fn on(target: ProgressDrawTarget) -> Self {
        let all = MultiProgress::with_draw_target(target);
        let plan =
            all.add(ProgressBar::new(PHASES).with_style(style("{prefix}  {bar:32.green/dim} {pos:>2}/{len}  {msg}")));
        let waiting = all.add(ProgressBar::new(1).with_style(style("          {wide_msg:.dim}")));
        Self {
            all,
            plan,
            waiting,
            nodes: BTreeMap::new(),
            others: None,
        }
    }

    fn show(&mut self, now: Timestamp, plan: &UpgradePlan) {
        let Some(status) = &plan.status else { return };
        let phase = status.current_phase.clone().unwrap_or_default();
        self.tick(now);
        self.plan.set_position(status.phase_transition_timestamps.len() as u64);
        self.plan.set_message(phase);
        let waits: Vec<_> = status
            .waiting_for
            .iter()
            .filter_map(|wait| wait.message.as_deref())
            .collect();
        self.waiting.set_message(waits.join("; "));
        let mut hidden = (0, 0);
        for (name, node) in &status.node_upgrade_statuses {
            let state = node.state.as_deref().and_then(NodeState::parse);
            let step = state.map_or(0, |state| u64::from(plan::node::ordinal(state)) + 1);
            if self.nodes.contains_key(name) || self.nodes.len() < NODE_BARS {
                let bar = self
                    .nodes
                    .entry(name.clone())
                    .or_insert_with(|| node_bar(&self.all, name));
                bar.set_position(step);
                bar.set_message(node.state.clone().unwrap_or_default());
            } else {
                hidden.0 += 1;
                hidden.1 += step;
            }
        }
        if hidden.0 > 0 {
            let name = format!("{} more", hidden.0);
            let bar = self.others.get_or_insert_with(|| node_bar(&self.all, &name));
            bar.set_length(hidden.0 * NODE_STEPS);
            bar.set_position(hidden.1);
        }
    }

    fn tick(&self, now: Timestamp) {
        self.plan.set_prefix(time_of(now));
    }

    fn end(&self) {
        self.waiting.finish_and_clear();
        for bar in self.nodes.values().chain(&self.others).chain([&self.plan]) {
            bar.abandon();
        }
    }
}

impl Default for Bars {
    fn default() -> Self {
        Self::new()
    }
}

fn node_bar(all: &MultiProgress, name: &str) -> ProgressBar {
    let bar =
        ProgressBar::new(NODE_STEPS).with_style(style("          {bar:32.cyan/dim} {pos:>2}/{len}  {prefix}: {msg}"));
    bar.set_prefix(name.to_owned());
    all.add(bar)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━━─")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            "nodeUpgradeStatuses": {"node-1": {"state": "UpgradePaused", "message": "held"}},
            "waitingFor": [{"what": "Paused", "message": "node upgrade paused: node-1", "since": "2026-03-13T04:00:00Z"}],
        }));
        assert_eq!(
            changes(now, None, &first),
            ["03:59:00  phase NodeUpgrading", "04:00:00  node node-1: ImagePreloaded"]
        );
        assert_eq!(
            changes(now, Some(&first), &second),
            [
                "04:00:00  node node-1: UpgradePaused (held)",
                "04:00:00    waiting: node upgrade paused: node-1"
            ]
        );
        assert_eq!(changes(now, Some(&second), &second), [""; 0]);
    }

    #[test]
    fn bars_follow_the_plan_without_a_terminal_too() {
        let mut bars = Bars::on(ProgressDrawTarget::hidden());
        let nodes: serde_json::Map<_, _> = (0..30)
            .map(|i| (format!("node-{i:02}"), json!({"state": "ImageCleaned"})))
            .collect();
        bars.show(
            "2026-03-13T04:00:00Z".parse().unwrap(),
            &plan(json!({"nodeUpgradeStatuses": nodes})),
        );
        assert_eq!(bars.nodes.len(), NODE_BARS);
        assert_eq!(bars.others.as_ref().map(ProgressBar::position), Some(18 * NODE_STEPS));
    }
}
