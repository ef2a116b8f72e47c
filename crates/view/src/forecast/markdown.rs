//! A forecast as Markdown, to be pasted into a change request. What others named cannot end a cell, begin a tag or a link.

use std::fmt::Write as _;

use api::quoted::{LONGEST_MESSAGE, plain};

use super::{
    duration,
    model::Forecast,
    text::{headline, kind, objects, verdict},
};

/// So many rows of a table of VMs; JSON has all.
const ROWS: usize = 200;

/// A forecast as Markdown.
#[must_use]
pub fn markdown(forecast: &Forecast) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(out, "# Upgrade forecast\n\n{}\n", safe(&headline(forecast)));
    let _ = writeln!(out, "**{}**\n", safe(&verdict(forecast)));
    refusals(&mut out, forecast);
    blockers(&mut out, forecast);
    if !forecast.change_first.is_empty() {
        let _ = writeln!(out, "## What to change first\n");
        for (number, change) in (1..).zip(&forecast.change_first) {
            let about = objects(&change.objects);
            let about = if about.is_empty() {
                about
            } else {
                format!("{}: ", safe(&about))
            };
            let _ = writeln!(out, "{number}. {about}{}", safe(&change.remedy));
            for command in &change.commands {
                let _ = writeln!(out, "   - `{}`", plain(command, 4 * LONGEST_MESSAGE).replace('`', "'"));
            }
        }
        out.push('\n');
    }
    times(&mut out, forecast);
    vms(&mut out, forecast);
    for (title, lines) in [("Not known", &forecast.unknown), ("Assumptions", &forecast.assumptions)] {
        if !lines.is_empty() {
            let _ = writeln!(out, "## {title}\n");
            for line in lines {
                let _ = writeln!(out, "- {}", safe(line));
            }
            out.push('\n');
        }
    }
    while out.ends_with("\n\n") {
        out.pop();
    }
    out
}

/// A text of others: on one line, and nothing in it is markup.
fn safe(text: &str) -> String {
    let mut shown = String::new();
    for character in plain(text, 2 * LONGEST_MESSAGE).chars() {
        match character {
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '|' | '[' | ']' | '`' | '*' | '_' | '\\' | '#' | '!' | '~' => {
                shown.push('\\');
                shown.push(character);
            }
            other => shown.push(other),
        }
    }
    shown
}

fn refusals(out: &mut String, forecast: &Forecast) {
    if forecast.refusals.is_empty() && forecast.errors.is_empty() {
        return;
    }
    if !forecast.refusals.is_empty() {
        let _ = writeln!(out, "## Admission would refuse the plan\n");
        for refusal in &forecast.refusals {
            let _ = writeln!(out, "- {}: {}", safe(&refusal.id), safe(&refusal.message));
        }
        let _ = writeln!(
            out,
            "\nWhat follows is what would happen if these were resolved or overridden.\n"
        );
    }
    if !forecast.errors.is_empty() {
        let _ = writeln!(out, "## Other errors that preflight found\n");
        for error in &forecast.errors {
            let _ = writeln!(out, "- {}: {}", safe(&error.id), safe(&error.message));
        }
        out.push('\n');
    }
}

fn blockers(out: &mut String, forecast: &Forecast) {
    if forecast.blockers.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "## The upgrade would be blocked\n\n| node | on what | object | why | in the rehearsal |\n|---|---|---|---|---|"
    );
    for blocker in &forecast.blockers {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            safe(blocker.node.as_deref().unwrap_or("-")),
            kind(blocker),
            safe(&objects(&blocker.objects)),
            safe(&blocker.message),
            safe(blocker.in_rehearsal.as_deref().unwrap_or("The rehearsal ends here.")),
        );
    }
    out.push('\n');
}

fn times(out: &mut String, forecast: &Forecast) {
    let shown = |seconds: Option<i64>| seconds.map_or_else(|| "not ended".to_owned(), duration);
    let _ = writeln!(out, "## Durations\n\n| phase | duration |\n|---|---|");
    for phase in &forecast.phases {
        let _ = writeln!(out, "| {} | {} |", safe(&phase.name), shown(phase.seconds));
    }
    let _ = writeln!(out, "| in all | {} |\n", duration(forecast.seconds));
    if !forecast.nodes.is_empty() {
        let _ = writeln!(out, "| node | begins after | duration |\n|---|---|---|");
        for node in &forecast.nodes {
            let begins = node.begins.map_or_else(|| "-".to_owned(), duration);
            let _ = writeln!(out, "| {} | {begins} | {} |", safe(&node.name), shown(node.seconds));
        }
        out.push('\n');
    }
}

fn vms(out: &mut String, forecast: &Forecast) {
    if !forecast.shutdowns.is_empty() {
        let _ = writeln!(
            out,
            "## VMs that are shut down\n\n| VM | node | after | off for | why |\n|---|---|---|---|---|"
        );
        for off in forecast.shutdowns.iter().take(ROWS) {
            let length = off.seconds.map_or_else(|| "stays off".to_owned(), duration);
            let (vm, node, why) = (safe(&off.vm), safe(&off.node), safe(&off.why));
            let _ = writeln!(out, "| {vm} | {node} | {} | {length} | {why} |", duration(off.begins));
        }
        more(out, forecast.shutdowns.len());
    }
    if !forecast.moves.is_empty() {
        let _ = writeln!(
            out,
            "## VMs that move\n\n| VM | from | to | after | takes |\n|---|---|---|---|---|"
        );
        for moved in forecast.moves.iter().take(ROWS) {
            let (vm, from, to) = (safe(&moved.vm), safe(&moved.from), safe(&moved.to));
            let (begins, takes) = (duration(moved.begins), duration(moved.seconds));
            let _ = writeln!(out, "| {vm} | {from} | {to} | {begins} | {takes} |");
        }
        more(out, forecast.moves.len());
    }
}

fn more(out: &mut String, count: usize) {
    match count.saturating_sub(ROWS) {
        0 => out.push('\n'),
        more => {
            let _ = writeln!(out, "\nand {more} more; `-o json` lists all\n");
        }
    }
}
