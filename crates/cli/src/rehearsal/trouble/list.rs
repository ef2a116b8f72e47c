//! The table of troubles as people and programs read it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Moment, Object, Row, Shows, choice::moments, rows};

/// How a trouble is written.
fn usage(row: &Row) -> String {
    let object = row.object.word().map(|word| format!("[={word}]"));
    let phase = row.last.map(|_| "[@PHASE]");
    format!(
        "{}{}{}",
        row.name,
        object.unwrap_or_default(),
        phase.unwrap_or_default()
    )
}

/// What it happens to without a choice.
fn default(row: &Row) -> &'static str {
    match row.object {
        Object::None => "–",
        Object::MigratableVm => "all VMs that can be migrated",
        Object::StoppedVm => "all VMs that are shut down",
        Object::Node if row.default.is_empty() => "all nodes",
        _ => row.default,
    }
}

fn begins(row: &Row) -> String {
    match row.begins {
        Moment::Start => "start".to_owned(),
        Moment::Phase(api::Phase::Succeeded) => "end".to_owned(),
        moment => moment.name().unwrap_or_default(),
    }
}

fn shows(row: &Row) -> String {
    match row.shows {
        Shows::Doctor(ids, _) => ids.join(", "),
        Shows::Waits(what) => format!("wait {what}"),
        Shows::Fails(_) => "the plan fails".to_owned(),
        Shows::Succeeds => "the upgrade succeeds".to_owned(),
    }
}

/// A row of the table in the documentation: how it is written, what it happens to, when it begins, what happens, how it shows, how it
/// is repaired.
#[must_use]
pub fn cells(row: &Row) -> [String; 6] {
    [
        format!("`{}`", usage(row)),
        default(row).to_owned(),
        begins(row),
        row.happens.to_owned(),
        shows(row),
        row.remedy.to_owned(),
    ]
}

/// The table for a terminal.
#[must_use]
pub fn as_text() -> String {
    let mut text = String::from(
        "Troubles for rehearse --trouble NAME[=OBJECT][@PHASE]. The id of a situation of doctor works as NAME too.\n",
    );
    for row in rows() {
        // Writing to a String does not fail.
        let _ = write!(text, "\n{}\n    {}\n", usage(row), row.happens);
        if row.object != Object::None {
            let _ = writeln!(text, "    without OBJECT: {}", default(row));
        }
        let _ = writeln!(text, "    begins: {}", begins(row));
        let _ = writeln!(text, "    shows:  {}", shows(row));
        let _ = writeln!(text, "    remedy: {}", row.remedy);
    }
    let mut all: Vec<String> = Vec::new();
    for name in rows().flat_map(moments).filter_map(Moment::name) {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    let _ = writeln!(text, "\nPHASE is one of {}.", all.join(", "));
    text
}

/// The table for programs.
#[must_use]
pub fn as_json() -> Value {
    let row = |row: &Row| {
        json!({
            "name": row.name, "object": row.object.word(), "default": default(row), "begins": begins(row),
            "phases": moments(row).into_iter().filter_map(Moment::name).collect::<Vec<_>>(),
            "nodes": row.nodes, "happens": row.happens, "shows": shows(row), "situations": row.ids(), "remedy": row.remedy,
        })
    };
    rows().map(row).collect()
}
