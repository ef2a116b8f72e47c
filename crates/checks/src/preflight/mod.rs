//! Before an upgrade: what would keep it from starting, or from completing. Every check is one function and one line of
//! [`CHECKS`]; the checks of admission are the same functions. It needs no plan and changes nothing.
//!
//! Pure: a snapshot and a plan, real or hypothetical, in; a [`Report`] out. A list that is missing makes a check say that it could
//! not look.

mod admitted;
mod certificates;
mod charts;
mod cluster;
mod disk;
mod evacuation;
mod found;
mod leftovers;
mod nodes;
mod placement;
mod platform;
mod processors;
mod release;
mod storage;
mod storage_network;
mod table;
mod vms;
mod volumes;
mod workloads;

use std::fmt;

use api::{UpgradePlan, UpgradePlanSpec};
use kube::ResourceExt;
use snapshot::Snapshot;

use crate::{
    Cluster, admission,
    cluster::server_version,
    finding::{Finding, Missing, NotChecked, Report, Severity, needed},
    known_issues::{self, KnownIssue},
};

pub use found::Found;
pub use table::CHECKS;

/// What a check is about. Findings are shown by group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The release: its Version, image, ISO.
    Release,
    /// The cluster as Rancher and Cluster API see it, and other upgrades.
    Cluster,
    /// Nodes.
    Nodes,
    /// Disks of nodes.
    Disk,
    /// Longhorn.
    Storage,
    /// VMs.
    Vms,
    /// Charts and addons.
    Charts,
    /// What runs in the cluster: KubeVirt, webhooks, controllers.
    Platform,
}

impl Group {
    /// All, in the order in which they are shown when they are equally bad.
    pub const ALL: [Self; 8] = [
        Self::Release,
        Self::Cluster,
        Self::Nodes,
        Self::Disk,
        Self::Storage,
        Self::Vms,
        Self::Charts,
        Self::Platform,
    ];
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Release => "release",
            Self::Cluster => "cluster",
            Self::Nodes => "nodes",
            Self::Disk => "disk",
            Self::Storage => "storage",
            Self::Vms => "vms",
            Self::Charts => "charts",
            Self::Platform => "platform",
        })
    }
}

/// What checks look at.
pub struct Question<'a> {
    /// The cluster.
    pub snapshot: &'a Snapshot,
    /// The same, as admission reads it.
    pub cluster: Cluster,
    /// The plan that is to run.
    pub plan: UpgradePlan,
}

impl<'a> Question<'a> {
    /// Of a cluster and a plan.
    #[must_use]
    pub fn new(snapshot: &'a Snapshot, plan: &UpgradePlan) -> Self {
        Self {
            snapshot,
            cluster: Cluster::from(snapshot),
            plan: plan.clone(),
        }
    }

    /// The version that runs.
    ///
    /// # Errors
    /// The settings are not known, or do not have it.
    pub fn running(&self) -> Result<&'a str, Missing> {
        let settings = needed(&self.snapshot.settings, "settings")?;
        server_version(settings).ok_or_else(|| missing("settings", "there is no setting server-version"))
    }

    /// The version to upgrade to.
    ///
    /// # Errors
    /// Neither is given, or it is in an ISO that was not read.
    pub fn target(&self) -> Result<&str, Missing> {
        match (&self.plan.spec.image, &self.plan.spec.version) {
            (None, Some(version)) => Ok(version),
            (Some(_), _) => Err(missing(
                "release",
                "the version of an image is in its ISO; use --version",
            )),
            (None, None) => Err(missing("release", "use --version or --image")),
        }
    }

    /// Another upgrade is under way: what it changes is no leftover.
    ///
    /// # Errors
    /// Plans or V1 upgrades are not known.
    pub fn is_upgrading(&self) -> Result<bool, Missing> {
        let plans = needed(&self.snapshot.plans, "upgradeplans")?;
        let upgrades = needed(&self.snapshot.v1_upgrades, "upgrades")?;
        let own = self.plan.metadata.name.as_deref();
        let other = |plan: &&UpgradePlan| plan.metadata.name.as_deref() != own;
        Ok(plans.iter().filter(other).any(admission::is_under_way)
            || upgrades.iter().any(admission::is_v1_upgrade_running))
    }
}

