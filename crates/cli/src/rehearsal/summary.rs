//! What happened, for the end of a rehearsal: durations, VMs, events.

use std::fmt::Write as _;

use api::{Phase, UpgradePlan, reasons};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Event, apimachinery::pkg::apis::meta::v1::Time};
use plan::pipeline::PIPELINE;

use super::{Rehearsal, follow::time_of};

/// The summary of a plan that has ended, or has not.
#[must_use]
pub fn summarize(rehearsal: &Rehearsal, plan: &UpgradePlan) -> String {
    let mut text = String::new();
    let events = events(rehearsal, plan);
    // Writing to a String does not fail.
    let _ = writeln!(text, "\nPhases");
    for (name, duration) in phases(plan) {
        let _ = writeln!(text, "  {name:<18}{duration:>10}");
    }
    let nodes = nodes(plan);
    if !nodes.is_empty() {
        let _ = writeln!(text, "\nNodes");
        for (name, state, duration) in nodes {
            let _ = writeln!(text, "  {name:<18}{duration:>10}  {state}");
        }
    }
    let vms = vms(rehearsal, &events);
    let _ = writeln!(
        text,
        "\nVMs\n  {} migrated, {} shut down, {} restored",
        vms.migrated, vms.shut_down, vms.restored
    );
    let (to_plans, all) = rehearsal.writes();
    let _ = writeln!(
        text,
        "\nWrites of the manager\n  {to_plans} to the plan, {all} in all, with its lease and events"
    );
    let _ = writeln!(text, "\nEvents");
    let reason = |event: &Event| event.reason.clone().unwrap_or_default();
    let width = events.iter().map(|event| reason(event).len()).max().unwrap_or_default();
    for event in &events {
        let warning = if event.type_.as_deref() == Some("Warning") {
            "Warning: "
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "  {}  {:<width$}  {warning}{}",
            moment(event).map(time_of).unwrap_or_default(),
            reason(event),
            event.message.as_deref().unwrap_or_default(),
        );
    }
    let _ = writeln!(text, "\n{}", verdict(plan));
    text
}

/// The last line.
fn verdict(plan: &UpgradePlan) -> String {
    let name = plan.metadata.name.as_deref().unwrap_or_default();
    let status = plan.status.clone().unwrap_or_default();
    let total = status
        .phase_transition_timestamps
        .first()
        .zip(status.phase_transition_timestamps.last());
    let total = total.map(|(first, last)| between(&first.phase_transition_timestamp, &last.phase_transition_timestamp));
    let total = total.unwrap_or_default();
    match plan.phase() {
        Some(Phase::Succeeded) => {
            let from = status.previous_version.unwrap_or_default();
            let to = status
                .release_metadata
                .and_then(|release| release.harvester)
                .unwrap_or_default();
            format!("{name} succeeded: {from} → {to} in {total} of cluster time")
        }
        Some(Phase::Failed) => {
            let why = plan
                .condition(reasons::PROGRESSING)
                .map(|condition| condition.message.clone());
            format!(
                "{name} failed after {total} of cluster time: {}",
                why.unwrap_or_default()
            )
        }
        phase => {
            let waits: Vec<_> = status
                .waiting_for
                .iter()
                .filter_map(|wait| wait.message.as_deref())
                .collect();
            let phase = phase.map_or("no phase", Phase::as_str);
            format!("{name} did not end; it is in {phase}, waiting: {}", waits.join("; "))
        }
    }
}

fn phases(plan: &UpgradePlan) -> Vec<(&'static str, String)> {
    let status = plan.status.clone().unwrap_or_default();
    let at = |phase: Phase| {
        let history = &status.phase_transition_timestamps;
        history
            .iter()
            .find(|change| change.phase == phase.as_str())
            .map(|change| &change.phase_transition_timestamp)
    };
    let entries = PIPELINE.iter().filter_map(|entry| Some((entry, at(entry.active)?)));
    entries
        .map(|(entry, begin)| {
            let end = at(entry.completed).or_else(|| at(Phase::Failed));
            (
                entry.name,
                end.map_or_else(|| "not ended".to_owned(), |end| between(begin, end)),
            )
        })
        .collect()
}

fn nodes(plan: &UpgradePlan) -> Vec<(String, String, String)> {
    let status = plan.status.clone().unwrap_or_default();
    let nodes = status.node_upgrade_statuses.into_iter();
    nodes
        .map(|(name, node)| {
            let duration = match (&node.started_at, &node.finished_at) {
                (Some(begin), Some(end)) => between(begin, end),
                (Some(_), None) => "not ended".to_owned(),
                (None, _) => "-".to_owned(),
            };
            (name, node.state().unwrap_or_default().to_owned(), duration)
        })
        .collect()
}

fn between(begin: &Time, end: &Time) -> String {
    duration(end.0.duration_since(begin.0))
}

/// A duration as `4:44` or `1:03:12`.
pub(super) fn duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

/// How many VMs were touched, and how.
#[derive(Debug, Default, PartialEq, Eq)]
struct Vms {
    migrated: usize,
    shut_down: usize,
    restored: usize,
}

fn vms(rehearsal: &Rehearsal, events: &[Event]) -> Vms {
    let migrations = rehearsal.objects("kubevirt.io", "virtualmachineinstancemigrations");
    let count = |reason: &str| {
        events
            .iter()
            .filter(|event| event.reason.as_deref() == Some(reason))
            .map(successes)
            .sum()
    };
    Vms {
        migrated: migrations
            .iter()
            .filter(|migration| migration.data["status"]["phase"] == "Succeeded")
            .count(),
        shut_down: count(reasons::VM_SHUTDOWN_COMPLETED),
        restored: count(reasons::RESTORE_VM_COMPLETED),
    }
}

/// The number after `success: ` in an event's message.
fn successes(event: &Event) -> usize {
    let message = event.message.as_deref().unwrap_or_default();
    let number = message
        .split("success: ")
        .nth(1)
        .and_then(|rest| rest.split(',').next());
    number.and_then(|number| number.trim().parse().ok()).unwrap_or_default()
}

/// The plan's events, in their order.
fn events(rehearsal: &Rehearsal, plan: &UpgradePlan) -> Vec<Event> {
    let all = rehearsal.objects("", "events").into_iter();
    let mut events: Vec<Event> = all.filter_map(|event| event.try_parse().ok()).collect();
    events.retain(|event| event.involved_object.uid == plan.metadata.uid);
    events.sort_by_key(|event| {
        let order = event
            .metadata
            .resource_version
            .as_deref()
            .and_then(|version| version.parse::<u64>().ok());
        (moment(event), order)
    });
    events
}

fn moment(event: &Event) -> Option<Timestamp> {
    event
        .first_timestamp
        .as_ref()
        .or(event.metadata.creation_timestamp.as_ref())
        .map(|time| time.0)
}
