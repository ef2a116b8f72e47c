//! A forecast for people at a terminal. All that others named is on one line and bounded.

use std::fmt::Write as _;

use api::quoted::{LONGEST_MESSAGE, LONGEST_NAME, plain, printable};
use checks::finding::{Finding, ObjectRef, Severity};

use super::{
    duration,
    model::{Blocker, BlockerKind, Forecast, Verdict},
};
use crate::{
    style::Style,
    table::{Table, wrapped},
};

/// So many VMs are listed; JSON has all.
const VMS_SHOWN: usize = 20;
/// So many objects of a line are named.
const OBJECTS_SHOWN: usize = 5;
/// Commands may be as long as the names in them need.
const LONGEST_COMMAND: usize = 4 * LONGEST_MESSAGE;

/// A forecast in so many columns.
#[must_use]
pub fn text(forecast: &Forecast, width: usize, style: Style) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(out, "{}\n", style.bold(&headline(forecast)));
    refusals(&mut out, forecast, width, style);
    blockers(&mut out, forecast, width, style);
    errors(&mut out, forecast, width, style);
    times(&mut out, forecast, width, style);
    vms(&mut out, forecast, width, style);
    changes(&mut out, forecast, width, style);
    listed(&mut out, "Not known", &forecast.unknown, width, style);
    listed(&mut out, "Assumptions", &forecast.assumptions, width, style);
    let _ = writeln!(out, "{}", style.bold(&verdict(forecast)));
    out
}

/// The first line.
pub(super) fn headline(forecast: &Forecast) -> String {
    let size = forecast.cluster;
    format!(
        "Forecast of the upgrade {} → {} of {}, {} and {}, as of {}",
        plain(&forecast.from, LONGEST_NAME),
        plain(&forecast.to, LONGEST_NAME),
        counted(size.nodes, "node"),
        counted(size.vms, "running VM"),
        counted(size.volumes, "volume"),
        forecast.taken_at,
    )
}

pub(super) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The last line.
pub(super) fn verdict(forecast: &Forecast) -> String {
    let blocked = counted(forecast.blockers.len(), "blocker");
    let refused = counted(forecast.refusals.len(), "reason");
    let time = duration(forecast.seconds);
    match (forecast.verdict, forecast.completed) {
        (Verdict::Succeeds, _) => format!("The upgrade would succeed in about {time}."),
        (Verdict::Doubtful, _) => format!(
            "The rehearsed upgrade succeeds in about {time}, but the cluster has {} that a rehearsal cannot play.",
            counted(forecast.errors.len(), "error")
        ),
        (Verdict::Refused, true) => format!(
            "Admission would refuse the upgrade for {refused}. With these resolved and {blocked} removed it would take about {time}."
        ),
        (Verdict::Refused, false) => {
            format!(
                "Admission would refuse the upgrade for {refused}. With these resolved it would still not complete."
            )
        }
        (Verdict::Blocked, true) => {
            format!("The upgrade would be blocked: {blocked}. With these removed it would take about {time}.")
        }
        (Verdict::Blocked, false) => {
            "The upgrade would not complete. The rehearsal ends where it is blocked.".to_owned()
        }
    }
}

pub(super) fn kind(blocker: &Blocker) -> &'static str {
    match blocker.kind {
        BlockerKind::Budget => "a disruption budget",
        BlockerKind::Replica => "replicas of a volume",
        BlockerKind::Room => "no room for a VM",
        BlockerKind::Vm => "a VM that does not leave",
        BlockerKind::Disk => "a disk that is too full",
        BlockerKind::Other => "another obstacle",
    }
}

pub(super) fn objects(objects: &[ObjectRef]) -> String {
    let shown = objects.iter().take(OBJECTS_SHOWN);
    let shown: Vec<String> = shown.map(|object| plain(&object.to_string(), LONGEST_NAME)).collect();
    let more = objects.len().saturating_sub(OBJECTS_SHOWN);
    if more > 0 {
        format!("{} and {more} more", shown.join(", "))
    } else {
        shown.join(", ")
    }
}

fn heading(out: &mut String, title: &str, style: Style) {
    let _ = writeln!(out, "{}", style.bold(title));
}

fn paragraph(out: &mut String, indent: usize, text: &str, width: usize) {
    for line in wrapped(text, width.saturating_sub(indent)) {
        let _ = writeln!(out, "{:indent$}{line}", "");
    }
}

fn finding(out: &mut String, finding: &Finding, width: usize, style: Style) {
    let _ = writeln!(
        out,
        "  {} {}  {}",
        style.severity(Severity::Error),
        plain(&finding.id, LONGEST_NAME),
        objects(&finding.objects)
    );
    paragraph(out, 4, &printable(&finding.message, LONGEST_MESSAGE), width);
    paragraph(
        out,
        4,
        &format!("Remedy: {}", printable(&finding.remedy, LONGEST_MESSAGE)),
        width,
    );
}

fn refusals(out: &mut String, forecast: &Forecast, width: usize, style: Style) {
    if forecast.refusals.is_empty() {
        let _ = writeln!(out, "Admission would accept the plan.\n");
        return;
    }
    heading(out, "Admission would refuse the plan", style);
    for refusal in &forecast.refusals {
        finding(out, refusal, width, style);
    }
    paragraph(
        out,
        2,
        "What follows is what would happen if these were resolved or overridden.",
        width,
    );
    out.push('\n');
}

