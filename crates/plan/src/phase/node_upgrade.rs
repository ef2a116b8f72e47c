//! NodeUpgrade: nodes are upgraded one by one, by Rancher with our hooks, or by one Job where there is only one node.

use std::collections::BTreeMap;

use api::{
    NodeState, annotations,
    labels::{component, job_type},
    names, reasons,
};

use super::{
    hooks,
    suc_plan::{self, Wanted},
};
use crate::{
    decision::{Action, Child, PlanEvent},
    draft::{Draft, Outcome},
    node,
    undo::changing,
};

/// While nodes reboot, Longhorn waits this long before it rebuilds replicas elsewhere.
const EXTENDED_INTERVAL_SECONDS: u64 = 1800;

/// Prepares the cluster: everything that is changed is on record first.
pub fn enter(draft: &mut Draft<'_>) -> Outcome {
    let nodes = suc_plan::managed_nodes(draft);
    for name in &nodes {
        if draft.progress(name).state().is_none() {
            draft.reach(name, NodeState::ImagePreloaded, None, None);
        }
    }
    let mut outcome = descheduler(draft);
    if draft.status().single_node.is_some() {
        return outcome;
    }
    for rule in [replenishment_interval, upgrade_strategy, skip_manifests] {
        match rule(draft) {
            Outcome::Done => {}
            Outcome::Wait => outcome = Outcome::Wait,
            Outcome::Fail(message) => return Outcome::Fail(message),
        }
    }
    outcome
}

/// The descheduler must not move pods around meanwhile.
fn descheduler(draft: &mut Draft<'_>) -> Outcome {
    if draft.seen.descheduler_enabled != Some(true) {
        return Outcome::Done;
    }
    draft.annotate(annotations::DESCHEDULER_WAS_ENABLED, Some("true".to_owned()));
    draft.act(Action::EnableDescheduler { enabled: false });
    changing(draft, "Addon kube-system/descheduler")
}

/// A node that only reboots must not make Longhorn copy all its replicas. A longer interval of the user's is kept.
fn replenishment_interval(draft: &mut Draft<'_>) -> Outcome {
    let Some(value) = draft.seen.replenishment_interval.clone() else {
        return Outcome::Done;
    };
    if value
        .parse::<u64>()
        .is_ok_and(|seconds| seconds >= EXTENDED_INTERVAL_SECONDS)
    {
        return Outcome::Done;
    }
    if draft.annotation(annotations::SAVED_REPLENISHMENT_INTERVAL).is_none() {
        draft.annotate(annotations::SAVED_REPLENISHMENT_INTERVAL, Some(value));
    }
    draft.act(Action::SetReplenishmentInterval {
        value: EXTENDED_INTERVAL_SECONDS.to_string(),
    });
    changing(draft, "Setting longhorn-system/replica-replenishment-wait-interval")
}

/// Only the record: the strategy is replaced together with the version.
fn upgrade_strategy(draft: &mut Draft<'_>) -> Outcome {
    let Some(cluster) = &draft.seen.cluster else {
        let limit = draft.seen.settings.deadlines.prerequisite;
        draft.wait(
            "Cluster",
            Some("Cluster fleet-local/local".to_owned()),
            "the Rancher cluster is missing",
            limit,
        );
        return Outcome::Wait;
    };
    if draft.annotation(annotations::SAVED_UPGRADE_STRATEGY).is_none() {
        let strategy = cluster.upgrade_strategy.clone().unwrap_or_default();
        draft.annotate(annotations::SAVED_UPGRADE_STRATEGY, Some(strategy.to_string()));
    }
    Outcome::Done
}

/// RKE2 must not apply its bundled Multus manifest while nodes run different versions.
fn skip_manifests(draft: &mut Draft<'_>) -> Outcome {
    draft.annotate(annotations::SKIP_MANIFESTS_APPLIED, Some("true".to_owned()));
    let nodes = suc_plan::managed_nodes(draft);
    suc_plan::complete(
        draft,
        Wanted {
            component: component::SKIP_MANIFESTS_APPLY,
            concurrency: suc_plan::all_at_once(&nodes),
            images: Vec::new(),
            states: None,
            what: "SkipManifestsApply",
            message: "waiting for skip-manifest apply plan to complete",
            limit: draft.seen.settings.deadlines.skip_manifests,
        },
    )
}

/// Sees every node through.
pub fn run(draft: &mut Draft<'_>) -> Outcome {
    if let Some(node) = draft.status().single_node.clone() {
        hooks::ensure_job(draft, job_type::SINGLE_NODE_UPGRADE, &node);
    } else if let Some(outcome) = provision(draft) {
        return outcome;
    }
    look_at_jobs(draft);
    look_at_reboots(draft);
    if draft.status().single_node.is_none() {
        let seen = draft.seen;
        for machine_plan in &seen.machine_plans {
            hooks::answer(draft, machine_plan);
        }
    }
    evaluate(draft)
}

/// Makes Rancher upgrade the nodes, once. The generation that we give the cluster is on record before it is given.
fn provision(draft: &mut Draft<'_>) -> Option<Outcome> {
    let limit = draft.seen.settings.deadlines.prerequisite;
    let Some(cluster) = &draft.seen.cluster else {
        draft.wait(
            "Cluster",
            Some("Cluster fleet-local/local".to_owned()),
            "the Rancher cluster is missing",
            limit,
        );
        return Some(Outcome::Wait);
    };
    let release = draft.status().release_metadata.clone().unwrap_or_default();
    let Some(kubernetes_version) = release.kubernetes else {
        return Some(Outcome::Fail(
            "kubernetes version not found in release metadata".to_owned(),
        ));
    };
    let from = cluster.provision_generation;
    let to = *draft.status_mut().provision_generation.get_or_insert(from + 1);
    if from < to {
        draft.act(Action::ProvisionCluster {
            kubernetes_version,
            from,
            to,
        });
    }
    None
}

