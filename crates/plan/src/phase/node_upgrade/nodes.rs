//! What is seen of nodes and their Jobs, joined into what each node has reached.

use std::collections::BTreeMap;

use api::{
    NodeState, annotations,
    labels::{component, job_type},
    names, reasons,
};

use super::super::{hooks, suc_plan};
use crate::{
    decision::{Action, PlanEvent},
    draft::Draft,
    node,
};

/// What Jobs say about their nodes.
pub(super) fn look_at_jobs(draft: &mut Draft<'_>) {
    let seen = draft.seen;
    for job in seen
        .jobs
        .values()
        .filter(|job| job.component == component::NODE_UPGRADE)
    {
        let (Some(node), Some(step)) = (&job.node, job.job_type.as_deref()) else {
            continue;
        };
        let states = match step {
            job_type::PRE_DRAIN => (NodeState::PreDraining, NodeState::PreDrained, NodeState::PreDrainFailed),
            job_type::POST_DRAIN => (
                NodeState::PostDraining,
                NodeState::WaitingReboot,
                NodeState::PostDrainFailed,
            ),
            job_type::SINGLE_NODE_UPGRADE => (
                NodeState::SingleNodeUpgrading,
                NodeState::WaitingReboot,
                NodeState::SingleNodeUpgradeFailed,
            ),
            _ => continue,
        };
        if job.suspended {
            let (reason, message) = (reasons::ADMINISTRATIVELY_PAUSED, reasons::PAUSED_MESSAGE);
            draft.reach(node, NodeState::UpgradePaused, Some(reason), Some(message));
        } else {
            suc_plan::reach_by_job(draft, node, &job.outcome, states);
        }
    }
}

/// A node that the user holds is shown as held from the start, not only when its turn has come. One that is let go
/// before its turn is as if it had never been held.
pub(super) fn look_at_held(draft: &mut Draft<'_>) {
    for name in suc_plan::managed_nodes(draft) {
        let step = if draft.status().single_node.is_some() {
            job_type::SINGLE_NODE_UPGRADE
        } else {
            job_type::PRE_DRAIN
        };
        let job = names::node_job(draft.plan_name(), step, &name);
        // Its Job tells how it stands.
        if draft.seen.jobs.contains_key(&job) {
            continue;
        }
        match (draft.progress(&name).state(), hooks::is_held(draft, &name)) {
            (Some(NodeState::ImagePreloaded), true) => {
                let (reason, message) = (reasons::ADMINISTRATIVELY_PAUSED, reasons::PAUSED_MESSAGE);
                draft.reach(&name, NodeState::UpgradePaused, Some(reason), Some(message));
            }
            (Some(NodeState::UpgradePaused), false) => {
                if let Some(entry) = draft.status_mut().node_upgrade_statuses.get_mut(&name) {
                    entry.state = Some(NodeState::ImagePreloaded.to_string());
                    entry.reason = None;
                    entry.message = None;
                }
            }
            _ => {}
        }
    }
}

/// A node is back when it is Ready, in another boot, with the new operating system. One that came back with the old one
/// for good has failed.
pub(super) fn look_at_reboots(draft: &mut Draft<'_>) {
    let seen = draft.seen;
    let Some(os) = draft
        .status()
        .release_metadata
        .as_ref()
        .and_then(|release| release.os.clone())
    else {
        return;
    };
    let single = draft.status().single_node.is_some();
    for (name, node) in &seen.nodes {
        if draft.progress(name).state() != Some(NodeState::WaitingReboot) {
            continue;
        }
        let rebooted = node
            .boot_id_before_upgrade
            .as_ref()
            .is_none_or(|before| *before != node.boot_id);
        if node.ready && rebooted && node.os_image == os {
            let back = if single {
                NodeState::SingleNodeUpgraded
            } else {
                NodeState::PostDrained
            };
            draft.reach(name, back, None, None);
        } else if node.ready && rebooted && node.boot_id_before_upgrade.is_some() {
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

/// Nodes that are back no longer carry what we expected of their reboot.
pub(super) fn forget_boots(draft: &mut Draft<'_>) {
    for (name, node) in &draft.seen.nodes {
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

/// Where an upgrade is taken over from a plan that failed, nodes that run the new versions already are done. What they
/// run tells, not what anybody remembers. A single node is nobody's turn, so it needs no sign of a take-over.
pub(super) fn recognise(draft: &mut Draft<'_>) {
    let single = draft.status().single_node.is_some();
    if !single && draft.annotation(annotations::TAKEN_OVER) != Some("true") {
        return;
    }
    let done = if single {
        NodeState::SingleNodeUpgraded
    } else {
        NodeState::PostDrained
    };
    let seen = draft.seen;
    let release = draft.status().release_metadata.clone().unwrap_or_default();
    let (Some(os), Some(kubernetes)) = (release.os, release.kubernetes) else {
        return;
    };
    for (name, node) in &seen.nodes {
        let asks = |token: &Option<String>| token.as_deref().is_some_and(|token| !token.is_empty());
        let machine_plan = seen
            .machine_plans
            .iter()
            .find(|plan| plan.node.as_deref() == Some(name));
        let asked = machine_plan.is_some_and(|plan| asks(&plan.pre_drain) || asks(&plan.post_drain));
        let current = node.os_image == os && node.kubelet_version == kubernetes;
        if node.managed && node.ready && current && !asked && draft.progress(name).ordinal() < 3 {
            draft.reach(name, done, None, None);
        }
    }
}

/// Nodes that left no longer count; nodes that joined are named, and left to a later upgrade unless Rancher asks.
pub(super) fn look_at_membership(draft: &mut Draft<'_>) {
    let seen = draft.seen;
    // Sorted, as the keys are.
    let names: Vec<String> = draft.status().node_upgrade_statuses.keys().cloned().collect();
    for name in &names {
        let gone = !seen.nodes.contains_key(name);
        let Some(entry) = draft.status_mut().node_upgrade_statuses.get_mut(name) else {
            continue;
        };
        if gone && entry.reason.as_deref() != Some(reasons::NODE_REMOVED) {
            entry.reason = Some(reasons::NODE_REMOVED.to_owned());
            entry.message = Some("the node left the cluster during the upgrade".to_owned());
            let text = format!("Node {name} left the cluster; the upgrade goes on without it");
            draft.event(PlanEvent::warning(reasons::NODE_REMOVED, text));
        } else if !gone && entry.reason.as_deref() == Some(reasons::NODE_REMOVED) {
            entry.reason = None;
            entry.message = None;
        }
    }
    let os = draft
        .status()
        .release_metadata
        .as_ref()
        .and_then(|release| release.os.clone())
        .unwrap_or_default();
    for (name, node) in &seen.nodes {
        if node.managed && names.binary_search(name).is_err() && node.os_image != os {
            let text = format!(
                "Node {name} joined during the upgrade with {:?}; upgrade it with another UpgradePlan afterwards",
                node.os_image
            );
            draft.event(PlanEvent::warning(reasons::NODE_JOINED, text));
        }
    }
}
