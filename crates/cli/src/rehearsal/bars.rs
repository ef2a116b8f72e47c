//! An upgrade on a terminal: the time, what is waited for, a bar per phase and a bar per node.

use std::collections::BTreeMap;

use api::{Phase, UpgradePlan, UpgradePlanStatus};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use plan::{
    node::Stage,
    pipeline::{Entry, PIPELINE},
};

use super::{
    follow::{time_of, waits},
    summary::duration,
};

/// More node bars than this do not fit a terminal of 30 lines; the others share one.
const NODE_BARS: usize = 12;
/// Steps of a node: the groups of its states.
const NODE_STEPS: u64 = Stage::Cleaned.index() as u64 + 1;
/// Parts of a phase's bar. Only the nodes of a phase show its progress.
const PHASE_PARTS: u64 = 60;

/// Bars on a terminal.
pub struct Bars {
    all: MultiProgress,
    headline: ProgressBar,
    waiting: ProgressBar,
    phases: Vec<PhaseBar>,
    nodes: BTreeMap<String, ProgressBar>,
    others: Option<ProgressBar>,
}

struct PhaseBar {
    entry: &'static Entry,
    bar: ProgressBar,
    /// Set while the phase runs.
    since: Option<Timestamp>,
}

impl Bars {
    /// Bars on standard error, so that standard output stays for results.
    #[must_use]
    pub fn new() -> Self {
        Self::on(ProgressDrawTarget::stderr())
    }

    fn on(target: ProgressDrawTarget) -> Self {
        let all = MultiProgress::with_draw_target(target);
        let headline = all.add(ProgressBar::new(1).with_style(style("{prefix:.bold}  {wide_msg}")));
        let waiting = all.add(ProgressBar::new(1).with_style(style("          {wide_msg:.dim}")));
        let phases = PIPELINE.iter().map(|entry| PhaseBar {
            entry,
            bar: bar(&all, entry.name, "green", PHASE_PARTS),
            since: None,
        });
        let phases = phases.collect();
        Self {
            all,
            headline,
            waiting,
            phases,
            nodes: BTreeMap::new(),
            others: None,
        }
    }

    /// Shows the plan as it is now.
    pub(super) fn show(&mut self, now: Timestamp, plan: &UpgradePlan) {
        let Some(status) = &plan.status else { return };
        let name = plan.metadata.name.as_deref().unwrap_or_default();
        let phase = status.current_phase.as_deref().unwrap_or_default();
        self.headline.set_message(format!("{name}  {phase}"));
        let waits: Vec<String> = waits(status).into_iter().collect();
        self.waiting.set_message(waits.join("; "));
        for phase in &mut self.phases {
            phase.show(status);
        }
        self.show_nodes(status);
        self.tick(now);
    }

    fn show_nodes(&mut self, status: &UpgradePlanStatus) {
        let (mut hidden, mut hidden_steps) = (0, 0);
        for (name, node) in &status.node_upgrade_statuses {
            let step = stage(node).map_or(0, |stage| u64::from(stage.index()) + 1);
            if self.nodes.contains_key(name) || self.nodes.len() < NODE_BARS {
                let bar = self
                    .nodes
                    .entry(name.clone())
                    .or_insert_with(|| bar(&self.all, name, "cyan", NODE_STEPS));
                bar.set_position(step);
                bar.set_message(node.state().unwrap_or_default().to_owned());
            } else {
                hidden += 1;
                hidden_steps += step;
            }
        }
        if hidden > 0 {
            let others = self
                .others
                .get_or_insert_with(|| bar(&self.all, "more nodes", "cyan", NODE_STEPS));
            others.set_length(hidden * NODE_STEPS);
            others.set_position(hidden_steps);
            others.set_message(hidden.to_string());
        }
    }

    /// Moves the clock on when nothing else happens.
    pub(super) fn tick(&self, now: Timestamp) {
        self.headline.set_prefix(time_of(now));
        for phase in &self.phases {
            if let Some(since) = phase.since {
                phase.bar.set_message(duration(now.duration_since(since)));
            }
        }
    }

    /// Says something above the bars.
    pub(super) fn say(&self, line: &str) {
        // A closed terminal needs no output.
        let _ = self.all.println(line);
    }

    /// Leaves the bars as they are and the terminal to others.
    pub(super) fn end(&self) {
        self.waiting.finish_and_clear();
        let phases = self.phases.iter().map(|phase| &phase.bar);
        for bar in phases
            .chain(self.nodes.values())
            .chain(&self.others)
            .chain([&self.headline])
        {
            bar.abandon();
        }
    }
}

impl Default for Bars {
    fn default() -> Self {
        Self::new()
    }
}

