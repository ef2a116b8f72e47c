//! What is seen of nodes and their Jobs, joined into what each node has reached.

use std::collections::BTreeMap;

use api::{Component, JobType, NodeState, annotations, names, reasons};

use super::super::{
    hooks,
    node_progress::{self, node_progress},
    suc_plan,
};
use crate::{
    decision::Action,
    draft::Draft,
    node,
    observed::{ObservedMachinePlan, ObservedPod},
};
use rules::PlanEvent;

/// What Jobs say about their nodes.
pub(crate) fn look_at_jobs(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    for job in observed
        .jobs
        .values()
        .filter(|job| job.component == Component::NodeUpgrade && job.namespace == names::HARVESTER_NAMESPACE)
    {
        let (Some(node), Some(step)) = (&job.node, job.job_type) else {
            continue;
        };
        let states = match step {
            JobType::PreDrain => (NodeState::PreDraining, NodeState::PreDrained, NodeState::PreDrainFailed),
            JobType::PostDrain => (
                NodeState::PostDraining,
                NodeState::WaitingReboot,
                NodeState::PostDrainFailed,
            ),
            JobType::SingleNodeUpgrade => (
                NodeState::SingleNodeUpgrading,
                NodeState::WaitingReboot,
                NodeState::SingleNodeUpgradeFailed,
            ),
            JobType::RestoreVm => continue,
        };
        if job.suspended {
            let (reason, message) = why_paused(draft, node);
            draft.reach(node, NodeState::UpgradePaused, Some(reason), Some(message));
        } else {
            let outcome = suc_plan::with_last_message(draft, job);
            suc_plan::reach_by_job(draft, node, &outcome, states);
        }
    }
}

/// Why a node is paused: the user paused it, or has resumed it and it waits for its turn.
fn why_paused(draft: &Draft<'_>, node: &str) -> (&'static str, &'static str) {
    if hooks::is_paused(draft, node) {
        (reasons::ADMINISTRATIVELY_PAUSED, reasons::PAUSED_MESSAGE)
    } else {
        (reasons::RELEASED, reasons::RELEASED_MESSAGE)
    }
}

/// A node in pauseNodes is shown as paused from the start, not only when its turn has come. One that is resumed
/// before its turn says so, and stays where it is: a state never goes back.
pub(super) fn show_paused_nodes(draft: &mut Draft<'_>) {
    for name in suc_plan::managed_nodes(draft) {
        let step = if draft.status().single_node.is_some() {
            JobType::SingleNodeUpgrade
        } else {
            JobType::PreDrain
        };
        let job = names::node_job(draft.plan_name(), step, &name);
        // Its Job has its state.
        if draft.observed.jobs.contains_key(&job) {
            continue;
        }
        let paused = hooks::is_paused(draft, &name);
        let state = draft.progress(&name).state();
        if state == Some(NodeState::UpgradePaused) || (state == Some(NodeState::ImagePreloaded) && paused) {
            let (reason, message) = why_paused(draft, &name);
            draft.reach(&name, NodeState::UpgradePaused, Some(reason), Some(message));
        }
    }
}

