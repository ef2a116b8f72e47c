//! Rancher sets a hook before it drains a node and after it has updated it; these rules answer.
//!
//! A hook is a token in an annotation of the node's machine-plan Secret; the answer is the same token in an
//! annotation of ours. Between hook and answer, a Job does the work. Rancher keeps hook and answer until it uncordons
//! the node, and sets the hook again with another token when the drain options change: what counts is always the
//! token that is there now.

use std::collections::BTreeMap;

use api::{JobType, NodeState, Wait, annotations, names};

use super::{
    node_progress::{self, node_progress},
    node_upgrade::listed,
};
use crate::{
    decision::{Action, Child},
    draft::Draft,
    node::{self, Stage},
    observed::ObservedMachinePlan,
};

/// Answers the hooks, or prepares their answers, for the nodes whose turn it is.
pub(super) fn answer_all(draft: &mut Draft<'_>) {
    let observed = draft.observed;
    let turns = node_progress::turns(draft);
    for machine_plan in &observed.machine_plans {
        let Some(node) = &machine_plan.node else { continue };
        if let Some(token) = machine_plan.pending_pre_drain() {
            pre_drain(draft, machine_plan, node, token, &turns);
        }
        if let Some(token) = machine_plan.pending_post_drain() {
            post_drain(draft, machine_plan, node, token, &turns);
        }
    }
}

fn pre_drain(draft: &mut Draft<'_>, machine_plan: &ObservedMachinePlan, node: &str, token: &str, turns: &[String]) {
    let state = node_progress(draft, node);
    let is_upgraded = state.is_some_and(node::is_upgraded);
    if is_upgraded && turns.iter().any(|name| name != node) {
        // It is done, and its VMs may be back: Rancher drains it once more, and only while no other node is in flight.
        node_progress::wait_for_turn(draft, node, turns);
    } else if is_upgraded && !draft.observed.immovable_vms.get(node).is_none_or(Vec::is_empty) {
        // It was evacuated once and is not evacuated again: VMs that a drain would kill must leave first.
        wait_for_vms(draft, node);
    } else if !state.map(Stage::of).unwrap_or_default().has_ended_first_job() {
        in_turn(draft, JobType::PreDrain, node, turns);
    } else if state.is_none_or(|state| !node::is_upgrade_failure(state)) {
        // A hook that is set again is answered again.
        draft.act(Action::AnswerHook {
            secret: machine_plan.secret.clone(),
            hook: annotations::PRE_HOOK.to_owned(),
            token: token.to_owned(),
        });
    }
}

/// Notes that Rancher drains a node once more, and which VMs keep it from being let do so.
fn wait_for_vms(draft: &mut Draft<'_>, node: &str) {
    let vms = draft
        .observed
        .immovable_vms
        .get(node)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let message = format!(
        "Rancher drains node {node} once more, though it is done, and that would kill {} that cannot move: {}; stop or move \
         {}, then the node is drained",
        if vms.len() == 1 { "a VM" } else { "VMs" },
        listed(vms),
        if vms.len() == 1 { "it" } else { "them" },
    );
    draft.wait(Wait::ImmovableVms, Some(format!("Node {node}")), message);
}

fn post_drain(draft: &mut Draft<'_>, machine_plan: &ObservedMachinePlan, node: &str, token: &str, turns: &[String]) {
    let state = node_progress(draft, node);
    if state.is_some_and(node::is_upgraded) {
        draft.act(Action::AnswerHook {
            secret: machine_plan.secret.clone(),
            hook: annotations::POST_HOOK.to_owned(),
            token: token.to_owned(),
        });
    } else if matches!(state, Some(NodeState::PreDrained | NodeState::PostDraining)) {
        in_turn(draft, JobType::PostDrain, node, turns);
    }
}

/// Handles the Job of a node whose turn it is, and the suspended Job of a paused node. The others
/// wait.
fn in_turn(draft: &mut Draft<'_>, step: JobType, node: &str, turns: &[String]) {
    let is_paused = step == JobType::PreDrain && is_paused(draft, node);
    if is_paused || turns.iter().any(|name| name == node) {
        ensure_job(draft, step, node);
    } else {
        node_progress::wait_for_turn(draft, node, turns);
    }
}

/// Creates the Job of a step unless it exists, and resumes a suspended one when the node is no longer paused. A Job that
/// runs is never suspended: that would kill its pod.
pub(super) fn ensure_job(draft: &mut Draft<'_>, step: JobType, node: &str) {
    let name = names::node_job(draft.plan_name(), step, node);
    let paused = step != JobType::PostDrain && is_paused(draft, node);
    match draft.observed.jobs.get(&name) {
        // It makes room for another one first.
        Some(job) if job.deleting => {}
        Some(job) if job.suspended && !paused => draft.act(Action::ResumeJob { name }),
        Some(_) => {}
        None => {
            if step != JobType::PreDrain {
                remember_boot(draft, node);
            }
            draft.create(Child::NodeJob {
                job_type: step,
                node: node.to_owned(),
                suspend: paused,
            });
        }
    }
}

/// The user paused the node.
pub(super) fn is_paused(draft: &Draft<'_>, node: &str) -> bool {
    let option = draft.observed.plan.spec.node_upgrade_option.as_ref();
    option
        .and_then(|option| option.pause_nodes.as_ref())
        .is_some_and(|nodes| nodes.iter().any(|name| name == node))
}

/// Notes which boot the node runs, before a Job exists that could reboot it.
fn remember_boot(draft: &mut Draft<'_>, node: &str) {
    let Some(observed) = draft.observed.nodes.get(node) else {
        return;
    };
    if observed.boot_id_before_upgrade.as_deref() != Some(&observed.boot_id) {
        let boot_id = Some(observed.boot_id.clone());
        let annotations = BTreeMap::from([(annotations::BOOT_ID_BEFORE_UPGRADE.to_owned(), boot_id)]);
        draft.act(Action::AnnotateNode {
            node: node.to_owned(),
            annotations,
        });
    }
}
