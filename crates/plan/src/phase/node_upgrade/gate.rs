//! Rancher's gate: our hooks, behind which it upgrades nodes to one release and no other.

use api::annotations;
use serde_json::Value;

use super::super::node_progress;
use crate::{draft::Draft, observed::ObservedMachinePlan, retry};

/// The strategy that an upgrade of ours puts in place.
pub(super) fn is_ours(strategy: &Value) -> bool {
    let hooks = &strategy["controlPlaneDrainOptions"]["preDrainHooks"];
    hooks
        .as_array()
        .into_iter()
        .flatten()
        .any(|hook| hook["annotation"] == annotations::PRE_HOOK)
}

/// Why the nodes cannot be upgraded to the release of this plan: an earlier one was interrupted while Rancher upgraded them to
/// another release. Rancher upgrades the node that the cluster began with first, so a node between its hooks would wait for an
/// RKE2 that it gets only afterwards, while that first node waits for its turn; and Rancher does not request
/// completed nodes. The rolling upgrade that has begun must end first.
pub(crate) fn is_gated_for_another(draft: &Draft<'_>) -> Option<String> {
    let observed = draft.observed;
    let cluster = observed.cluster.as_ref()?;
    // A cluster of one node does without Rancher.
    if draft.status().single_node.is_some() || !is_ours(cluster.upgrade_strategy.as_ref()?) {
        return None;
    }
    let release = draft.status().release_metadata.as_ref()?;
    let begun_by = |os: &str| {
        let mut others = observed.other_plans.iter().rev();
        others.find(|other| other.begun.as_ref().is_some_and(|begun| begun.os == os))
    };
    let gated = cluster.gated_release.as_deref();
    let is_same_system = gated.is_none_or(|gated| release.os.as_deref() == Some(gated));
    if is_same_system && cluster.kubernetes_version == release.kubernetes {
        return None;
    }
    let to = gated.unwrap_or("another release");
    let by = gated.and_then(begun_by);
    let by_whom = by.map_or_else(
        || "an UpgradePlan that is gone".to_owned(),
        |by| format!("UpgradePlan {}", by.name),
    );
    let between = |plan: &ObservedMachinePlan| plan.is_in_drain().then(|| plan.node.clone()).flatten();
    let between: Vec<String> = observed.machine_plans.iter().filter_map(between).collect();
    let nodes = match between.as_slice() {
        [] => "not all nodes run it".to_owned(),
        [one] => format!("Node {one} is between both releases"),
        more => format!("Nodes {} are between both releases", more.join(", ")),
    };
    let remedy = match by {
        Some(by) => format!("try {} again (annotation {}), or create", by.name, annotations::RETRY),
        None => "create".to_owned(),
    };
    Some(format!(
        "{by_whom} has begun to upgrade nodes to {to} ({}) and was broken off: {nodes}. {remedy} an UpgradePlan for {to}; when \
         all nodes run it, upgrade to {}",
        cluster.kubernetes_version.as_deref().unwrap_or("unknown RKE2"),
        release.os.as_deref().unwrap_or("this release")
    ))
}

/// A retry of a plan that had started Rancher: in the meantime another plan may have upgraded its nodes, so what they run
/// counts, not only what this plan remembers.
pub(crate) fn take_over_again(draft: &mut Draft<'_>) {
    let Some(cluster) = &draft.observed.cluster else { return };
    let status = draft.status();
    let target = status
        .release_metadata
        .as_ref()
        .and_then(|release| release.kubernetes.as_ref());
    let has_started = status
        .provision_generation
        .is_some_and(|ours| cluster.provision_generation >= ours);
    if has_started && cluster.kubernetes_version.as_ref() == target {
        draft.note(annotations::TAKEN_OVER, Some("true".to_owned()));
    }
}

/// A retry of a plan that never started Rancher, after another plan has upgraded all nodes to its release: starting Rancher
/// again would drain every node again. From a version to itself nodes run the release from the beginning, and that
/// says nothing, unless another plan has upgraded all nodes since this one failed.
pub(super) fn is_done_by_another(draft: &Draft<'_>) -> bool {
    let (status, observed) = (draft.status(), draft.observed);
    let (Some(cluster), Some(failed_at)) = (&observed.cluster, retry::failed_at(status)) else {
        return false;
    };
    let release = status.release_metadata.clone().unwrap_or_default();
    let (Some(os), Some(kubernetes)) = (release.os, release.kubernetes) else {
        return false;
    };
    let began_elsewhere = status.previous_version.is_some() && status.previous_version != release.harvester;
    let by_another = observed.other_plans.iter().any(|other| {
        let begun = other.begun.as_ref();
        begun.is_some_and(|begun| begun.os == os && begun.nodes_done_at.is_some_and(|done| done > failed_at))
    });
    let kubelet = rules::version::kubelet_version(&kubernetes);
    let mut managed = observed.nodes.iter().filter(|(_, node)| node.managed);
    (began_elsewhere || by_another)
        && cluster.ready
        && cluster.kubernetes_version.as_ref() == Some(&kubernetes)
        && managed.all(|(name, node)| {
            let is_released = node_progress::machine_plan(draft, name).is_some_and(|plan| !plan.is_in_drain());
            node.ready && node.os_image == os && node.kubelet_version == kubelet && is_released
        })
}