/// A node is back when it is Ready, in another boot, with the new operating system. One that ran that system already,
/// and says that it armed no reboot, never left. One that came back with the old one for good has failed.
pub(super) fn look_at_reboots(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let Some(os) = draft
        .status()
        .release_metadata
        .as_ref()
        .and_then(|release| release.os.clone())
    else {
        return;
    };
    let single = draft.status().single_node.is_some();
    for (name, node) in &observed.nodes {
        if node_progress(draft, name) != Some(NodeState::WaitingReboot) {
            continue;
        }
        // Where the node went down by accident while its Job ran, the Job's next pod has armed the reboot in a later boot than
        // the one that was noted when the Job was made.
        let armed_in = armed_in(draft, name);
        let before = armed_in.or(node.boot_id_before_upgrade.as_ref());
        let rebooted = before.is_none_or(|before| *before != node.boot_id);
        if node.ready && node.os_image == os && (rebooted || armed_no_reboot(draft, name)) {
            let back = if single {
                NodeState::SingleNodeUpgraded
            } else {
                NodeState::PostDrained
            };
            draft.reach(name, back, None, None);
        } else if node.ready && rebooted && before.is_some() && !is_still_reported(draft, name) {
            let failed = if single {
                NodeState::SingleNodeUpgradeFailed
            } else {
                NodeState::PostDrainFailed
            };
            let text = format!(
                "it came back with {:?} instead of {os:?}: check its boot menu and its disk",
                node.os_image
            );
            draft.reach(name, failed, Some(reasons::OLD_OS_IMAGE), Some(&text));
        } else if node.pending_os_image.as_deref() != Some(&os) {
            let annotations = BTreeMap::from([(annotations::PENDING_OS_IMAGE.to_owned(), Some(os.clone()))]);
            draft.act(Action::AnnotateNode {
                node: name.clone(),
                annotations,
            });
        }
    }
    forget_boots(draft);
}

/// The Job that was to install a node's system has reported that there was nothing to install.
fn armed_no_reboot(draft: &Draft<'_>, name: &str) -> bool {
    installing_pods(draft, name).any(|pod| pod.no_reboot)
}

/// The boot in which the Job that installed a node's system has armed its reboot, if it has reported it.
fn armed_in<'a>(draft: &Draft<'a>, name: &str) -> Option<&'a String> {
    installing_pods(draft, name).find_map(|pod| pod.armed_in.as_ref())
}

/// The Job has ended, and the end of its pod is not observed yet: its termination message is not known.
fn is_still_reported(draft: &Draft<'_>, name: &str) -> bool {
    installing_pods(draft, name).any(|pod| pod.works)
}

/// Pods of the Job that installs a node's system.
fn installing_pods<'a>(draft: &Draft<'a>, name: &str) -> impl Iterator<Item = &'a ObservedPod> {
    let observed = draft.observed;
    let steps = [JobType::PostDrain, JobType::SingleNodeUpgrade];
    let keys = steps.map(|step| names::node_job(draft.plan_name(), step, name));
    let jobs = keys.into_iter().filter_map(|key| observed.jobs.get(&key));
    jobs.flat_map(|job| {
        let pods = observed.pods.values();
        pods.filter(|pod| pod.owner == job.uid && pod.node == job.node && pod.job_type == job.job_type)
    })
}

/// Nodes that are back no longer carry what we expected of their reboot.
pub(super) fn forget_boots(draft: &mut Draft<'_>) {
    for (name, node) in &draft.observed.nodes {
        if node.pending_os_image.is_some() && draft.progress(name).state().is_some_and(node::is_upgraded) {
            let keys = [annotations::PENDING_OS_IMAGE, annotations::BOOT_ID_BEFORE_UPGRADE];
            let annotations = keys.into_iter().map(|key| (key.to_owned(), None)).collect();
            draft.act(Action::AnnotateNode {
                node: name.clone(),
                annotations,
            });
        }
    }
}

