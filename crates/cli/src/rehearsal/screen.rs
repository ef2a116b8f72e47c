//! An upgrade as lines for a terminal of a given size: the time, what is waited for, a bar per phase and a bar per node. Pure.

use std::cmp::Reverse;

use api::{NodeUpgradeStatus, Phase, UpgradePlan, UpgradePlanStatus};
use jiff::Timestamp;
use plan::{
    node::Stage,
    pipeline::{Entry, PIPELINE},
};
use rules::estimate::{Expected, Size};

use super::{
    follow::{time_of, waits},
    summary::duration,
};

/// The widest bar.
const WIDEST: usize = 32;
/// Columns of a name.
const NAME: usize = 16;
/// Columns behind a bar: `failed after 1:03:12`, or the longest state of a node.
const BEHIND: usize = 22;
/// A running phase whose end is unknown is never shown as done.
const ALMOST: f64 = 0.95;

/// Columns and lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) columns: usize,
    pub(super) lines: usize,
}

/// The lines of a plan. None is wider than the terminal, and there are fewer than it has.
pub(super) fn screen(now: Timestamp, plan: &UpgradePlan, extent: Extent) -> Vec<String> {
    let Some(status) = &plan.status else { return Vec::new() };
    let name = plan.metadata.name.as_deref().unwrap_or_default();
    let phase = status.current_phase.as_deref().unwrap_or_default();
    let mut lines = vec![format!("{}  {name}  {phase}{}", time_of(now), progress(status))];
    let nodes = status.node_upgrade_statuses.len();
    // The last line of a terminal is left for the cursor.
    let free = extent.lines.saturating_sub(2 + PIPELINE.len());
    let for_waits = free.saturating_sub(nodes.min(free / 2)).max(1);
    lines.extend(waiting(status, for_waits).into_iter().map(|wait| format!("  {wait}")));
    let expected = Expected::by_size(
        &plan.spec,
        &Size {
            nodes,
            ..Size::default()
        },
    );
    lines.extend(
        PIPELINE
            .iter()
            .map(|entry| phase_line(now, entry, status, &expected, extent)),
    );
    let left = extent.lines.saturating_sub(lines.len() + 1);
    lines.extend(node_lines(status, left, extent));
    lines.into_iter().map(|line| cut(&line, extent.columns)).collect()
}

/// A line that fits. What is cut off shows as `…`.
pub(super) fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    let kept: String = line.chars().take(columns.saturating_sub(1)).collect();
    kept + "…"
}

/// What is waited for, in as many lines as there is room for.
fn waiting(status: &UpgradePlanStatus, room: usize) -> Vec<String> {
    let mut waits: Vec<String> = waits(status).into_iter().collect();
    if waits.len() > room {
        let more = waits.len() - room + 1;
        waits.truncate(room.saturating_sub(1));
        waits.push(format!("and {more} more"));
    }
    waits
}

/// How much is done, and when it is expected to end.
fn progress(status: &UpgradePlanStatus) -> String {
    let Some(progress) = &status.progress else {
        return String::new();
    };
    let end = progress.estimated_end.as_ref();
    let end = end.map(|end| format!(", estimated end {}", time_of(end.0)));
    format!("  {} %{}", progress.percent, end.unwrap_or_default())
}

/// A name, a bar that is filled so far, and what is behind it.
fn bar(name: &str, part: f64, behind: &str, extent: Extent) -> String {
    let width = extent
        .columns
        .saturating_sub(2 + NAME + 1 + 2 + BEHIND)
        .clamp(5, WIDEST);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "between 0 and 32"
    )]
    let filled = ((part.clamp(0.0, 1.0) * width as f64) as usize).min(width);
    let bar = "━".repeat(filled) + &"─".repeat(width - filled);
    let line = format!("  {:<NAME$} {bar}  {behind}", cut(name, NAME));
    line.trim_end().to_owned()
}

fn phase_line(
    now: Timestamp,
    entry: &Entry,
    status: &UpgradePlanStatus,
    expected: &Expected,
    extent: Extent,
) -> String {
    let at = |phase: Phase| {
        let mut history = status.phase_transition_timestamps.iter();
        let change = history.find(|change| change.phase == phase.as_str());
        change.map(|change| change.phase_transition_timestamp.0)
    };
    let took = |begin: Timestamp, end: Timestamp| duration(end.duration_since(begin));
    let (part, behind) = match (at(entry.active), at(entry.completed), at(Phase::Failed)) {
        (None, ..) => (0.0, String::new()),
        (Some(begin), Some(end), _) => (1.0, took(begin, end)),
        (Some(begin), None, Some(end)) => (
            part_of(entry.active, status, expected, end.duration_since(begin).as_secs_f64()),
            format!("failed after {}", took(begin, end)),
        ),
        (Some(begin), None, None) => {
            let elapsed = now.duration_since(begin).as_secs_f64();
            (part_of(entry.active, status, expected, elapsed), took(begin, now))
        }
    };
    bar(entry.name, part, &behind, extent)
}

