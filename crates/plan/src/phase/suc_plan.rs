//! What the phases that run a system-upgrade-controller Plan on all nodes have in common.

use std::time::Duration;

use api::{NodeState, names};

use crate::{
    decision::Child,
    draft::{Draft, Outcome},
    observed::JobOutcome,
};

/// The states of a node whose Job runs, has ended well, has ended badly.
pub(super) type JobStates = (NodeState, NodeState, NodeState);

/// A Plan that must have run on all nodes.
pub(super) struct Wanted {
    pub component: &'static str,
    pub concurrency: i64,
    pub images: Vec<String>,
    /// What nodes reach by their Jobs, if that is reported.
    pub states: Option<JobStates>,
    /// In one word.
    pub what: &'static str,
    pub message: &'static str,
    pub limit: Duration,
}

/// Makes sure the Plan exists and waits until it is complete. Fails as soon as one of its Jobs has failed: the Plan's
/// own condition may say so only for a moment.
pub(super) fn complete(draft: &mut Draft<'_>, wanted: Wanted) -> Outcome {
    let Wanted {
        component,
        concurrency,
        images,
        states,
        what,
        message,
        limit,
    } = wanted;
    let seen = draft.seen;
    let jobs = seen.jobs.values().filter(|job| job.component == component);
    let mut job_failed = false;
    for job in jobs {
        job_failed |= matches!(job.outcome, JobOutcome::Failed { .. });
        if let (Some(states), Some(node)) = (states, &job.node) {
            reach_by_job(draft, node, &job.outcome, states);
        }
    }
    match seen.suc_plans.get(component) {
        Some(plan) if plan.complete => return Outcome::Done,
        Some(_) if job_failed => return Outcome::Fail(failure(component)),
        Some(plan) if plan.job_failed => {
            // The Job says on which node, but it may not have shown yet.
            let object = format!("Plan cattle-system/{}", names::suc_plan(draft.plan_name(), component));
            let limit = seen.settings.deadlines.setting;
            if draft.wait("FailedJob", Some(object), "one of its Jobs has failed", limit) {
                return Outcome::Fail(failure(component));
            }
            return Outcome::Wait;
        }
        Some(_) => {}
        None => draft.create(Child::SucPlan {
            component: component.to_owned(),
            concurrency,
            images,
        }),
    }
    let name = names::suc_plan(draft.plan_name(), component);
    // Nodes are served in waves, so the whole may take as many times as long as one.
    let nodes = managed_nodes(draft).len();
    let waves = nodes.div_ceil(usize::try_from(concurrency.max(1)).unwrap_or(1)).max(1);
    let limit = limit.saturating_mul(u32::try_from(waves).unwrap_or(u32::MAX));
    draft.wait(what, Some(format!("Plan cattle-system/{name}")), message, limit);
    draft.wait_for_pods(component, None, None);
    Outcome::Wait
}

/// What is said of a plan that fails by a Job of a component.
fn failure(component: &str) -> String {
    let name = match component {
        api::labels::component::SKIP_MANIFESTS_APPLY => "skip-manifest apply",
        other => other,
    };
    format!("{name} plan job(s) failed")
}

/// Records what a Job says about its node.
pub(super) fn reach_by_job(draft: &mut Draft<'_>, node: &str, outcome: &JobOutcome, states: JobStates) {
    let (running, complete, failed) = states;
    match outcome {
        JobOutcome::Running => draft.reach(node, running, None, None),
        JobOutcome::Complete => draft.reach(node, complete, None, None),
        JobOutcome::Failed { reason, message } => draft.reach(node, failed, Some(reason), Some(message)),
    }
}

/// The names of all nodes that Harvester manages.
pub(super) fn managed_nodes(draft: &Draft<'_>) -> Vec<String> {
    draft
        .seen
        .nodes
        .iter()
        .filter(|(_, node)| node.managed)
        .map(|(name, _)| name.clone())
        .collect()
}

/// A number of nodes as a concurrency.
pub(super) fn all_at_once(nodes: &[String]) -> i64 {
    i64::try_from(nodes.len()).unwrap_or(i64::MAX).max(1)
}
