//! Other upgrades: one at a time.

use api::{
    Phase, UpgradePlan,
    foreign::{condition_is, harvester},
    names, reasons,
};
use kube::ResourceExt;

use crate::{Cluster, FieldError};

use super::{SPEC, all, condition_is_true, within};

/// On a V1 Upgrade: where it stands.
const V1_STATE: &str = "harvesterhci.io/upgradeState";
/// Values of [`V1_STATE`] at which a V1 Upgrade has ended.
const V1_ENDED: [&str; 2] = ["Succeeded", "Failed"];

/// The plan is under way.
pub(super) fn progresses(plan: &UpgradePlan) -> bool {
    condition_is_true(plan, reasons::PROGRESSING)
}

/// Plans of another name. A plan whose name is yet to be generated is none of those that exist.
fn others<'a>(plan: &UpgradePlan, cluster: &'a Cluster) -> Result<impl Iterator<Item = &'a UpgradePlan>, FieldError> {
    let name = plan.metadata.name.clone();
    let plans = all(&cluster.plans, "upgradeplans")?.iter();
    Ok(plans.filter(move |other| other.metadata.name != name))
}

pub(super) fn none_progresses(plan: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let running = others(plan, cluster)?.find(|other| progresses(other));
    let error = running.map(|other| {
        let why = format!("another upgrade \"{}\" is in progress", other.name_any());
        FieldError::forbidden(SPEC, why)
    });
    Ok(error.into_iter().collect())
}

pub(super) fn none_cleans_up(plan: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let cleaning = others(plan, cluster)?.filter(|other| other.phase() == Some(Phase::CleaningUp));
    let errors = cleaning.map(|other| {
        let why = format!("upgrade \"{}\" is still cleaning up", other.name_any());
        FieldError::forbidden(SPEC, why)
    });
    Ok(errors.collect())
}

/// Ours: an upgrade of the older kind changes the same nodes, charts and settings.
pub(super) fn no_v1_upgrade_runs(_: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let upgrades = within(&cluster.v1_upgrades, "upgrades", names::HARVESTER_NAMESPACE)?;
    let running = upgrades.into_iter().filter(|upgrade| !has_ended(upgrade));
    let errors = running.map(|upgrade| {
        let why = format!(
            "a V1 upgrade (upgrades.harvesterhci.io) \"{}\" is in progress, please wait for it to end",
            upgrade.name_any()
        );
        FieldError::forbidden(SPEC, why)
    });
    Ok(errors.collect())
}

/// A V1 Upgrade has come to its end.
pub(super) fn has_ended(upgrade: &harvester::Upgrade) -> bool {
    let state = upgrade.labels().get(V1_STATE);
    let conditions = upgrade.status.conditions.as_deref().unwrap_or_default();
    // Completed is Unknown while the upgrade runs, then True or False.
    state.is_some_and(|state| V1_ENDED.contains(&state.as_str())) || condition_is(conditions, "Completed").is_some()
}
