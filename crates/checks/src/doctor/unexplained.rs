//! A plan that failed or is stalled for a reason that is none of the situations: its own words, and how to continue.

use api::{Phase, quoted::quoted, reasons};

use super::{
    Patient,
    found::{More, error, name},
};
use crate::finding::{Finding, ObjectRef};

/// Its id: none of the table.
const ID: &str = "D00";
const LINK: &str = "docs/troubleshooting.md";
const RETRY: &str = "kubectl annotate upgradeplan {} management.harvesterhci.io/retry=again --overwrite";

/// The finding, if the plan calls for an administrator.
pub(super) fn look(patient: &Patient<'_>) -> Option<Finding> {
    let plan = patient.subject().ok()??;
    let has_failed = plan.phase() == Some(Phase::Failed);
    let degraded = plan
        .condition(reasons::DEGRADED)
        .filter(|condition| condition.status == "True");
    let said = if has_failed {
        plan.condition(reasons::PROGRESSING).or(degraded)
    } else {
        Some(degraded?)
    };
    let words = said.map(|condition| condition.message.as_str()).unwrap_or_default();
    let what = if has_failed { "has failed" } else { "does not continue" };
    let message = format!("UpgradePlan {} {what}: {}", name(plan), quoted(words));
    let finding = error(ObjectRef::of(plan), message)
        .since(said.map(|condition| condition.last_transition_time.0))
        .command("kubectl describe upgradeplan {}", &[name(plan)]);
    let mut finding = if has_failed {
        finding.command(RETRY, &[name(plan)])
    } else {
        finding.command("upgrade-toolkit status {}", &[name(plan)])
    };
    ID.clone_into(&mut finding.id);
    LINK.clone_into(&mut finding.link);
    finding.remedy = if has_failed {
        "Remove the cause that the message names, then retry the plan.".to_owned()
    } else {
        "Look at what the plan waits for: the page lists every wait with its remedy.".to_owned()
    };
    Some(finding)
}
