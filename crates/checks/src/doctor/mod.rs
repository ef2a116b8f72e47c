//! `doctor`: why an upgrade does not get on. Forty-eight known situations, each one function over a [`Patient`] and one line in
//! [`SITUATIONS`].
//!
//! Pure: no client, no clock. A situation that needs a kind which could not be read says so, and the others still look.

mod after;
mod charts;
mod control;
mod drain;
mod found;
mod iso;
mod machine;
mod migration;
mod patient;
mod planner;
mod preload;
mod reboot;
mod repository;
mod selector;
mod unexplained;
mod vms;
mod volumes;
mod workloads;

use api::{ProgramWait, UpgradePlan, Wait};
use snapshot::Snapshot;

pub use patient::Patient;

use crate::finding::{Finding, Missing, NotChecked, Report, Severity};

/// What a plan waits for when it is in a situation: a name of `status.waitingFor[].what`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    /// A wait of the plan itself.
    Plan(Wait),
    /// A wait of a program in one of its Jobs.
    Program(ProgramWait),
}

impl Leads {
    /// The name in `status.waitingFor[].what`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plan(wait) => wait.as_str(),
            Self::Program(wait) => wait.as_str(),
        }
    }
}

/// A situation in which upgrades get stuck.
pub struct Situation {
    /// `D01` … `D46`.
    pub id: &'static str,
    /// What people see.
    pub symptom: &'static str,
    /// Why.
    pub cause: &'static str,
    /// What helps, in general. A finding may say it more exactly.
    pub remedy: &'static str,
    /// What the plan waits for meanwhile.
    pub leads: &'static [Leads],
    /// Looks for it.
    pub look: fn(&Patient<'_>) -> Result<Vec<Finding>, Missing>,
}

impl Situation {
    /// Where to read on.
    #[must_use]
    pub fn link(&self) -> String {
        format!("docs/doctor.md#{}", self.id.to_lowercase())
    }
}

/// All situations, by id.
pub static SITUATIONS: [&Situation; 48] = [
    &drain::D01,
    &drain::D02,
    &volumes::D03,
    &volumes::D04,
    &volumes::D05,
    &volumes::D06,
    &volumes::D07,
    &migration::D08,
    &migration::D09,
    &migration::D10,
    &vms::D11,
    &vms::D12,
    &vms::D13,
    &vms::D14,
    &charts::D15,
    &charts::D16,
    &workloads::D17,
    &workloads::D18,
    &workloads::D19,
    &planner::D20,
    &planner::D21,
    &planner::D22,
    &machine::D23,
    &machine::D24,
    &machine::D25,
    &machine::D26,
    &drain::D27,
    &preload::D28,
    &preload::D29,
    &preload::D30,
    &iso::D31,
    &iso::D32,
    &iso::D33,
    &repository::D34,
    &repository::D34B,
    &repository::D35,
    &repository::D36,
    &reboot::D37,
    &reboot::D38,
    &drain::D39,
    &reboot::D40,
    &after::D41,
    &control::D42,
    &control::D43,
    &reboot::D44,
    &control::D45,
    &charts::D45B,
    &control::D46,
];

/// Looks for all situations. The worst comes first.
#[must_use]
pub fn examine(snapshot: &Snapshot) -> Report {
    let patient = Patient::of(snapshot);
    let mut report = Report::default();
    for situation in SITUATIONS {
        match (situation.look)(&patient) {
            Ok(found) => {
                report.checked += 1;
                report
                    .findings
                    .extend(found.into_iter().map(|finding| completed(situation, finding)));
            }
            Err(missing) => report.not_checked.push(NotChecked {
                id: situation.id.to_owned(),
                title: situation.cause.to_owned(),
                why: missing.to_string(),
            }),
        }
    }
    report.sort();
    report
}

/// The same for people: a plan that failed or is stalled, and that no situation explains, is found with its own words.
#[must_use]
pub fn explain(snapshot: &Snapshot) -> Report {
    let mut report = examine(snapshot);
    if report.count(Severity::Error) == 0
        && let Some(finding) = unexplained::look(&Patient::of(snapshot))
    {
        report.findings.push(finding);
        report.sort();
    }
    report
}

/// What follows from the situation is the same in all its findings.
fn completed(situation: &Situation, mut finding: Finding) -> Finding {
    situation.id.clone_into(&mut finding.id);
    finding.link = situation.link();
    if finding.remedy.is_empty() {
        situation.remedy.clone_into(&mut finding.remedy);
    }
    finding
}

/// The situation of an id.
#[must_use]
pub fn situation(id: &str) -> Option<&'static Situation> {
    SITUATIONS.into_iter().find(|situation| situation.id == id)
}

/// The finding that explains why a plan waits: the worst of those that its waits lead to, and among these one about the object
/// that it waits for. A plan that does not wait has none.
#[must_use]
pub fn for_plan<'a>(report: &'a Report, plan: &UpgradePlan) -> Option<&'a Finding> {
    let waits = plan.status.as_ref().map(|status| status.waiting_for.as_slice());
    let waits = waits.unwrap_or_default();
    let rank = |finding: &Finding| {
        let situation = situation(&finding.id)?;
        let leading: Vec<_> = waits
            .iter()
            .filter(|wait| situation.leads.iter().any(|leads| leads.name() == wait.what))
            .collect();
        if leading.is_empty() {
            return None;
        }
        let is_named = leading.iter().any(|wait| {
            let object = wait.object.as_deref().unwrap_or_default();
            finding.objects.iter().any(|about| about.to_string() == object)
        });
        Some((finding.severity, !is_named))
    };
    let ranked = report
        .findings
        .iter()
        .filter_map(|finding| Some((rank(finding)?, finding)));
    // Of equals the first: the report is sorted.
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, finding)| finding)
}
