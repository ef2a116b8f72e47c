//! What all nodes together mean for the phase, and what is waited for.

use std::time::Duration;

use api::{Component, JobType, NodeState, ProgramWait, Wait, names, quoted::quoted, reasons};
use jiff::Timestamp;

use super::super::{
    hooks,
    node_progress::{self, node_progress},
};
use crate::{
    announce,
    decision::Child,
    draft::{Draft, Noted, Outcome, Waits},
    node,
    observed::{JobOutcome, ObservedMachinePlan},
};
use rules::PlanEvent;

/// How many VMs are named in a message; the others are counted.
const NAMED_VMS: usize = 3;

/// How long a program on a node may say nothing about what it waits for.
const SILENCE: Duration = Duration::from_mins(1);

/// What all nodes together mean for the phase.
pub(super) fn evaluate(draft: &mut Draft<'_>) -> Outcome {
    let here = |name: &&String| draft.observed.nodes.contains_key(*name);
    let nodes: Vec<(String, Option<NodeState>)> = draft
        .status()
        .node_upgrade_statuses
        .keys()
        .filter(here)
        .map(|name| (name.clone(), node_progress(draft, name)))
        .collect();
    for (name, state) in &nodes {
        if draft.has_failed(name) {
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
    // Rancher may request one more: a node that joined, or one that it drains again.
    let observed = draft.observed;
    let is_asked = |plan: &ObservedMachinePlan| plan.node.is_some() && plan.pending_pre_drain().is_some();
    let single = draft.status().single_node.is_some();
    if done == nodes.len() && done > 0 && (single || !observed.machine_plans.iter().any(is_asked)) {
        return Outcome::Done;
    }
    let mut waits: Option<Waits> = wait_for_paused(draft, &nodes).map(Waits::from);
    for (name, state) in &nodes {
        if let Some(noted) = state.and_then(|state| wait_for_node(draft, name, state)) {
            waits = Some(Waits::joined(waits, noted));
        }
    }
    let waits = waits.unwrap_or_else(|| {
        let mut message = format!(
            "waiting for Rancher to continue with the next node ({done} of {} done)",
            nodes.len()
        );
        // Rancher's message about a completed node is outdated.
        let words = draft
            .observed
            .cluster
            .as_ref()
            .and_then(|cluster| cluster.message.as_deref())
            .unwrap_or_default();
        let mut finished = nodes.iter().filter(|(_, state)| state.is_some_and(node::is_upgraded));
        // Rancher's messages name machines.
        let is_named = |name: &str| {
            let plan = node_progress::machine_plan(draft, name);
            plan.is_some_and(|plan| words.contains(plan.secret.trim_end_matches("-machine-plan")))
        };
        if !finished.any(|(name, _)| is_named(name)) {
            message = with_rancher(draft, message);
        }
        let object = Some("Cluster fleet-local/local".to_owned());
        draft.wait(Wait::RancherNextNode, object, message).into()
    });
    // Nothing waits for these, but users need the state of their VMs.
    for (name, _) in nodes.iter().filter(|(_, state)| state.is_some_and(node::is_upgraded)) {
        draft.wait_for_pods(Component::NodeUpgrade, Some(JobType::RestoreVm), Some(name));
    }
    Outcome::Wait(waits)
}

/// Names the paused nodes. The wait, if the others wait for one of them: Rancher has requested it, and requests
/// for no other before it has its answer.
fn wait_for_paused(draft: &mut Draft<'_>, nodes: &[(String, Option<NodeState>)]) -> Option<Noted> {
    // Resumed nodes wait for their turn like all others.
    let is_paused = |name: &str| {
        let is_said = draft.reason(name) == Some(reasons::ADMINISTRATIVELY_PAUSED);
        (is_said || draft.is_tried_again(name)) && hooks::is_paused(draft, name)
    };
    let paused = nodes
        .iter()
        .filter(|(name, state)| *state == Some(NodeState::UpgradePaused) && is_paused(name));
    let paused: Vec<&str> = paused.map(|(name, _)| name.as_str()).collect();
    if paused.is_empty() {
        return None;
    }
    // A person paused the node, so only a person knows for how long.
    let names = paused.join(", ");
    let message = format!("node upgrade paused: {names}");
    let noted = draft.wait(Wait::Paused, Some(format!("Node {names}")), message);
    let mut suspended = draft.observed.jobs.values().filter(|job| job.suspended);
    let asked_for = suspended.find_map(|job| job.node.clone().filter(|node| paused.contains(&node.as_str())))?;
    let behind = nodes
        .iter()
        .filter(|(name, state)| *name != asked_for && !state.is_some_and(node::is_upgraded));
    let behind = behind.count();
    if behind > 0 {
        let message = format!("{behind} more wait behind {asked_for}: Rancher upgrades one node after the other");
        draft.wait(
            Wait::BehindPaused,
            Some("Cluster fleet-local/local".to_owned()),
            message,
        );
    }
    Some(noted)
}

/// Notes what a node that is at work waits for.
fn wait_for_node(draft: &mut Draft<'_>, name: &str, state: NodeState) -> Option<Noted> {
    let (what, step, message): (_, Option<JobType>, String) = match state {
        NodeState::PreDraining => (Wait::PreDrainJob, Some(JobType::PreDrain), pre_drain(draft, name)),
        NodeState::PreDrained => {
            let mut message = "Rancher drains it and updates RKE2".to_owned();
            let kept = draft.kept_pods(name, (Wait::RancherUpdate, &format!("Node {name}")));
            if !kept.is_empty() {
                message = format!("{message}; {}", listed(kept));
            }
            (Wait::RancherUpdate, None, with_rancher(draft, message))
        }
        NodeState::PostDraining => (
            Wait::PostDrainJob,
            Some(JobType::PostDrain),
            "the operating system is being installed".to_owned(),
        ),
        NodeState::SingleNodeUpgrading => (
            Wait::SingleNodeJob,
            Some(JobType::SingleNodeUpgrade),
            "RKE2 and the operating system are being upgraded".to_owned(),
        ),
        NodeState::WaitingReboot => (
            Wait::Reboot,
            None,
            "it reboots into the new operating system".to_owned(),
        ),
        _ => return None,
    };
    let object = match step {
        Some(step) => format!(
            "Job harvester-system/{}",
            names::node_job(draft.plan_name(), step, name)
        ),
        None => format!("Node {name}"),
    };
    let progressed = (state == NodeState::PreDraining).then(|| last_progress(draft, name));
    let message = format!("node {name}: {message}");
    let noted = draft.wait_while_it_progresses(what, Some(object), message, progressed.flatten());
    if let Some(step) = step {
        draft.wait_for_pods(Component::NodeUpgrade, Some(step), Some(name));
    }
    Some(noted)
}

/// When the program on a node last saw a VM leave, or a volume become whole. Moving hundreds of VMs takes hours, and is not
/// stalled while they leave.
fn last_progress(draft: &Draft<'_>, name: &str) -> Option<Timestamp> {
    let pods = draft.observed.pods.values();
    let of_node = pods.filter(|pod| pod.node.as_deref() == Some(name) && pod.job_type == Some(JobType::PreDrain));
    let said = of_node.flat_map(|pod| &pod.said).filter(|entry| {
        matches!(
            ProgramWait::parse(&entry.what),
            Some(ProgramWait::VmsLeft | ProgramWait::VolumesLeft)
        )
    });
    said.map(|entry| entry.since.0.min(draft.now)).max()
}

/// What keeps a node's VMs. That is for the program on the node to say, volume by volume and VM by VM, and the same twice
/// would be written twice. Where it says nothing for a while, what is seen from here must do: volumes that are not healthy
/// come first, since no VM moves before.
fn pre_drain(draft: &Draft<'_>, name: &str) -> String {
    let observed = draft.observed;
    let moving = "VMs are being moved away";
    let mut pods = observed.pods.values().filter(|pod| pod.node.as_deref() == Some(name));
    let is_said = pods.any(|pod| pod.job_type == Some(JobType::PreDrain) && !pod.said.is_empty());
    let job = names::node_job(draft.plan_name(), JobType::PreDrain, name);
    if is_said || !draft.is_overdue_after(Wait::PreDrainJob, &format!("Job harvester-system/{job}"), SILENCE) {
        return moving.to_owned();
    }
    if !observed.unhealthy_volumes.is_empty() {
        return format!(
            "volumes are being rebuilt first: {}",
            listed(&observed.unhealthy_volumes)
        );
    }
    match observed.vms_by_node.get(name).map(Vec::as_slice).unwrap_or_default() {
        [] => moving.to_owned(),
        left => format!("{moving}, {} left: {}", left.len(), listed(left)),
    }
}

/// The first of many, by name.
pub(crate) fn listed(names: &[String]) -> String {
    let mut text = names.iter().take(NAMED_VMS).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > NAMED_VMS {
        text.push_str(", …");
    }
    text
}

/// Adds Rancher's own message, if it has any.
fn with_rancher(draft: &Draft<'_>, message: String) -> String {
    let words = draft
        .observed
        .cluster
        .as_ref()
        .and_then(|cluster| cluster.message.as_deref());
    match words.filter(|words| !words.is_empty()) {
        Some(words) => format!("{message}; Rancher says: {}", quoted(words)),
        None => message,
    }
}

/// VMs were stopped for this node, and the user wants them started again.
pub(crate) fn restores_vms(draft: &Draft<'_>, node: &str) -> bool {
    let observed = draft.observed;
    let listed = observed.restore_list.get(node).is_some_and(|vms| !vms.is_empty());
    let hosts_vms = observed.nodes.get(node).is_some_and(|node| !node.witness);
    observed.plan.spec.restore_vm == Some(true) && listed && hosts_vms
}

/// Starts the VMs again that were stopped for this node, once it is back.
pub(crate) fn restore_vms(draft: &mut Draft<'_>, node: &str) {
    let observed = draft.observed;
    if !restores_vms(draft, node) {
        return;
    }
    let name = names::node_job(draft.plan_name(), JobType::RestoreVm, node);
    match observed.jobs.get(&name).map(|job| &job.outcome) {
        None => {
            draft.create(Child::RestoreJob { node: node.to_owned() });
            let text = format!("Dispatched restore-vm Job {name} for node {node}");
            draft.event(PlanEvent::normal(reasons::RESTORE_VM_JOB_DISPATCHED, text));
        }
        Some(JobOutcome::Failed { message, .. }) => {
            draft.event(announce::restore_failed(&name, node, message));
        }
        Some(_) => {}
    }
}
