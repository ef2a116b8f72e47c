//! Disks of nodes: room for the images of the release, and no trouble with what is there.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use rules::room;

use super::{Found, Question, found::listed, missing};
use crate::finding::{Missing, ObjectRef, Severity, needed};

/// Warnings that a kubelet writes when it cannot make room.
const FULL: [&str; 4] = [
    "FreeDiskSpaceFailed",
    "ImageGCFailed",
    "EvictionThresholdMet",
    "InvalidDiskCapacity",
];
/// Older warnings are history.
const RECENT: SignedDuration = SignedDuration::from_hours(2);

/// The same rule as in the manager's own checks.
pub(super) fn has_room(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    if question.plan.skips_disk_space() == Some(true) {
        return Ok(Vec::new());
    }
    let disks = &question.snapshot.kubelet_disks;
    if disks.is_empty() {
        return Err(missing("kubelets", "none was asked about its disk"));
    }
    if let Some(why) = disks
        .values()
        .all(Result::is_err)
        .then(|| disks.values().find_map(|disk| disk.as_ref().err()))
    {
        return Err(missing("kubelets", &why.map(ToString::to_string).unwrap_or_default()));
    }
    let found = disks.iter().filter_map(|(node, disk)| {
        let about = || [ObjectRef::new("Node", None, node)];
        match disk {
            Ok(disk) => {
                let disk = room::Disk {
                    capacity_bytes: disk.capacity_bytes,
                    used_bytes: disk.used_bytes,
                    threshold_percent: disk.image_gc_high_threshold_percent,
                };
                let text = room::projection(node, disk, room::NEW_IMAGES_BYTES)?;
                Some(Found::new(text).about(about()))
            }
            Err(why) => {
                let text = format!("the kubelet of node {node} did not say how full its disk is: {why}");
                Some(Found::new(text).about(about()).severity(Severity::Warning))
            }
        }
    });
    Ok(found.collect())
}

/// Nodes whose kubelet could not make room lately.
pub(super) fn kubelets_make_room(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let events = needed(&question.snapshot.events, "events")?;
    let since = question.snapshot.taken_at.saturating_sub(RECENT).unwrap_or_default();
    let nodes: BTreeSet<&str> = events
        .iter()
        .filter(|event| event.reason.as_deref().is_some_and(|reason| FULL.contains(&reason)))
        .filter(|event| {
            let last = event.last_timestamp.as_ref().map(|time| time.0);
            let last = last.or_else(|| event.event_time.as_ref().map(|time| time.0));
            last.is_none_or(|last| last >= since)
        })
        .filter(|event| event.involved_object.kind.as_deref() == Some("Node"))
        .filter_map(|event| event.involved_object.name.as_deref())
        .collect();
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let names = nodes.iter().map(|node| (*node).to_owned()).collect();
    let found = Found::new(format!(
        "kubelets could not free disk space in the last two hours: {}",
        listed(names)
    ));
    Ok(vec![
        found.about(nodes.iter().map(|node| ObjectRef::new("Node", None, node))),
    ])
}
