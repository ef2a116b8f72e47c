//! What all nodes together mean for the phase, and what is waited for.

use std::time::Duration;

use api::{
    Component, JobType, NodeState, names,
    quoted::quoted,
    reasons,
    upgrade_plan::{VMS_LEFT, VOLUMES_LEFT},
};
use jiff::Timestamp;

use super::super::{
    hooks,
    standing::{self, standing},
};
use crate::{
    announce,
    decision::Child,
    draft::{Draft, Outcome, UNBOUNDED},
    node,
    observed::{JobOutcome, MachinePlanSeen},
};
use rules::PlanEvent;

/// How many VMs are named in a message; the others are counted.
const NAMED_VMS: usize = 3;

/// How long a program on a node may say nothing about what it waits for.
const SILENCE: Duration = Duration::from_mins(1);

/// What all nodes together mean for the phase.
pub(super) fn evaluate(draft: &mut Draft<'_>) -> Outcome {
    let here = |name: &&String| draft.seen.nodes.contains_key(*name);
    let nodes: Vec<(String, Option<NodeState>)> = draft
        .status()
        .node_upgrade_statuses
        .keys()
        .filter(here)
        .map(|name| (name.clone(), standing(draft, name)))
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
    // Rancher may ask for one more: a node that joined, or one that it drains once more.
    let seen = draft.seen;
    let is_asked = |plan: &MachinePlanSeen| plan.node.is_some() && hooks::asks_before_drain(plan).is_some();
    let single = draft.status().single_node.is_some();
    if done == nodes.len() && done > 0 && (single || !seen.machine_plans.iter().any(is_asked)) {
        return Outcome::Done;
    }
    let is_held_up = wait_for_paused(draft, &nodes);
    let mut is_at_work = false;
    for (name, state) in &nodes {
        is_at_work |= state.is_some_and(|state| wait_for_node(draft, name, state));
    }
    if !is_held_up && !is_at_work {
        let mut message = format!(
            "Rancher is to go on with the next node ({done} of {} done)",
            nodes.len()
        );
        // Rancher's words about a node that is done are old words.
        let words = draft
            .seen
            .cluster
            .as_ref()
            .and_then(|cluster| cluster.message.as_deref())
            .unwrap_or_default();
        let mut finished = nodes.iter().filter(|(_, state)| state.is_some_and(node::is_upgraded));
        // Rancher speaks of machines.
        let is_named = |name: &str| {
            let plan = standing::machine_plan(draft, name);
            plan.is_some_and(|plan| words.contains(plan.secret.trim_end_matches("-machine-plan")))
        };
        if !finished.any(|(name, _)| is_named(name)) {
            message = with_rancher(draft, message);
        }
        let limit = draft.seen.settings.deadlines.rancher;
        draft.wait(
            "RancherNextNode",
            Some("Cluster fleet-local/local".to_owned()),
            message,
            limit,
        );
    }
    // Nothing waits for these, but people want to know how their VMs stand.
    for (name, _) in nodes.iter().filter(|(_, state)| state.is_some_and(node::is_upgraded)) {
        draft.wait_for_pods(Component::NodeUpgrade, Some(JobType::RestoreVm), Some(name));
    }
    Outcome::Wait
}

/// Names the nodes that the user holds. Tells whether the others wait for one of them: Rancher has asked for it, and asks
/// for no other before it has its answer.
fn wait_for_paused(draft: &mut Draft<'_>, nodes: &[(String, Option<NodeState>)]) -> bool {
    // Those that were let go wait for their turn like all others.
    let is_paused = |name: &str| {
        let is_said = draft.reason(name) == Some(reasons::ADMINISTRATIVELY_PAUSED);
        (is_said || draft.is_tried_again(name)) && hooks::is_held(draft, name)
    };
    let paused = nodes
        .iter()
        .filter(|(name, state)| *state == Some(NodeState::UpgradePaused) && is_paused(name));
    let paused: Vec<&str> = paused.map(|(name, _)| name.as_str()).collect();
    if paused.is_empty() {
        return false;
    }
    // A person holds the node, so only a person knows for how long.
    let names = paused.join(", ");
    draft.wait(
        "Paused",
        Some(format!("Node {names}")),
        format!("node upgrade paused: {names}"),
        UNBOUNDED,
    );
    let mut suspended = draft.seen.jobs.values().filter(|job| job.suspended);
    let Some(asked_for) = suspended.find_map(|job| job.node.clone().filter(|node| paused.contains(&node.as_str())))
    else {
        return false;
    };
    let behind = nodes
        .iter()
        .filter(|(name, state)| *name != asked_for && !state.is_some_and(node::is_upgraded));
    let behind = behind.count();
    if behind > 0 {
        draft.wait(
            "BehindPaused",
            Some("Cluster fleet-local/local".to_owned()),
            format!("{behind} more wait behind {asked_for}: Rancher upgrades one node after the other"),
            UNBOUNDED,
        );
    }
    true
}