/// How far a running phase is: as its nodes show, and where they do not, by the time that it is expected to take.
fn part_of(phase: Phase, status: &UpgradePlanStatus, expected: &Expected, elapsed: f64) -> f64 {
    let by_time = |seconds: f64| {
        let part = if seconds > 0.0 { elapsed / seconds } else { 0.0 };
        part.clamp(0.0, ALMOST)
    };
    let by_nodes = |first, last| nodes_part(status, first, last);
    match phase {
        Phase::Initializing => by_time(expected.initialize),
        Phase::ISODownloading => by_time(expected.iso),
        Phase::RepoCreating => by_time(expected.repository),
        Phase::MetadataPopulating => by_time(expected.metadata),
        Phase::ImagePreloading => by_nodes(Stage::Preloading, Stage::Preloaded).max(by_time(expected.preload)),
        Phase::ClusterUpgrading => by_time(expected.cluster),
        Phase::NodeUpgrading => by_nodes(Stage::Preloaded, Stage::Ended),
        Phase::CleaningUp => by_nodes(Stage::Ended, Stage::Cleaned).max(by_time(expected.cleanup)),
        _ => 0.0,
    }
}

fn nodes_part(status: &UpgradePlanStatus, first: Stage, last: Stage) -> f64 {
    let nodes = &status.node_upgrade_statuses;
    let steps = |to: Stage| f64::from(to.index().saturating_sub(first.index()));
    let done: f64 = nodes
        .values()
        .map(|node| steps(stage(node).unwrap_or_default().clamp(first, last)))
        .sum();
    #[allow(clippy::cast_precision_loss, reason = "a number of nodes")]
    let all = steps(last) * nodes.len() as f64;
    if all > 0.0 { done / all } else { 0.0 }
}

fn stage(node: &NodeUpgradeStatus) -> Option<Stage> {
    node.progress().state().map(Stage::of)
}

/// A line per node, by their numbers. If there are more than lines, those in progress come first, and the others share one.
fn node_lines(status: &UpgradePlanStatus, room: usize, extent: Extent) -> Vec<String> {
    let mut nodes: Vec<(&String, &NodeUpgradeStatus)> = status.node_upgrade_statuses.iter().collect();
    nodes.sort_by_key(|(name, _)| natural(name));
    let line = |(name, node): &(&String, &NodeUpgradeStatus)| {
        let steps = f64::from(Stage::Cleaned.index() + 1);
        let part = stage(node).map_or(0.0, |stage| f64::from(stage.index() + 1) / steps);
        bar(name, part, node.state().unwrap_or_default(), extent)
    };
    if nodes.len() <= room {
        return nodes.iter().map(line).collect();
    }
    nodes.sort_by_key(|(_, node)| {
        let is_active = node.started_at.is_some() && node.finished_at.is_none();
        (Reverse(is_active), node.finished_at.is_some())
    });
    let (shown, hidden) = nodes.split_at(room.saturating_sub(1));
    let done = hidden.iter().filter(|(_, node)| node.finished_at.is_some()).count();
    let mut lines: Vec<String> = shown.iter().map(line).collect();
    lines.push(format!("  {} more nodes, {done} of them upgraded", hidden.len()));
    lines
}