/// Something that a check needs is not known.
pub(crate) fn missing(kind: &str, why: &str) -> Missing {
    Missing {
        kind: kind.to_owned(),
        why: why.into(),
    }
}

/// A check of the cluster.
pub type Check = fn(&Question<'_>) -> Result<Vec<Found>, Missing>;

/// Where a check comes from.
#[derive(Clone, Copy)]
pub enum Look {
    /// A line of [`admission::CREATE`].
    Admission(usize),
    /// A function of this module about the same as a line of [`admission::CREATE`]: by the same rule it also finds what admission
    /// leaves to the manager. Skipping admission does not help against it.
    Wider(usize, Check),
    /// A function of this module.
    Own(Check),
}

/// A line of the table.
pub struct Row {
    /// `P01`, …
    pub id: &'static str,
    /// What it is about.
    pub group: Group,
    /// How bad it is, unless the check itself says otherwise.
    pub severity: Severity,
    /// What is true when all is well.
    pub title: &'static str,
    /// What helps when it is not.
    pub remedy: &'static str,
    /// How a user can go ahead all the same, if the check stops a plan.
    pub overridden_by: Option<&'static str>,
    /// The check.
    pub look: Look,
}

impl Row {
    /// Where its documentation is.
    #[must_use]
    pub fn link(&self) -> String {
        format!("docs/preflight.md#{}", self.id.to_lowercase())
    }

    fn run(&self, question: &Question<'_>) -> Result<Vec<Found>, Missing> {
        match self.look {
            Look::Admission(index) => admitted::run(index, question),
            Look::Wider(_, check) | Look::Own(check) => check(question),
        }
    }

    fn finding(&self, found: Found) -> Finding {
        Finding {
            id: self.id.to_owned(),
            severity: found.severity.unwrap_or(self.severity),
            objects: found.objects,
            since: found.since,
            message: found.message,
            remedy: self.remedy.to_owned(),
            commands: found.commands,
            link: self.link(),
            overridden_by: self.overridden_by.map(str::to_owned),
        }
    }
}

/// The line of the table with that id.
#[must_use]
pub fn row(id: &str) -> Option<&'static Row> {
    CHECKS.iter().find(|row| row.id == id)
}

/// Whether admission refuses the plan for what the line with that id has found.
#[must_use]
pub fn is_refused(id: &str, question: &Question<'_>) -> bool {
    let refuses = |index: usize| {
        let line = admission::CREATE.get(index);
        line.is_some_and(|(.., check)| check(&question.plan, &question.cluster).is_ok_and(|errors| !errors.is_empty()))
    };
    match row(id).map(|row| row.look) {
        Some(Look::Admission(_)) => true,
        Some(Look::Wider(index, _)) => refuses(index),
        Some(Look::Own(_)) | None => false,
    }
}

/// A plan that does not exist, for a version or an image.
#[must_use]
pub fn hypothetical(version: Option<&str>, image: Option<&str>) -> UpgradePlan {
    let spec = UpgradePlanSpec {
        version: version.map(str::to_owned),
        image: image.map(str::to_owned),
        ..UpgradePlanSpec::default()
    };
    // Its name is yet to be generated, so it is none of the plans that exist.
    UpgradePlan::new("", spec)
}

/// Runs every check.
#[must_use]
pub fn run(snapshot: &Snapshot, plan: &UpgradePlan) -> Report {
    run_with(&Question::new(snapshot, plan), &[])
}

/// Runs every check, and adds the known issues that apply.
#[must_use]
pub fn run_with(question: &Question<'_>, known: &[KnownIssue]) -> Report {
    let mut report = Report::default();
    for row in &CHECKS {
        match row.run(question) {
            Ok(found) => {
                report.checked += 1;
                report
                    .findings
                    .extend(found.into_iter().map(|found| row.finding(found)));
            }
            Err(missing) => report.not_checked.push(NotChecked {
                id: row.id.to_owned(),
                title: row.title.to_owned(),
                why: missing.to_string(),
            }),
        }
    }
    known_issues::add(&mut report, question, known);
    report.sort();
    report
}

/// `<namespace>/<name>`.
fn full_name<K: kube::Resource>(object: &K) -> String {
    let namespace = object.meta().namespace.as_deref().unwrap_or_default();
    if namespace.is_empty() {
        object.name_any()
    } else {
        format!("{namespace}/{}", object.name_any())
    }
}
