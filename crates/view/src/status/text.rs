//! The state of an upgrade as text that fits a terminal. The worst comes first; nodes with which nothing happens are counted
//! after ten of them; a long or multi-line message is wrapped below its row and never breaks a table.

use std::fmt::Write as _;

use jiff::{Timestamp, tz::TimeZone};

use super::model::{NodeAssessment, NodeView, StatusView, WaitView};
use crate::{
    style::{Style, ago},
    table::{Table, wrapped},
};

/// So many nodes with which nothing happens are shown; the others are counted.
const QUIET_NODES: usize = 10;
/// So many VMs are named; the others are counted.
const VMS: usize = 5;
/// So many waits are shown; the others are counted.
const WAITS: usize = 20;
/// The narrowest and the widest text.
const WIDTHS: std::ops::RangeInclusive<usize> = 60..=200;

/// How text is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Columns of the terminal.
    pub width: usize,
    /// Colours.
    pub style: Style,
}

/// An upgrade as text.
#[must_use]
pub fn text(view: &StatusView, layout: Layout) -> String {
    let width = layout.width.clamp(*WIDTHS.start(), *WIDTHS.end());
    let mut out = String::new();
    head(&mut out, view, width, layout.style);
    phases(&mut out, view, width, layout.style);
    nodes(&mut out, view, width, layout.style);
    vms(&mut out, view, width, layout.style);
    waits(&mut out, view, width, layout.style);
    out
}

fn head(out: &mut String, view: &StatusView, width: usize, style: Style) {
    let versions = match (&view.from, &view.to) {
        (Some(from), Some(to)) => format!("  {from} → {to}"),
        (None, Some(to)) => format!("  → {to}"),
        _ => String::new(),
    };
    let _ = writeln!(out, "{}{versions}", style.bold(&format!("UpgradePlan {}", view.plan)));
    field(out, "Assessment", view.assessment.as_str(), width);
    if let Some(message) = &view.message {
        field(out, "", message, width);
    }
    let phase = view.phase.as_deref().unwrap_or("no phase");
    field(
        out,
        "Progress",
        &format!("{} %  {phase}: {}", view.percent, view.step),
        width,
    );
    if let Some(started) = view.started {
        field(
            out,
            "Started",
            &format!("{} ({} ago)", moment(started), ago(started, view.at)),
            width,
        );
    }
    if let Some(seconds) = view.elapsed_seconds {
        let label = if view.ended.is_some() { "Took" } else { "Elapsed" };
        field(out, label, &duration(seconds), width);
    }
    if let (Some(end), Some(earliest), Some(latest)) = (
        view.estimated_end,
        view.estimated_end_earliest,
        view.estimated_end_latest,
    ) {
        let left = duration(end.duration_since(view.at).as_secs().max(0));
        let spread = format!("{} to {}", short(earliest, view.at), short(latest, view.at));
        let text = format!("{} (in {left}; {spread})", moment(end));
        field(out, "Estimated end", &text, width);
        if view.nodes.iter().any(|node| node.assessment == NodeAssessment::Paused) {
            field(out, "", "if paused nodes are resumed now", width);
        }
    }
}

/// A label, and a text that is wrapped next to it.
fn field(out: &mut String, label: &str, text: &str, width: usize) {
    const LABEL: usize = 15;
    let label = if label.is_empty() {
        String::new()
    } else {
        format!("{label}:")
    };
    for (index, line) in wrapped(text, width - LABEL).iter().enumerate() {
        let label = if index == 0 { label.as_str() } else { "" };
        let _ = writeln!(out, "{label:<LABEL$}{line}");
    }
}

fn phases(out: &mut String, view: &StatusView, width: usize, style: Style) {
    let mut table = Table::new(["PHASE", "BEGAN", "TOOK", "EXPECTED"]);
    for phase in &view.phases {
        let took = phase.elapsed_seconds.map(|seconds| match phase.ended {
            Some(_) => duration(seconds),
            None if view.ended.is_some() => format!("{}, not ended", duration(seconds)),
            None => format!("{} so far", duration(seconds)),
        });
        table.row([
            phase.name.clone(),
            phase
                .began
                .map_or_else(|| "-".to_owned(), |began| short(began, view.at)),
            took.unwrap_or_else(|| "-".to_owned()),
            if phase.ended.is_some() {
                String::new()
            } else {
                duration(phase.expected_seconds)
            },
        ]);
    }
    let _ = write!(out, "\n{}", table.text(width, style));
}

