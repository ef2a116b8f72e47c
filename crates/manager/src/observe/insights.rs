//! Known situations that explain why a plan is stalled, found among what the caches hold.
//!
//! The caches hold less than `upgrade-toolkit doctor` reads: a situation that needs more is not looked for here. Lists that are
//! not whole (pods, Deployments, settings) are left out, since from what is missing in them nothing follows.

use std::{collections::BTreeMap, sync::Arc};

use api::{
    Insight, UpgradePlan,
    quoted::{LONGEST_MESSAGE, plain},
    reasons,
};
use cache::Cache;
use checks::{
    doctor,
    finding::{Finding, Severity},
};
use jiff::{SignedDuration, Timestamp};
use kube::{Resource, ResourceExt};
use snapshot::{ListedOnce, SecretSummary, Snapshot};

use crate::watched::Watched;

/// How often a stalled plan is looked at: the caches of a large cluster take a while to go through.
const AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// As many are shown.
const MAX_SHOWN: usize = 8;

/// What was found last, per plan.
#[derive(Default)]
pub(crate) struct Insights(BTreeMap<String, (Timestamp, Vec<Insight>)>);

impl Insights {
    /// What explains that the plan is stalled; nothing while it is not.
    pub(crate) fn of(&mut self, watched: &Watched, plan: &UpgradePlan, now: Timestamp) -> Vec<Insight> {
        let uid = plan.uid().unwrap_or_default();
        if !is_stalled(plan) {
            self.0.remove(&uid);
            return Vec::new();
        }
        if let Some((at, found)) = self.0.get(&uid)
            && now.duration_since(*at) < AGAIN_AFTER
        {
            return found.clone();
        }
        let found = look(&snapshot(watched, now), plan);
        self.0.insert(uid, (now, found.clone()));
        found
    }

    /// Forgets plans that are gone.
    pub(crate) fn keep(&mut self, plans: &[Arc<UpgradePlan>]) {
        self.0
            .retain(|uid, _| plans.iter().any(|plan| plan.metadata.uid.as_ref() == Some(uid)));
    }
}

/// A wait of the plan is past its deadline.
fn is_stalled(plan: &UpgradePlan) -> bool {
    plan.condition(reasons::DEGRADED)
        .is_some_and(|condition| condition.status == "True" && condition.reason == reasons::STALLED)
}

/// What explains the waits of the plan first, then what else is wrong.
fn look(snapshot: &Snapshot, plan: &UpgradePlan) -> Vec<Insight> {
    let report = doctor::examine(snapshot);
    let first = doctor::for_plan(&report, plan);
    let others = report
        .findings
        .iter()
        .filter(|finding| first.is_none_or(|first| first != *finding));
    first
        .into_iter()
        .chain(others)
        .filter(|finding| finding.severity != Severity::Info)
        .take(MAX_SHOWN)
        .map(insight)
        .collect()
}

/// A finding as a status has it.
pub(crate) fn insight(finding: &Finding) -> Insight {
    Insight {
        id: finding.id.clone(),
        severity: finding.severity.to_string(),
        object: finding.objects.first().map(ToString::to_string),
        message: plain(&finding.message, LONGEST_MESSAGE),
        remedy: plain(&finding.remedy, LONGEST_MESSAGE),
    }
}

/// What the caches hold whole, as a snapshot.
pub(crate) fn snapshot(watched: &Watched, now: Timestamp) -> Snapshot {
    Snapshot {
        plans: listed(&watched.plans),
        nodes: listed(&watched.nodes),
        versions: listed(&watched.versions),
        images: listed(&watched.images),
        suc_plans: listed(&watched.suc_plans),
        jobs: both(&watched.jobs, &watched.suc_jobs),
        machines: listed(&watched.machines),
        machine_plans: listed(&watched.secrets).map(|secrets| {
            let summaries = secrets.iter().cloned().map(SecretSummary::from);
            summaries.collect::<Vec<_>>().into()
        }),
        rancher_clusters: listed(&watched.clusters),
        managed_charts: listed(&watched.managed_charts),
        kubevirts: listed(&watched.kubevirts),
        config_maps: listed(&watched.config_maps),
        ..Snapshot::unknown(now, "the manager does not watch it")
    }
}

/// All that a cache holds.
pub(crate) fn listed<K>(cache: &Cache<K>) -> ListedOnce<K>
where
    K: Clone + Resource<DynamicType = ()>,
{
    let objects = cache.list().into_iter();
    Ok(objects.map(|object| (*object).clone()).collect::<Vec<_>>().into())
}

fn both<K>(one: &Cache<K>, other: &Cache<K>) -> ListedOnce<K>
where
    K: Clone + Resource<DynamicType = ()>,
{
    let objects = one.list().into_iter().chain(other.list());
    Ok(objects.map(|object| (*object).clone()).collect::<Vec<_>>().into())
}
