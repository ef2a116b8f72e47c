//! A failed plan and an additional one: whatever the second did, a retry of the first one ends, and nothing
//! is taken back.

use std::{collections::BTreeSet, sync::Arc};

use api::{JobKind, Phase, UpgradePlan};
use apiserver::Verb;
use cli::rehearsal::Rehearsal;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use world::Troubles;

use crate::invariants::job_kind;

use super::{
    failure::Failure,
    jobs,
    play::{self, LIMIT, has_ended, words},
    ways::Way,
};

/// The other release. Its RKE2 is another one too.
pub(super) const ANOTHER: &str = "v1.8.1";

/// The second plan, then the first one again; the plan that is to end well. Causes are out of the way.
pub(super) async fn continue_after(
    rehearsal: &Rehearsal,
    failure: &Failure,
    way: Way,
    first: String,
) -> Result<String, Vec<String>> {
    match way {
        Way::RetriesAfterAFailure => {
            rehearsal.set_troubles(elsewhere(failure));
            let second = play::create(rehearsal, failure).await;
            fails(rehearsal, &second, &["node"]).await?;
            rehearsal.set_troubles(Troubles::default());
        }
        Way::IsRefusedThenRetries => {
            let second = create_for_another(rehearsal, failure).await;
            let plan = fails(rehearsal, &second, &[&first, "node-", "Harvester v1.8.0"]).await?;
            let status = plan.status.clone().unwrap_or_default();
            let mut history = status.phase_transition_timestamps.iter();
            if history.any(|change| change.phase == Phase::ImagePreloading.as_str()) {
                return Err(vec![format!("{second} was refused too late")]);
            }
        }
        Way::UpgradesToAnother => {
            let second = create_for_another(rehearsal, failure).await;
            succeeds(rehearsal, &second).await?;
            play::ask(rehearsal, &first).await;
            let is_refused = |plan: &UpgradePlan| has_ended(plan) && words(plan).contains(ANOTHER);
            if rehearsal.follow(&first, Some(LIMIT), is_refused).await.is_none() {
                return Err(vec![play::not_ended(rehearsal, &first).await]);
            }
            return Ok(second);
        }
        _ => {
            let second = play::create(rehearsal, failure).await;
            succeeds(rehearsal, &second).await?;
            let so_far = rehearsal.server.store().history().len();
            play::try_again(rehearsal, &first).await;
            succeeds(rehearsal, &first).await?;
            return match touched(rehearsal, so_far) {
                touched if touched.is_empty() => Ok(first),
                touched => Err(vec![format!(
                    "nodes that are done are touched again: {}",
                    touched.join(", ")
                )]),
            };
        }
    }
    play::try_again(rehearsal, &first).await;
    Ok(first)
}

/// What has been done to nodes since so many writes: they were cordoned, or a Job that empties or upgrades one was made. Jobs
/// that start what the first plan had stopped do nothing to nodes.
fn touched(rehearsal: &Rehearsal, so_far: usize) -> Vec<String> {
    let upgrades = [JobKind::PreDrain, JobKind::PostDrain, JobKind::SingleNodeUpgrade];
    let history = rehearsal.server.store().history().into_iter().skip(so_far);
    let made = history.filter_map(|write| {
        let object = write.object.filter(|_| write.changed)?;
        let kind = job_kind(&object);
        let is_job = write.verb == Verb::Create && write.resource.plural == "jobs";
        let is_upgrade = is_job && kind.is_some_and(|kind| upgrades.contains(&kind));
        let is_cordoned = write.resource.plural == "nodes" && object["spec"]["unschedulable"] == true;
        (is_upgrade || is_cordoned).then(|| format!("{} {}", write.resource.plural, write.name))
    });
    let made: BTreeSet<String> = made.collect();
    made.into_iter().collect()
}

/// What goes wrong for the second plan: the same kind of step, of the node after the one that failed, or of the last. Where the
/// first one had not sent Rancher off, what comes first of a node.
fn elsewhere(failure: &Failure) -> Troubles {
    let troubles = failure.troubles();
    let failed = troubles.jobs.first().and_then(|job| job.node.clone());
    let is_early = troubles
        .jobs
        .iter()
        .any(|job| jobs::kind_of(job) == JobKind::SkipManifestsApply);
    let next = if failed.as_deref() == Some("node-1") {
        "node-2"
    } else {
        "node-3"
    };
    let step = if is_early {
        JobKind::PreDrain
    } else {
        JobKind::PostDrain
    };
    jobs::trouble(step, Some(next), jobs::FAILS)
}

async fn ends(rehearsal: &Rehearsal, name: &str) -> Result<Arc<UpgradePlan>, Vec<String>> {
    match rehearsal.follow(name, Some(LIMIT), has_ended).await {
        Some(plan) => Ok(plan),
        None => Err(vec![play::not_ended(rehearsal, name).await]),
    }
}

async fn succeeds(rehearsal: &Rehearsal, name: &str) -> Result<(), Vec<String>> {
    let plan = ends(rehearsal, name).await?;
    match plan.phase() {
        Some(Phase::Succeeded) => Ok(()),
        _ => Err(vec![words(&plan)]),
    }
}

/// A plan fails, and says why.
async fn fails(rehearsal: &Rehearsal, name: &str, why: &[&str]) -> Result<Arc<UpgradePlan>, Vec<String>> {
    let plan = ends(rehearsal, name).await?;
    let said = words(&plan);
    let is_said = why.iter().all(|word| said.contains(word));
    match plan.phase() {
        Some(Phase::Failed) if is_said => Ok(plan),
        _ => Err(vec![format!("it should have failed with {why:?}: {said}")]),
    }
}

/// Creates the other release's Version, and a plan for it; the plan's name.
async fn create_for_another(rehearsal: &Rehearsal, failure: &Failure) -> String {
    let mut known = rehearsal.objects("harvesterhci.io", "versions").into_iter();
    let mut version = known.find(|version| version.name_any() == "v1.8.0").unwrap();
    let kind = GroupVersionKind::gvk("harvesterhci.io", "v1beta1", "Version");
    let namespace = version.namespace().unwrap();
    version.metadata = kube::core::ObjectMeta {
        name: Some(ANOTHER.to_owned()),
        namespace: Some(namespace.clone()),
        ..Default::default()
    };
    let resource = ApiResource::from_gvk(&kind);
    let versions: Api<DynamicObject> = Api::namespaced_with(rehearsal.server.client(), &namespace, &resource);
    versions.create(&PostParams::default(), &version).await.unwrap();
    let mut plan = play::wanted(rehearsal, failure, &[]);
    plan.spec.version = Some(ANOTHER.to_owned());
    rehearsal.create(&plan).await.unwrap().name_any()
}