/// Notes what a node that is at work waits for; tells whether it is.
fn wait_for_node(draft: &mut Draft<'_>, name: &str, state: NodeState) -> bool {
    let limits = draft.seen.settings.deadlines.clone();
    let (what, step, message, limit): (_, Option<&str>, String, Duration) = match state {
        NodeState::PreDraining => (
            "PreDrainJob",
            Some(JobType::PreDrain),
            pre_drain(draft, name),
            limits.pre_drain,
        ),
        NodeState::PreDrained => {
            let mut message = "Rancher drains it and updates RKE2".to_owned();
            let kept = draft.kept_pods(name, ("RancherUpdate", &format!("Node {name}")));
            if !kept.is_empty() {
                message = format!("{message}; {}", listed(kept));
            }
            ("RancherUpdate", None, with_rancher(draft, message), limits.rancher)
        }
        NodeState::PostDraining => (
            "PostDrainJob",
            Some(JobType::PostDrain),
            "the operating system is being installed".to_owned(),
            limits.post_drain,
        ),
        NodeState::SingleNodeUpgrading => (
            "SingleNodeJob",
            Some(JobType::SingleNodeUpgrade),
            "RKE2 and the operating system are being upgraded".to_owned(),
            limits.single_node,
        ),
        NodeState::WaitingReboot => (
            "Reboot",
            None,
            "it reboots into the new operating system".to_owned(),
            limits.reboot,
        ),
        _ => return false,
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
    draft.wait_while_it_progresses(what, Some(object), message, limit, progressed.flatten());
    if let Some(step) = step {
        draft.wait_for_pods(Component::NodeUpgrade, Some(step), Some(name));
    }
    true
}

/// When the program on a node last saw a VM leave, or a volume become whole. Moving hundreds of VMs takes hours, and is not
/// stalled while they leave.
fn last_progress(draft: &Draft<'_>, name: &str) -> Option<Timestamp> {
    let pods = draft.seen.pods.values();
    let of_node = pods.filter(|pod| pod.node.as_deref() == Some(name) && pod.job_type == Some(JobType::PreDrain));
    let said = of_node
        .flat_map(|pod| &pod.said)
        .filter(|entry| matches!(entry.what.as_str(), VMS_LEFT | VOLUMES_LEFT));
    said.map(|entry| entry.since.0.min(draft.now)).max()
}

/// What keeps a node's VMs. That is for the program on the node to say, volume by volume and VM by VM, and the same twice
/// would be written twice. Where it says nothing for a while, what is seen from here must do: volumes that are not healthy
/// come first, since no VM moves before.
fn pre_drain(draft: &Draft<'_>, name: &str) -> String {
    let seen = draft.seen;
    let moving = "VMs are being moved away";
    let mut pods = seen.pods.values().filter(|pod| pod.node.as_deref() == Some(name));
    let is_said = pods.any(|pod| pod.job_type == Some(JobType::PreDrain) && !pod.said.is_empty());
    let job = names::node_job(draft.plan_name(), JobType::PreDrain, name);
    if is_said || !draft.is_overdue("PreDrainJob", &format!("Job harvester-system/{job}"), SILENCE) {
        return moving.to_owned();
    }
    if !seen.unhealthy_volumes.is_empty() {
        return format!("volumes are being rebuilt first: {}", listed(&seen.unhealthy_volumes));
    }
    match seen.vms_by_node.get(name).map(Vec::as_slice).unwrap_or_default() {
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

/// Adds Rancher's own words, if it has any.
fn with_rancher(draft: &Draft<'_>, message: String) -> String {
    let words = draft
        .seen
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
    let seen = draft.seen;
    let listed = seen.restore_list.get(node).is_some_and(|vms| !vms.is_empty());
    let hosts_vms = seen.nodes.get(node).is_some_and(|node| !node.witness);
    seen.plan.spec.restore_vm == Some(true) && listed && hosts_vms
}

/// Starts the VMs again that were stopped for this node, once it is back.
pub(crate) fn restore_vms(draft: &mut Draft<'_>, node: &str) {
    let seen = draft.seen;
    if !restores_vms(draft, node) {
        return;
    }
    let name = names::node_job(draft.plan_name(), JobType::RestoreVm, node);
    match seen.jobs.get(&name).map(|job| &job.outcome) {
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
