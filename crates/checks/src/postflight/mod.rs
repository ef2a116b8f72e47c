//! After an upgrade: what is worse than before. A record of the cluster ([`record`]) is made when a plan starts and kept in
//! ConfigMaps of the plan ([`stored`]); another one is made at the end; each check of the table compares the two.
//!
//! Pure. Nothing here restores anything.

mod nodes;
pub mod record;
mod settings;
pub mod stored;
mod vms;
mod volumes;
mod workloads;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use api::{Phase, UpgradePlan};
use snapshot::Snapshot;

pub use record::Record;

use crate::finding::{Finding, Missing, NotChecked, ObjectRef, Report, Severity, all_known};

/// Where each check is explained.
const LINK: &str = "docs/postflight.md";

/// What the upgrade was for, as the ISO says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The operating system of upgraded nodes.
    pub os: Option<String>,
    /// The version of RKE2.
    pub kubernetes: Option<String>,
}

impl Target {
    /// Of a plan, once its upgrade has come to the nodes: before that none is to run the new system.
    #[must_use]
    pub fn of(plan: &UpgradePlan) -> Self {
        let status = plan.status.as_ref().filter(|status| {
            let mut history = status.phase_transition_timestamps.iter();
            history.any(|change| change.phase == Phase::NodeUpgrading.as_str())
        });
        let release = status.and_then(|status| status.release_metadata.as_ref());
        Self {
            os: release.and_then(|release| release.os.clone()),
            kubernetes: release.and_then(|release| release.kubernetes.clone()),
        }
    }
}

/// What is compared.
struct Pair<'a> {
    before: &'a Record,
    after: &'a Record,
    target: &'a Target,
}

/// What a check found: how bad it is, which objects, and in words.
struct Difference {
    severity: Severity,
    objects: Vec<ObjectRef>,
    message: String,
    commands: Vec<String>,
}

/// A check.
pub struct Check {
    /// Its id.
    pub id: &'static str,
    /// What it looks for.
    pub title: &'static str,
    /// What helps.
    pub remedy: &'static str,
    compare: fn(&Pair<'_>) -> Result<Option<Difference>, Missing>,
}

/// All checks.
pub const CHECKS: [Check; 11] = [
    vms::F01,
    vms::F02,
    volumes::F03,
    volumes::F04,
    nodes::F05,
    nodes::F06,
    nodes::F07,
    settings::F08,
    workloads::F09,
    settings::F10,
    workloads::F11,
];

/// Compares the cluster before an upgrade with the cluster after it. The worst comes first.
#[must_use]
pub fn compare(before: &Record, after: &Record, target: &Target) -> Report {
    let pair = Pair { before, after, target };
    let mut report = Report::default();
    for check in &CHECKS {
        match (check.compare)(&pair) {
            Ok(found) => {
                report.checked += 1;
                report.findings.extend(found.map(|difference| Finding {
                    id: check.id.to_owned(),
                    severity: difference.severity,
                    objects: difference.objects,
                    since: None,
                    message: difference.message,
                    remedy: check.remedy.to_owned(),
                    commands: difference.commands,
                    link: format!("{LINK}#{}", check.id.to_lowercase()),
                    overridden_by: None,
                }));
            }
            Err(missing) => report.not_checked.push(NotChecked {
                id: check.id.to_owned(),
                title: check.title.to_owned(),
                why: missing.to_string(),
            }),
        }
    }
    report.sort();
    report
}

/// Compares the cluster before an upgrade with a snapshot of it. VMs of namespaces that the snapshot does not have are not compared,
/// and the report says so.
#[must_use]
pub fn compare_with(before: &Record, after: &Snapshot, target: &Target) -> Report {
    let mut before = before.clone();
    let mut unknown = BTreeSet::new();
    if let Ok(vms) = &mut before.vms {
        vms.retain(|name, _| {
            let namespace = name.split('/').next().unwrap_or_default();
            let is_known = after.knows_namespace(namespace);
            if !is_known {
                unknown.insert(namespace.to_owned());
            }
            is_known
        });
    }
    let mut report = compare(&before, &Record::of(after), target);
    if let Err(missing) = all_known(Vec::<Finding>::new(), &unknown, "virtualmachines") {
        for check in [&vms::F01, &vms::F02] {
            report.not_checked.push(NotChecked {
                id: check.id.to_owned(),
                title: check.title.to_owned(),
                why: missing.to_string(),
            });
        }
        report.sort();
    }
    report
}

/// So many details are in a message; the others are counted.
const DETAILS: usize = 5;

/// Details in a sentence; those after the first ones are counted.
fn listed(details: &[String]) -> String {
    let mut text = details.iter().take(DETAILS).cloned().collect::<Vec<_>>().join(", ");
    if details.len() > DETAILS {
        text.push_str(&format!(" and {} more", details.len() - DETAILS));
    }
    text
}

/// An object by its key `namespace/name`, or its name.
fn object(kind: &str, key: &str) -> ObjectRef {
    match key.split_once('/') {
        Some((namespace, name)) => ObjectRef::new(kind, Some(namespace), name),
        None => ObjectRef::new(kind, None, key),
    }
}

/// A command for each of the first objects.
fn commands<'a>(keys: impl Iterator<Item = &'a str>, command: impl Fn(&str, &str) -> String) -> Vec<String> {
    let split = keys.take(DETAILS).map(|key| key.split_once('/').unwrap_or(("", key)));
    split.map(|(namespace, name)| command(namespace, name)).collect()
}