impl PhaseBar {
    fn show(&mut self, status: &UpgradePlanStatus) {
        let at = |phase: Phase| {
            let mut history = status.phase_transition_timestamps.iter();
            let change = history.find(|change| change.phase == phase.as_str());
            change.map(|change| change.phase_transition_timestamp.0)
        };
        let Some(begin) = at(self.entry.active) else { return };
        if let Some(end) = at(self.entry.completed) {
            self.since = None;
            self.bar.set_position(PHASE_PARTS);
            self.bar.set_message(duration(end.duration_since(begin)));
        } else if let Some(end) = at(Phase::Failed) {
            self.since = None;
            self.bar
                .set_message(format!("failed after {}", duration(end.duration_since(begin))));
        } else {
            self.since = Some(begin);
            self.bar.set_position(parts(self.entry.active, status));
        }
    }
}

/// How far a running phase is, as far as its nodes show.
fn parts(phase: Phase, status: &UpgradePlanStatus) -> u64 {
    // The groups of node states that the phase begins and ends with.
    let (first, last) = match phase {
        Phase::ImagePreloading => (Stage::Preloading, Stage::Preloaded),
        Phase::NodeUpgrading => (Stage::Preloaded, Stage::Ended),
        Phase::CleaningUp => (Stage::Ended, Stage::Cleaned),
        _ => return 0,
    };
    let nodes = &status.node_upgrade_statuses;
    let done: u64 = nodes
        .values()
        .map(|node| steps(first, stage(node).unwrap_or_default().clamp(first, last)))
        .sum();
    let all = steps(first, last) * nodes.len() as u64;
    (PHASE_PARTS * done).checked_div(all).unwrap_or_default()
}

/// How many steps a node takes from one group of states to another.
fn steps(from: Stage, to: Stage) -> u64 {
    u64::from(to.index().saturating_sub(from.index()))
}

fn stage(node: &api::NodeUpgradeStatus) -> Option<Stage> {
    node.progress().state().map(Stage::of)
}

fn bar(all: &MultiProgress, name: &str, color: &str, length: u64) -> ProgressBar {
    let template = format!("          {{prefix:<20}} {{bar:32.{color}/dim}}  {{msg}}");
    let bar = all.add(ProgressBar::new(length).with_style(style(&template)));
    bar.set_prefix(name.to_owned());
    bar
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

    #[allow(clippy::needless_pass_by_value, reason = "json! makes values")]
    fn plan(status: serde_json::Value) -> UpgradePlan {
        serde_json::from_value(json!({
            "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
            "metadata": {"name": "up"}, "spec": {"version": "v1.8.0"}, "status": status
        }))
        .unwrap()
    }

    fn now() -> Timestamp {
        "2026-03-13T04:00:00Z".parse().unwrap()
    }

    #[test]
    fn nodes_that_do_not_fit_share_a_bar() {
        let mut bars = Bars::on(ProgressDrawTarget::hidden());
        let nodes: serde_json::Map<_, _> = (0..30)
            .map(|i| (format!("node-{i:02}"), json!({"state": "ImageCleaned"})))
            .collect();
        bars.show(now(), &plan(json!({"nodeUpgradeStatuses": nodes})));
        assert_eq!(bars.nodes.len(), NODE_BARS);
        assert_eq!(bars.others.as_ref().map(ProgressBar::position), Some(18 * NODE_STEPS));
    }

    #[test]
    fn a_phase_fills_up_with_its_nodes_and_reports_how_long_it_took() {
        let mut bars = Bars::on(ProgressDrawTarget::hidden());
        let at = |phase: &str, time: &str| json!({"phase": phase, "phaseTransitionTimestamp": time});
        bars.show(
            now(),
            &plan(json!({
                "phaseTransitionTimestamps": [
                    at("ClusterUpgrading", "2026-03-13T03:30:00Z"),
                    at("ClusterUpgraded", "2026-03-13T03:45:15Z"),
                    at("NodeUpgrading", "2026-03-13T03:50:00Z"),
                ],
                "nodeUpgradeStatuses": {"a": {"state": "PostDrained"}, "b": {"state": "PreDrained"}},
            })),
        );
        let seen: Vec<_> = bars
            .phases
            .iter()
            .map(|phase| (phase.bar.position(), phase.bar.message()))
            .filter(|(_, message)| !message.is_empty())
            .collect();
        assert_eq!(seen, [(60, "15:15".to_owned()), (45, "10:00".to_owned())]);
        bars.tick("2026-03-13T05:00:00Z".parse().unwrap());
        assert_eq!(bars.phases[6].bar.message(), "1:10:00");
    }
}
