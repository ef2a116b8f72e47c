//! What changed between two looks at an upgrade, a line each: for pipes and logs.

use std::{collections::BTreeSet, fmt::Write as _};

use jiff::{Timestamp, tz::TimeZone};

use super::model::StatusView;

/// The time of day in UTC.
fn time_of(moment: Timestamp) -> String {
    moment.to_zoned(TimeZone::UTC).strftime("%H:%M:%S").to_string()
}

/// What changed, a line each; nothing where nothing did. The percent is in every line, and alone is no change.
#[must_use]
pub fn changes(before: Option<&StatusView>, after: &StatusView) -> Vec<String> {
    let mut texts = Vec::new();
    let was = before.map(|view| (view.assessment, &view.phase, &view.message));
    if was != Some((after.assessment, &after.phase, &after.message)) {
        let mut text = after.assessment.as_str().to_owned();
        if let Some(phase) = &after.phase {
            let _ = write!(text, ", phase {phase}");
        }
        if let Some(message) = &after.message {
            let _ = write!(text, ": {message}");
        }
        if let Some(end) = after.estimated_end {
            let _ = write!(text, "; estimated end {}", time_of(end));
        }
        texts.push(text);
    }
    for node in &after.nodes {
        let known = before.and_then(|view| view.nodes.iter().find(|known| known.name == node.name));
        if known.map(|known| &known.state) != Some(&node.state) {
            let state = node.state.as_deref().unwrap_or("no state");
            texts.push(format!("node {}: {state}", node.name));
        }
    }
    let known: BTreeSet<&str> = before
        .iter()
        .flat_map(|view| &view.waits)
        .map(|wait| wait.message.as_str())
        .collect();
    let mut said = BTreeSet::new();
    for wait in &after.waits {
        if !known.contains(wait.message.as_str()) && said.insert(wait.message.as_str()) {
            texts.push(format!("waits: {}", wait.message));
        }
    }
    let begin = format!("{}  {:>3} %  ", time_of(after.at), after.percent);
    texts.into_iter().map(|text| format!("{begin}{text}")).collect()
}
