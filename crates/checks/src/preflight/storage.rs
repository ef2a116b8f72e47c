//! Longhorn: its nodes, settings, images and jobs.

use api::{
    foreign::{
        condition_is,
        longhorn::{BackingImage, RecurringJob},
    },
    quoted::quoted,
};
use kube::ResourceExt;
use rules::longhorn_health::{DRAIN_POLICY, storage_nodes};

use super::{Found, Question, found::together};
use crate::finding::{Missing, Severity, needed};

/// Copies of a backing image that survive the upgrade of any node.
const COPIES: usize = 3;
/// Harvester's own value, and Longhorn's default.
const USUAL_POLICIES: [&str; 2] = ["allow-if-replica-is-stopped", "block-if-contains-last-replica"];
/// With which a drain takes the last replica away.
const CARELESS_POLICY: &str = "always-allow";
/// Tasks of recurring jobs that touch volumes.
const TASKS: [&str; 4] = ["snapshot", "snapshot-force-create", "backup", "backup-force-create"];

pub(super) fn nodes_are_ready(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let nodes = needed(&question.snapshot.longhorn_nodes, "nodes.longhorn.io")?;
    let mut found = Vec::new();
    for node in nodes {
        let name = node.name_any();
        let conditions = node.status.conditions.as_deref().unwrap_or_default();
        if condition_is(conditions, "Ready") == Some(false) {
            found.push(Found::of(node, format!("Longhorn's node {name} is not ready")).severity(Severity::Error));
        }
        for (disk, status) in node.status.disk_status.iter().flatten() {
            let conditions = status.conditions.as_deref().unwrap_or_default();
            let unmet = conditions.iter().find(|condition| {
                matches!(condition.type_.as_str(), "Ready" | "Schedulable")
                    && condition.status.as_deref() == Some("False")
            });
            if let Some(condition) = unmet {
                let why = condition.message.as_deref().filter(|why| !why.is_empty());
                let why = why.map(|why| format!(": {}", quoted(why))).unwrap_or_default();
                let text = format!("disk {disk} of Longhorn's node {name} is not {}{why}", condition.type_);
                found.push(Found::of(node, text));
            }
        }
    }
    Ok(found)
}

pub(super) fn nothing_is_evicted(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let nodes = needed(&question.snapshot.longhorn_nodes, "nodes.longhorn.io")?;
    let evicted: Vec<_> = nodes
        .iter()
        .filter(|node| {
            let mut disks = node.spec.disks.iter().flatten();
            node.spec.eviction_requested == Some(true) || disks.any(|(_, disk)| disk.eviction_requested == Some(true))
        })
        .collect();
    Ok(together(
        "Longhorn is asked to evict the replicas of nodes or disks",
        &evicted,
    ))
}

pub(super) fn drain_policy_is_usual(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let settings = needed(&question.snapshot.longhorn_settings, "settings.longhorn.io")?;
    let policy = settings.iter().find(|setting| setting.name_any() == DRAIN_POLICY);
    let found = policy.filter(|policy| !policy.value.is_empty() && !USUAL_POLICIES.contains(&policy.value.as_str()));
    let found = found.map(|policy| {
        let value = quoted(&policy.value);
        let text = if policy.value == CARELESS_POLICY {
            format!("Longhorn's setting {DRAIN_POLICY} is {value}: a drain may take the last replica of a volume away")
        } else {
            format!(
                "Longhorn's setting {DRAIN_POLICY} is {value}: drains wait until replicas were moved, which takes long"
            )
        };
        Found::of(policy, text)
    });
    Ok(found.into_iter().collect())
}

pub(super) fn backing_images_have_copies(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let images = needed(&question.snapshot.backing_images, "backingimages")?;
    let wanted = storage_nodes(needed(&question.snapshot.nodes, "nodes")?).min(COPIES);
    if wanted < 2 {
        return Ok(Vec::new());
    }
    let copies = |image: &BackingImage| usize::try_from(image.spec.min_number_of_copies.unwrap_or(0)).unwrap_or(0);
    let none: Vec<&BackingImage> = images.iter().filter(|image| copies(image) == 0).collect();
    let few: Vec<&BackingImage> = images
        .iter()
        .filter(|image| (1..wanted).contains(&copies(image)))
        .collect();
    let none = together(
        "backing images need no copy at all, so the last one may be evicted",
        &none,
    );
    let few = together(
        &format!("backing images have a minimum of fewer than {wanted} copies"),
        &few,
    );
    Ok(none
        .into_iter()
        .map(|found| found.severity(Severity::Error))
        .chain(few)
        .collect())
}

/// Harvester does not support recurring snapshots and backups during upgrades.
pub(super) fn no_job_recurs(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let jobs = needed(&question.snapshot.recurring_jobs, "recurringjobs")?;
    let active: Vec<&RecurringJob> = jobs
        .iter()
        .filter(|job| job.spec.task.as_deref().is_some_and(|task| TASKS.contains(&task)))
        .collect();
    Ok(together("Longhorn makes snapshots or backups by a schedule", &active))
}

pub(super) fn shares_are_served(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let managers = needed(&question.snapshot.share_managers, "sharemanagers")?;
    let failing: Vec<_> = managers
        .iter()
        .filter(|manager| matches!(manager.status.state.as_deref(), Some("error" | "unknown" | "starting")))
        .collect();
    Ok(together("shared (RWX) volumes are not served", &failing))
}

pub(super) fn instance_managers_run(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let managers = needed(&question.snapshot.instance_managers, "instancemanagers")?;
    let failing: Vec<_> = managers
        .iter()
        .filter(|manager| matches!(manager.status.current_state.as_deref(), Some("error" | "unknown")))
        .collect();
    Ok(together("instance managers do not run", &failing))
}