fn nodes(out: &mut String, view: &StatusView, width: usize, style: Style) {
    if view.nodes.is_empty() {
        return;
    }
    let of = |assessment: NodeAssessment| view.nodes.iter().filter(|node| node.assessment == assessment).count();
    let mut counts = Vec::new();
    for (assessment, word) in [
        (NodeAssessment::Failed, "failed"),
        (NodeAssessment::Stalled, "stalled"),
        (NodeAssessment::Progressing, "in progress"),
        (NodeAssessment::Paused, "paused"),
        (NodeAssessment::Pending, "pending"),
        (NodeAssessment::Done, "done"),
    ] {
        if of(assessment) > 0 {
            counts.push(format!("{} {word}", of(assessment)));
        }
    }
    let _ = writeln!(out, "\n{}", style.bold(&format!("Nodes: {}", counts.join(", "))));
    let mut table = Table::new(["NAME", "ROLE", "STATE", "SINCE", "EST", "VERSION"]);
    let (mut quiet, mut hidden) = (0, 0);
    for node in &view.nodes {
        if is_quiet(node) {
            quiet += 1;
            if quiet > QUIET_NODES {
                hidden += 1;
                continue;
            }
        }
        let ready = if node.ready == Some(false) { ", not ready" } else { "" };
        table.row([
            node.name.clone(),
            node.role.clone().unwrap_or_else(|| "-".to_owned()),
            format!("{}{ready}", node.state.as_deref().unwrap_or("-")),
            node.since.map_or_else(|| "-".to_owned(), |since| ago(since, view.at)),
            estimate(node),
            node.version.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
        if let Some(message) = &node.message {
            table.below(message);
        }
    }
    let _ = write!(out, "{}", table.text(width, style));
    if hidden > 0 {
        let _ = writeln!(out, "and {hidden} more");
    }
}

/// Nothing happens with it, and it says nothing.
fn is_quiet(node: &NodeView) -> bool {
    matches!(node.assessment, NodeAssessment::Pending | NodeAssessment::Done) && node.message.is_none()
}

/// What is left of a node's upgrade begins with a plus; a node that has not begun takes so long.
fn estimate(node: &NodeView) -> String {
    match (node.estimated_seconds, node.assessment) {
        (None, _) => "-".to_owned(),
        (Some(seconds), NodeAssessment::Pending | NodeAssessment::Paused) => minutes(seconds),
        (Some(seconds), _) => format!("+{}", minutes(seconds)),
    }
}

fn vms(out: &mut String, view: &StatusView, width: usize, style: Style) {
    let Some(vms) = view.vms.as_ref().filter(|vms| **vms != super::VmsView::default()) else {
        return;
    };
    let mut text = format!("{} moved, {} moving, {} shut down", vms.moved, vms.moving, vms.stopped);
    if vms.failed_to_move > 0 {
        let _ = write!(text, ", {} migrations failed", vms.failed_to_move);
    }
    let _ = writeln!(out, "\n{}", style.bold(&format!("VMs: {text}")));
    if !vms.to_be_restored.is_empty() {
        let named: Vec<&str> = vms.to_be_restored.iter().take(VMS).map(String::as_str).collect();
        let mut text = format!("to be restored: {}", named.join(", "));
        if vms.to_be_restored.len() > VMS {
            let _ = write!(text, " and {} more", vms.to_be_restored.len() - VMS);
        }
        for line in wrapped(&text, width - 2) {
            let _ = writeln!(out, "  {line}");
        }
    }
}

fn waits(out: &mut String, view: &StatusView, width: usize, style: Style) {
    if view.waits.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{}", style.bold("Waits"));
    let mut table = Table::new(["SINCE", "STALLED", "WHAT", "OBJECT"]);
    let mut waits: Vec<&WaitView> = view.waits.iter().collect();
    waits.sort_by_key(|wait| (!wait.is_overdue, wait.since));
    for wait in waits.iter().take(WAITS) {
        let stalled = match (wait.is_overdue, wait.deadline) {
            (true, Some(deadline)) => format!("for {}", ago(deadline, view.at)),
            (false, Some(deadline)) => format!("in {}", ago(view.at, deadline)),
            (_, None) => "never".to_owned(),
        };
        table.row([
            ago(wait.since, view.at),
            stalled,
            wait.what.clone(),
            wait.object.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
        table.below(&wait.message);
    }
    let _ = write!(out, "{}", table.text(width, style));
    if waits.len() > WAITS {
        let _ = writeln!(out, "and {} more", waits.len() - WAITS);
    }
}

/// A time in UTC, with its date.
fn moment(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// A time in UTC: without its date, if that is the date of `now`.
fn short(at: Timestamp, now: Timestamp) -> String {
    let (at, now) = (at.to_zoned(TimeZone::UTC), now.to_zoned(TimeZone::UTC));
    let format = if at.date() == now.date() {
        "%H:%M:%S"
    } else {
        "%Y-%m-%d %H:%M"
    };
    at.strftime(format).to_string()
}

/// `4:44` or `1:03:12`.
fn duration(seconds: i64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

/// `14m`, `1h5m`; what is less than a minute is one.
fn minutes(seconds: i64) -> String {
    let minutes = (seconds.max(0) + 30) / 60;
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{}m", minutes.max(1)),
        (hours, 0) => format!("{hours}h"),
        (hours, minutes) => format!("{hours}h{minutes}m"),
    }
}