/// Where an upgrade is taken over from a plan that failed or is gone, the progress of nodes follows from what they run and from
/// Rancher's hooks, not from a record. A single node has no turn, so it needs no record of a take-over.
pub(super) fn mark_already_upgraded(draft: &mut Draft<'_>) {
    let release = draft.status().release_metadata.clone().unwrap_or_default();
    let (Some(os), Some(kubernetes)) = (release.os, release.kubernetes) else {
        return;
    };
    let kubelet = rules::version::kubelet_version(&kubernetes);
    let single = draft.status().single_node.is_some();
    let taken_over = draft.noted(annotations::TAKEN_OVER) == Some("true");
    let observed = draft.observed;
    let managed = || observed.nodes.iter().filter(|(_, node)| node.managed);
    // A node that runs the new system has been through only if there is another one that it could run, or if Rancher has
    // nothing left to do: from a version to itself all nodes are current from the beginning.
    let rancher_is_done = observed.cluster.as_ref().is_some_and(|cluster| cluster.ready);
    let proves = single || rancher_is_done || managed().any(|(_, node)| node.os_image != os);
    for (name, node) in managed() {
        let is_current = node.ready && node.os_image == os && node.kubelet_version == kubelet;
        let plan = node_progress::machine_plan(draft, name);
        let is_in_drain = plan.is_some_and(ObservedMachinePlan::is_in_drain);
        let stage = draft.progress(name).stage();
        // A later plan may have completed what failed here. Rancher releases a node only when its upgrade is complete.
        let is_tried_again = draft.is_tried_again(name) && !runs_a_job(draft, name);
        let is_released = plan.is_some() && !is_in_drain;
        if single && is_current && (!stage.has_started() || is_tried_again) {
            draft.reach(name, NodeState::SingleNodeUpgraded, None, None);
        } else if taken_over && is_current && is_released && (is_tried_again || (proves && !stage.has_started())) {
            draft.reach(name, NodeState::PostDrained, None, None);
        }
        if single || (stage.has_ended_first_job() && !is_tried_again) {
            continue;
        }
        // Rancher keeps the answer until it uncordons the node: regardless of which plan gave it, the node is past this hook.
        let is_answered = plan.is_some_and(|plan| plan.pending_pre_drain().is_none());
        if plan.is_some_and(|plan| plan.pre_drain_token().is_some()) && is_answered {
            draft.reach(name, NodeState::PreDrained, None, None);
        }
        // What this plan has begun itself it brings to its end by its own Job.
        let job = names::node_job(draft.plan_name(), JobType::PreDrain, name);
        let is_anothers = !observed.jobs.contains_key(&job) && !node.drain_taint;
        if plan.is_some_and(|plan| plan.post_drain_token().is_some()) && is_anothers && is_current {
            draft.reach(name, NodeState::PostDrained, None, None);
        }
    }
}

/// A Job of this plan changes the node, or has.
fn runs_a_job(draft: &Draft<'_>, name: &str) -> bool {
    let steps = [JobType::PostDrain, JobType::SingleNodeUpgrade];
    steps.into_iter().any(|step| {
        let job = names::node_job(draft.plan_name(), step, name);
        draft.observed.jobs.contains_key(&job)
    })
}

/// Nodes that left no longer count; nodes that joined are named, and left to a later upgrade unless Rancher requests them.
pub(super) fn look_at_membership(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    // Sorted, as the keys are.
    let names: Vec<String> = draft.status().node_upgrade_statuses.keys().cloned().collect();
    for name in &names {
        let gone = !observed.nodes.contains_key(name);
        let is_said = draft.reason(name) == Some(reasons::NODE_REMOVED);
        if gone && !is_said {
            let message = "the node left the cluster during the upgrade";
            draft.set_reason(name, Some(reasons::NODE_REMOVED), Some(message));
            let text = format!("Node {name} left the cluster; the upgrade continues without it");
            draft.event(PlanEvent::warning(reasons::NODE_REMOVED, text));
        } else if !gone && is_said {
            // What it had not got through before it left is tried again.
            let failed = draft.progress(name).state().is_some_and(node::is_upgrade_failure);
            draft.set_reason(name, failed.then_some(reasons::RETRYING), None);
        }
    }
    let os = draft
        .status()
        .release_metadata
        .as_ref()
        .and_then(|release| release.os.clone())
        .unwrap_or_default();
    for (name, node) in &observed.nodes {
        if node.managed && names.binary_search(name).is_err() && node.os_image != os {
            let text = format!(
                "Node {name} joined during the upgrade with {:?}; upgrade it with another UpgradePlan afterwards",
                node.os_image
            );
            draft.event(PlanEvent::warning(reasons::NODE_JOINED, text));
        }
    }
}