fn blockers(out: &mut String, forecast: &Forecast, width: usize, style: Style) {
    if forecast.blockers.is_empty() {
        return;
    }
    heading(out, "The upgrade would be blocked", style);
    for blocker in &forecast.blockers {
        let node = blocker.node.as_deref().map(|node| plain(node, LONGEST_NAME));
        let node = node.map(|node| format!("node {node}: ")).unwrap_or_default();
        let id = blocker
            .id
            .as_deref()
            .map(|id| format!(" ({})", plain(id, LONGEST_NAME)));
        let _ = writeln!(
            out,
            "  {node}{}{}  {}",
            style.bold(kind(blocker)),
            id.unwrap_or_default(),
            objects(&blocker.objects)
        );
        paragraph(out, 4, &printable(&blocker.message, LONGEST_MESSAGE), width);
        let done = match &blocker.in_rehearsal {
            Some(done) => format!("In the rehearsal: {}", printable(done, LONGEST_MESSAGE)),
            None => "The rehearsal ends here.".to_owned(),
        };
        paragraph(out, 4, &done, width);
    }
    out.push('\n');
}

fn errors(out: &mut String, forecast: &Forecast, width: usize, style: Style) {
    if !forecast.errors.is_empty() {
        heading(out, "Other errors that preflight found", style);
        for error in &forecast.errors {
            finding(out, error, width, style);
        }
        out.push('\n');
    }
    if forecast.warnings > 0 {
        let _ = writeln!(
            out,
            "preflight also has {}: run it for details.\n",
            counted(forecast.warnings, "warning")
        );
    }
}

fn times(out: &mut String, forecast: &Forecast, width: usize, style: Style) {
    let shown = |seconds: Option<i64>| seconds.map_or_else(|| "not ended".to_owned(), duration);
    let mut phases = Table::new(["PHASE", "DURATION"]);
    for phase in &forecast.phases {
        phases.row([phase.name.clone(), shown(phase.seconds)]);
    }
    phases.row(["in all".to_owned(), duration(forecast.seconds)]);
    let _ = writeln!(out, "{}", phases.text(width, style));
    if !forecast.nodes.is_empty() {
        let mut nodes = Table::new(["NODE", "BEGINS AFTER", "DURATION"]);
        for node in &forecast.nodes {
            let begins = node.begins.map_or_else(|| "-".to_owned(), duration);
            nodes.row([node.name.clone(), begins, shown(node.seconds)]);
        }
        let _ = writeln!(out, "{}", nodes.text(width, style));
    }
}

fn vms(out: &mut String, forecast: &Forecast, width: usize, style: Style) {
    if !forecast.shutdowns.is_empty() {
        let mut table = Table::new(["VM THAT IS SHUT DOWN", "NODE", "AFTER", "OFF FOR"]);
        for off in forecast.shutdowns.iter().take(VMS_SHOWN) {
            let length = off.seconds.map_or_else(|| "stays off".to_owned(), duration);
            table.row([off.vm.clone(), off.node.clone(), duration(off.begins), length]);
            table.below(&off.why);
        }
        let _ = writeln!(out, "{}{}", table.text(width, style), more(forecast.shutdowns.len()));
    }
    if !forecast.moves.is_empty() {
        let mut table = Table::new(["VM THAT MOVES", "FROM", "TO", "AFTER", "TAKES"]);
        for moved in forecast.moves.iter().take(VMS_SHOWN) {
            table.row([
                moved.vm.clone(),
                moved.from.clone(),
                moved.to.clone(),
                duration(moved.begins),
                duration(moved.seconds),
            ]);
        }
        let _ = writeln!(out, "{}{}", table.text(width, style), more(forecast.moves.len()));
    }
}

/// How many are not listed.
fn more(count: usize) -> String {
    match count.saturating_sub(VMS_SHOWN) {
        0 => String::new(),
        more => format!("and {more} more; -o json lists all\n"),
    }
}

fn changes(out: &mut String, forecast: &Forecast, width: usize, style: Style) {
    if forecast.change_first.is_empty() {
        return;
    }
    heading(out, "What to change first", style);
    for (number, change) in (1..).zip(&forecast.change_first) {
        let about = objects(&change.objects);
        let about = if about.is_empty() { about } else { format!("{about}: ") };
        let remedy = printable(&change.remedy, LONGEST_MESSAGE);
        let mut lines = wrapped(&format!("{about}{remedy}"), width.saturating_sub(5)).into_iter();
        let _ = writeln!(out, "{number:>3}. {}", lines.next().unwrap_or_default());
        for line in lines {
            let _ = writeln!(out, "     {line}");
        }
        for command in &change.commands {
            let _ = writeln!(out, "       {}", printable(command, LONGEST_COMMAND));
        }
    }
    out.push('\n');
}

fn listed(out: &mut String, title: &str, lines: &[String], width: usize, style: Style) {
    if lines.is_empty() {
        return;
    }
    heading(out, title, style);
    for line in lines {
        paragraph(out, 2, &printable(line, LONGEST_MESSAGE), width);
    }
    out.push('\n');
}