/// What Jobs say about their nodes.
fn look_at_jobs(draft: &mut Draft<'_>) {
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

/// A node is back when it is Ready, in another boot, with the new operating system.
fn look_at_reboots(draft: &mut Draft<'_>) {
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
fn forget_boots(draft: &mut Draft<'_>) {
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

/// What all nodes together mean for the phase.
fn evaluate(draft: &mut Draft<'_>) -> Outcome {
    let nodes: Vec<(String, Option<NodeState>)> = draft
        .status()
        .node_upgrade_statuses
        .keys()
        .map(|name| (name.clone(), draft.progress(name).state()))
        .collect();
    for (name, state) in &nodes {
        if state.is_some_and(node::is_upgrade_failure) {
            let entry = draft.status().node_upgrade_statuses.get(name);
            let why = entry.and_then(|entry| entry.message.clone()).unwrap_or_default();
            return Outcome::Fail(format!("node {name} upgrade failed: {why}"));
        }
        if state.is_some_and(node::is_upgraded) {
            restore_vms(draft, name);
        }
    }
    let done = nodes
        .iter()
        .filter(|(_, state)| state.is_some_and(node::is_upgraded))
        .count();
    if done == nodes.len() && done > 0 {
        return Outcome::Done;
    }
    let paused: Vec<&str> = nodes
        .iter()
        .filter(|(_, state)| *state == Some(NodeState::UpgradePaused))
        .map(|(name, _)| name.as_str())
        .collect();
    let limits = draft.seen.settings.deadlines.clone();
    if !paused.is_empty() {
        // A person holds the node, so only a person knows for how long.
        let message = format!("node upgrade paused: {}", paused.join(", "));
        draft.wait(
            "Paused",
            Some(format!("Node {}", paused.join(", "))),
            message,
            std::time::Duration::from_secs(u64::from(u32::MAX)),
        );
    }
    let mut at_work = !paused.is_empty();
    for (name, state) in &nodes {
        let Some(state) = state else { continue };
        let job = |step| {
            Some(format!(
                "Job harvester-system/{}",
                names::node_job(draft.plan_name(), step, name)
            ))
        };
        let (what, object, message, limit) = match state {
            NodeState::PreDraining => (
                "PreDrainJob",
                job(job_type::PRE_DRAIN),
                "VMs are being moved away",
                limits.pre_drain,
            ),
            NodeState::PreDrained => (
                "RancherUpdate",
                Some(format!("Node {name}")),
                "Rancher drains it and updates RKE2",
                limits.rancher,
            ),
            NodeState::PostDraining => (
                "PostDrainJob",
                job(job_type::POST_DRAIN),
                "the operating system is being installed",
                limits.post_drain,
            ),
            NodeState::SingleNodeUpgrading => (
                "SingleNodeJob",
                job(job_type::SINGLE_NODE_UPGRADE),
                "RKE2 and the operating system are being upgraded",
                limits.single_node,
            ),
            NodeState::WaitingReboot => (
                "Reboot",
                Some(format!("Node {name}")),
                "reboots into the new operating system",
                limits.reboot,
            ),
            _ => continue,
        };
        at_work = true;
        draft.wait(what, object, format!("node {name}: {message}"), limit);
    }
    if !at_work {
        let message = format!(
            "Rancher is to go on with the next node ({done} of {} done)",
            nodes.len()
        );
        draft.wait(
            "RancherNextNode",
            Some("Cluster fleet-local/local".to_owned()),
            message,
            limits.rancher,
        );
    }
    Outcome::Wait
}

/// Starts the VMs again that were stopped for this node, once it is back.
fn restore_vms(draft: &mut Draft<'_>, node: &str) {
    let seen = draft.seen;
    let listed = seen.restore_list.get(node).is_some_and(|vms| !vms.is_empty());
    let hosts_vms = seen.nodes.get(node).is_some_and(|node| !node.witness);
    if seen.plan.spec.restore_vm != Some(true) || !listed || !hosts_vms {
        return;
    }
    let name = names::node_job(draft.plan_name(), job_type::RESTORE_VM, node);
    if !seen.jobs.contains_key(&name) {
        draft.create(Child::RestoreJob { node: node.to_owned() });
        let text = format!("Dispatched restore-vm Job {name} for node {node}");
        draft.event(PlanEvent::normal(reasons::RESTORE_VM_JOB_DISPATCHED, text));
    }
}

/// Rancher must have finished with every node, and every VM must have had its chance to start again.
pub fn leave(draft: &mut Draft<'_>) -> Outcome {
    let seen = draft.seen;
    for name in draft.status().node_upgrade_statuses.keys().cloned().collect::<Vec<_>>() {
        restore_vms(draft, &name);
    }
    forget_boots(draft);
    if draft.status().single_node.is_some() {
        return Outcome::Done;
    }
    let mut outcome = Outcome::Done;
    for machine_plan in &seen.machine_plans {
        hooks::answer(draft, machine_plan);
        if outcome == Outcome::Done
            && machine_plan
                .post_drain
                .as_deref()
                .is_some_and(|token| !token.is_empty())
        {
            let secret = &machine_plan.secret;
            let message = format!(
                "waiting for Rancher to complete node upgrades: secret {secret} still has {} annotation",
                annotations::RKE_POST_DRAIN
            );
            let object = Some(format!("Secret fleet-local/{secret}"));
            draft.wait("RancherCompletion", object, message, seen.settings.deadlines.rancher);
            outcome = Outcome::Wait;
        }
    }
    outcome
}
