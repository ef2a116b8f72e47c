//! NodeUpgrade: nodes are upgraded one by one, by Rancher with our hooks, or by one Job where there is only one node.

mod evaluate;
mod gate;
mod nodes;
mod prepare;

use api::{JobType, Wait, annotations, names};
pub(crate) use evaluate::{listed, restore_vms, restores_vms};
pub(crate) use gate::{is_gated_for_another, take_over_again};
pub(crate) use nodes::look_at_jobs;

use super::{hooks, node_progress::node_progress};
use crate::{
    decision::Action,
    draft::{Draft, Outcome},
    node::Stage,
};

/// Prepares the cluster: every change is recorded first.
pub fn enter(draft: &mut Draft<'_>) -> Outcome {
    prepare::prepare(draft)
}

/// Sees every node through.
pub fn run(draft: &mut Draft<'_>) -> Outcome {
    let single = draft.status().single_node.clone();
    if let Some(why) = no_longer_alone(draft) {
        return Outcome::Fail(why);
    }
    if single.is_none()
        && let Some(outcome) = provision(draft)
    {
        return outcome;
    }
    nodes::look_at_jobs(draft);
    nodes::show_paused_nodes(draft);
    nodes::look_at_reboots(draft);
    nodes::mark_already_upgraded(draft);
    nodes::look_at_membership(draft);
    match single {
        Some(node) if !stage(draft, &node).has_ended_first_job() => {
            hooks::ensure_job(draft, JobType::SingleNodeUpgrade, &node);
        }
        Some(_) => {}
        None => hooks::answer_all(draft),
    }
    evaluate::evaluate(draft)
}

/// The progress of a node.
fn stage(draft: &Draft<'_>, node: &str) -> Stage {
    node_progress(draft, node).map(Stage::of).unwrap_or_default()
}

/// Why the only node of the cluster is not upgraded as such: another one has joined since the plan began. Stopping all VMs is
/// for a cluster that has no other node, and Rancher would upgrade the other one undrained. What has begun continues.
fn no_longer_alone(draft: &Draft<'_>) -> Option<String> {
    let single = draft.status().single_node.as_ref()?;
    let job = names::node_job(draft.plan_name(), JobType::SingleNodeUpgrade, single);
    let runs = draft.observed.jobs.get(&job).is_some_and(|job| !job.suspended);
    let has_begun = runs || stage(draft, single).has_started();
    let joined = draft.observed.nodes.keys().find(|name| *name != single)?;
    (!has_begun).then(|| {
        format!(
            "Node {joined} joined after the plan began, which is for a cluster of one node and would stop all VMs: create \
             another UpgradePlan, which upgrades the nodes one by one"
        )
    })
}

/// Makes Rancher upgrade the nodes, once. The new generation of the cluster is recorded before it is set. A
/// cluster that already goes to this version behind our hooks is taken over as it is.
fn provision(draft: &mut Draft<'_>) -> Option<Outcome> {
    let Some(cluster) = &draft.observed.cluster else {
        let object = Some("Cluster fleet-local/local".to_owned());
        return Some(
            draft
                .wait(Wait::Cluster, object, "the Rancher cluster is missing")
                .into(),
        );
    };
    let release = draft.status().release_metadata.clone().unwrap_or_default();
    let Some(kubernetes_version) = release.kubernetes else {
        return Some(Outcome::Fail(
            "kubernetes version not found in release metadata".to_owned(),
        ));
    };
    let from = cluster.provision_generation;
    // The annotation alone proves nothing: any user can set one.
    let taken_over = draft.noted(annotations::TAKEN_OVER) == Some("true")
        && cluster.kubernetes_version.as_deref() == Some(kubernetes_version.as_str());
    let wanted = if taken_over { from } else { from + 1 };
    let to = *draft.record().provision_generation.get_or_insert(wanted);
    if from < to {
        let saved = draft.noted(annotations::SAVED_UPGRADE_STRATEGY);
        let saved_strategy = saved.unwrap_or("null").to_owned();
        draft.act(Action::ProvisionCluster {
            kubernetes_version,
            from,
            to,
            saved_strategy,
            os: release.os.unwrap_or_default(),
        });
    }
    None
}

/// Rancher must have finished with every node, and every VM must have had its chance to start again.
pub fn leave(draft: &mut Draft<'_>) -> Outcome {
    let observed = draft.observed;
    for name in draft.status().node_upgrade_statuses.keys().cloned().collect::<Vec<_>>() {
        evaluate::restore_vms(draft, &name);
    }
    nodes::forget_boots(draft);
    if draft.status().single_node.is_some() {
        return Outcome::Done;
    }
    hooks::answer_all(draft);
    let Some(open) = observed.machine_plans.iter().find(|plan| plan.is_in_drain()) else {
        return Outcome::Done;
    };
    let is_updated = open.post_drain.as_deref().is_some_and(|token| !token.is_empty());
    let annotation = match is_updated {
        true => annotations::RKE_POST_DRAIN,
        false => annotations::RKE_PRE_DRAIN,
    };
    let message = format!(
        "waiting for Rancher to complete node upgrades: secret {} still has {annotation} annotation",
        open.secret
    );
    let object = Some(format!("Secret fleet-local/{}", open.secret));
    draft.wait(Wait::RancherCompletion, object, message).into()
}
