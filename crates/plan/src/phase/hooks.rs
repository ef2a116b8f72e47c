//! Rancher asks before it drains a node and after it has updated it; these rules answer.
//!
//! A question is a token in an annotation of the node's machine-plan Secret; the answer is the same token in an
//! annotation of ours. Between question and answer, a Job does the work.

use std::collections::BTreeMap;

use api::{NodeState, annotations, labels::job_type, names};

use crate::{
    decision::{Action, Child},
    draft::Draft,
    node,
    observed::MachinePlanSeen,
};

/// Answers what is asked on one Secret, or sees to it that it can be answered.
pub(super) fn answer(draft: &mut Draft<'_>, machine_plan: &MachinePlanSeen) {
    let Some(node) = &machine_plan.node else { return };
    if let Some(token) = open(&machine_plan.pre_drain, &machine_plan.pre_hook) {
        pre_drain(draft, machine_plan, node, token);
    }
    if let Some(token) = open(&machine_plan.post_drain, &machine_plan.post_hook) {
        post_drain(draft, machine_plan, node, token);
    }
}

/// A question that has not been answered.
fn open<'a>(question: &'a Option<String>, answer: &Option<String>) -> Option<&'a str> {
    question
        .as_deref()
        .filter(|token| !token.is_empty() && answer.as_deref() != Some(*token))
}

fn pre_drain(draft: &mut Draft<'_>, machine_plan: &MachinePlanSeen, node: &str, token: &str) {
    let progress = draft.progress(node);
    match progress.ordinal() {
        // Also nodes that are further: a question that is asked again is answered again.
        4.. if progress.state().is_none_or(|state| !node::is_upgrade_failure(state)) => {
            draft.act(Action::AnswerHook {
                secret: machine_plan.secret.clone(),
                hook: annotations::PRE_HOOK.to_owned(),
                token: token.to_owned(),
            });
        }
        0..=3 => ensure_job(draft, job_type::PRE_DRAIN, node),
        _ => {}
    }
}

fn post_drain(draft: &mut Draft<'_>, machine_plan: &MachinePlanSeen, node: &str, token: &str) {
    let progress = draft.progress(node);
    if progress.state().is_some_and(node::is_upgraded) {
        draft.act(Action::AnswerHook {
            secret: machine_plan.secret.clone(),
            hook: annotations::POST_HOOK.to_owned(),
            token: token.to_owned(),
        });
    } else if matches!(progress.state(), Some(NodeState::PreDrained | NodeState::PostDraining)) {
        ensure_job(draft, job_type::POST_DRAIN, node);
    }
}

/// Creates the Job of a step unless it exists, and lets a held one go when nobody holds the node any more. A Job that
/// exists is never held: that would kill what it is doing.
pub(super) fn ensure_job(draft: &mut Draft<'_>, step: &str, node: &str) {
    let name = names::node_job(draft.plan_name(), step, node);
    let held = step != job_type::POST_DRAIN && is_held(draft, node);
    match draft.seen.jobs.get(&name) {
        Some(job) if job.suspended && !held => draft.act(Action::ResumeJob { name }),
        Some(_) => {}
        None => {
            if step != job_type::PRE_DRAIN {
                remember_boot(draft, node);
            }
            draft.create(Child::NodeJob {
                job_type: step.to_owned(),
                node: node.to_owned(),
                suspend: held,
            });
        }
    }
}

/// The user holds the node.
pub(super) fn is_held(draft: &Draft<'_>, node: &str) -> bool {
    let option = draft.seen.plan.spec.node_upgrade_option.as_ref();
    option
        .and_then(|option| option.pause_nodes.as_ref())
        .is_some_and(|nodes| nodes.iter().any(|name| name == node))
}

/// Notes which boot the node runs, before a Job exists that could reboot it.
fn remember_boot(draft: &mut Draft<'_>, node: &str) {
    let Some(seen) = draft.seen.nodes.get(node) else { return };
    if seen.boot_id_before_upgrade.as_deref() != Some(&seen.boot_id) {
        let boot_id = Some(seen.boot_id.clone());
        let annotations = BTreeMap::from([(annotations::BOOT_ID_BEFORE_UPGRADE.to_owned(), boot_id)]);
        draft.act(Action::AnnotateNode {
            node: node.to_owned(),
            annotations,
        });
    }
}