/// Names in the order of the numbers in them: node-2 before node-10.
pub(super) fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, numbered) = rest.split_at(digits);
        let end = numbered.find(|c: char| !c.is_ascii_digit()).unwrap_or(numbered.len());
        let (number, after) = numbered.split_at(end);
        parts.push((text.to_owned(), number.parse().unwrap_or_default()));
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "json! makes values")]
    fn plan(status: Value) -> UpgradePlan {
        serde_json::from_value(json!({
            "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
            "metadata": {"name": "hvst-upgrade-b9tpl"}, "spec": {"version": "v1.8.0"}, "status": status
        }))
        .unwrap()
    }

    fn at(phase: &str, time: &str) -> Value {
        json!({"phase": phase, "phaseTransitionTimestamp": time})
    }

    fn lines(status: Value, columns: usize, lines: usize) -> Vec<String> {
        let now = "2026-03-13T04:00:00Z".parse().unwrap();
        screen(now, &plan(status), Extent { columns, lines })
    }

    fn many() -> Value {
        let node = |number: usize| {
            let state = match number {
                ..=20 => {
                    json!({"state": "PostDrained", "startedAt": "2026-03-13T03:00:00Z", "finishedAt": "2026-03-13T03:30:00Z"})
                }
                21 => json!({"state": "PreDraining", "startedAt": "2026-03-13T03:50:00Z"}),
                _ => json!({"state": "ImagePreloaded"}),
            };
            (format!("node-{number}"), state)
        };
        let nodes: serde_json::Map<_, _> = (1..=50).map(node).collect();
        let waits: Vec<Value> = (0..30)
            .map(|number| {
                let message = format!("VM default/vm-{number} is being moved to node-2: migration kubevirt-evacuation-vm-{number} is Running and takes long");
                json!({"what": "VMEvacuation", "message": message, "since": "2026-03-13T04:00:00Z"})
            })
            .collect();
        json!({
            "currentPhase": "NodeUpgrading", "nodeUpgradeStatuses": nodes, "waitingFor": waits,
            "phaseTransitionTimestamps": [at("NodeUpgrading", "2026-03-13T02:50:00Z")],
            "progress": {"percent": 61, "estimatedEnd": "2026-03-13T09:14:00Z"},
        })
    }

    #[rstest]
    #[case(60, 24)]
    #[case(80, 24)]
    #[case(120, 50)]
    #[case(200, 60)]
    fn u15_the_screen_fits_the_terminal_and_shows_the_active_node(#[case] columns: usize, #[case] height: usize) {
        let shown = lines(many(), columns, height);
        assert!(shown.len() < height, "{}", shown.join("\n"));
        for line in &shown {
            assert!(line.chars().count() <= columns, "{line}");
        }
        let text = shown.join("\n");
        assert!(text.contains("node-21 ") && text.contains("PreDraining"), "{text}");
        assert!(text.contains(" more nodes, "), "{text}");
        assert!(text.contains("more"), "waits that have no room are counted: {text}");
        assert!(columns > 80 || text.contains('…'), "what is cut off shows: {text}");
    }

    #[test]
    fn u15_nodes_are_in_the_order_of_their_numbers() {
        let nodes: serde_json::Map<_, _> = (1..=11)
            .map(|number| (format!("node-{number}"), json!({"state": "ImagePreloaded"})))
            .collect();
        let shown = lines(json!({"nodeUpgradeStatuses": nodes}), 80, 40);
        let names: Vec<&str> = shown.iter().filter_map(|line| line.split_whitespace().next()).collect();
        let names: Vec<&str> = names.into_iter().filter(|name| name.starts_with("node-")).collect();
        let expected: Vec<String> = (1..=11).map(|number| format!("node-{number}")).collect();
        assert_eq!(names, expected);
    }

    #[rstest]
    #[case("ISODownloading")]
    #[case("ImagePreloading")]
    #[case("ClusterUpgrading")]
    fn u15_a_phase_without_nodes_fills_up_with_time_and_is_not_full_before_its_end(#[case] phase: &str) {
        let filled = |since: &str| {
            let status = json!({"currentPhase": phase, "phaseTransitionTimestamps": [at(phase, since)], "nodeUpgradeStatuses": {
                "node-1": {"state": "ImagePreloading"},
            }});
            let text = lines(status, 100, 30).join("\n");
            text.matches('━').count()
        };
        let (just, later, late) = (
            filled("2026-03-13T03:59:59Z"),
            filled("2026-03-13T03:57:00Z"),
            filled("2026-03-13T01:00:00Z"),
        );
        assert!(just < later && later <= late, "{just} {later} {late}");
    }

    #[test]
    fn a_phase_says_how_long_it_took_or_has_taken() {
        let shown = lines(
            json!({
                "phaseTransitionTimestamps": [
                    at("ClusterUpgrading", "2026-03-13T03:30:00Z"),
                    at("ClusterUpgraded", "2026-03-13T03:45:15Z"),
                    at("NodeUpgrading", "2026-03-13T03:50:00Z"),
                ],
                "nodeUpgradeStatuses": {"a": {"state": "PostDrained"}, "b": {"state": "PreDrained"}},
            }),
            100,
            30,
        );
        let of = |name: &str| {
            let line = shown.iter().find(|line| line.contains(name)).unwrap();
            (line.matches('━').count(), line.rsplit(' ').next().unwrap().to_owned())
        };
        assert_eq!(of("ClusterUpgrade"), (WIDEST, "15:15".to_owned()));
        assert_eq!(of("NodeUpgrade"), (24, "10:00".to_owned()));
    }
}
