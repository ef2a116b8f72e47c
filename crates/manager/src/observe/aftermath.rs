//! What is seen of an upgrade that has ended: whether what it started has settled, and whether it can be compared with before.

use std::sync::Arc;

use api::{JobType, UpgradePlan, names};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use plan::{
    decide::is_active,
    look_back::{Aftermath, Comparison, ended_at},
};

use super::is_present_child;
use crate::{ours, watched::Watched};

/// What was there before the upgrade is stored.
pub(super) fn is_recorded(watched: &Watched, plan: &UpgradePlan) -> bool {
    let name = names::record_config_map(plan.metadata.name.as_deref().unwrap_or_default());
    let found = watched.config_maps.get(names::HARVESTER_NAMESPACE, &name);
    found.is_some_and(|map| is_present_child(map.as_ref(), plan))
}

/// What is seen of a plan that has ended.
pub(crate) fn aftermath(watched: &Watched, plan: &UpgradePlan, comparison: Comparison) -> Aftermath {
    let jobs = watched.jobs.list();
    let restores: Vec<Option<Timestamp>> = jobs
        .iter()
        .filter(|job| JobType::of(&job.metadata) == Some(JobType::RestoreVm) && ours::is_child(job.as_ref(), plan))
        .map(job_end)
        .collect();
    let volumes = watched.volumes.list();
    let mut robustness = volumes.iter().map(|volume| volume.status.robustness.as_deref());
    let rebuilds = robustness.any(|robustness| robustness == Some("degraded"));
    Aftermath {
        recorded: is_recorded(watched, plan),
        unsettled: rebuilds || restores.iter().any(Option::is_none),
        restored_at: restores.into_iter().flatten().max(),
        overtaken: is_overtaken(watched, plan),
        comparison,
    }
}

/// When a Job ended, if it has.
fn job_end(job: &Arc<Job>) -> Option<Timestamp> {
    let mut conditions = job.status.as_ref()?.conditions.iter().flatten();
    let ended = conditions.find(|one| ["Complete", "Failed"].contains(&one.type_.as_str()) && one.status == "True")?;
    Some(ended.last_transition_time.as_ref()?.0)
}

/// Another upgrade runs, or has ended later.
fn is_overtaken(watched: &Watched, plan: &UpgradePlan) -> bool {
    let plans = watched.plans.list();
    let mut others = plans.iter().filter(|other| other.metadata.uid != plan.metadata.uid);
    others.any(|other| is_active(other) || ended_at(other) > ended_at(plan))
}
