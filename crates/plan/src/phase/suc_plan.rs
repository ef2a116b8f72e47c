//! What the phases that run a system-upgrade-controller Plan on all nodes have in common.

use api::{Component, NodePlan, NodeState, Wait, names, quoted};

use crate::{
    decision::Child,
    draft::{Draft, Outcome},
    observed::{JobOutcome, ObservedJob},
};

/// A Job of system-upgrade-controller has up to 99 tries, which take most of a day. So many failed pods are enough to know
/// that it does not work.
const MOST_FAILED_PODS: u32 = 3;

/// The states of a node whose Job runs, has ended well, has ended badly.
pub(super) type JobStates = (NodeState, NodeState, NodeState);

/// A Plan that must have run on all nodes.
pub(super) struct Wanted {
    pub plan: NodePlan,
    pub concurrency: i64,
    pub images: Vec<String>,
    /// What nodes reach by their Jobs, if that is reported.
    pub states: Option<JobStates>,
    /// The wait in the meantime; its deadline applies to each wave of nodes.
    pub what: Wait,
    pub message: &'static str,
}

/// Makes sure the Plan exists and waits until it is complete. Fails as soon as one of its Jobs has failed: the Plan's
/// own condition may show it only briefly.
pub(super) fn complete(draft: &mut Draft<'_>, wanted: Wanted) -> Outcome {
    let Wanted {
        plan: wanted_plan,
        concurrency,
        images,
        states,
        what,
        message,
    } = wanted;
    let observed = draft.observed;
    let component = wanted_plan.component();
    let mut failed = Vec::new();
    for (name, job) in jobs_of(draft, component) {
        let outcome = outcome_of(draft, job);
        let node = job.node.as_deref();
        if let JobOutcome::Failed { reason, message } = &outcome {
            let why = if message.is_empty() { reason } else { message };
            failed.push(format!("{}: {why}", node.unwrap_or(name)));
        }
        if let (Some(states), Some(node)) = (states, node) {
            reach_by_job(draft, node, &outcome, states);
        }
    }
    match observed.suc_plans.get(&component) {
        Some(plan) if plan.complete => return Outcome::Done,
        Some(_) if !failed.is_empty() => return Outcome::Fail(failure(component, &failed)),
        Some(plan) if plan.job_failed => {
            // The Job says on which node, but it may not have shown yet.
            let object = format!("Plan cattle-system/{}", names::suc_plan(draft.plan_name(), component));
            let noted = draft.wait(Wait::FailedJob, Some(object), "one of its Jobs has failed");
            if noted.is_overdue() {
                return Outcome::Fail(failure(component, &[]));
            }
            return noted.into();
        }
        Some(_) => {}
        None => draft.create(Child::SucPlan {
            plan: wanted_plan,
            concurrency,
            images,
        }),
    }
    let name = names::suc_plan(draft.plan_name(), component);
    // Nodes are served in waves, so the whole may take as many times as long as one.
    let nodes = managed_nodes(draft).len();
    let waves = nodes.div_ceil(usize::try_from(concurrency.max(1)).unwrap_or(1)).max(1);
    let limit = observed
        .settings
        .deadlines
        .of(what)
        .saturating_mul(u32::try_from(waves).unwrap_or(u32::MAX));
    let noted = draft.wait_within(what, Some(format!("Plan cattle-system/{name}")), message, limit);
    draft.wait_for_pods(component, None, None);
    noted.into()
}

/// The Jobs of a component that belong to the Plan that is there. Those of one before it go away by themselves, and may
/// still say that they have failed.
pub(super) fn jobs_of<'a>(draft: &Draft<'a>, component: Component) -> Vec<(&'a String, &'a ObservedJob)> {
    let observed = draft.observed;
    let uid = observed.suc_plans.get(&component).and_then(|plan| plan.uid.as_ref());
    let jobs = observed.jobs.iter().filter(|(_, job)| job.component == component);
    jobs.filter(|(_, job)| !job.left_over && job.owner.as_ref() == uid)
        .collect()
}

/// The message of the last pod of a Job that failed, with the name of the pod.
pub(super) fn last_message(draft: &Draft<'_>, job: &ObservedJob) -> Option<(String, String)> {
    let pods = draft.observed.pods.values();
    let pods = pods.filter(|pod| pod.owner.is_some() && pod.owner == job.uid);
    let said = pods.filter_map(|pod| Some((pod.termination_message.as_ref()?, pod)));
    let (word, pod) = said.max_by_key(|(word, _)| *word)?;
    Some((pod.name.clone(), quoted::quoted(&word.text)))
}

/// The state of a Job of a node. The reason of a failure is the message of the program, with its pod, where it left one.
pub(super) fn with_last_message(draft: &Draft<'_>, job: &ObservedJob) -> JobOutcome {
    match (&job.outcome, last_message(draft, job)) {
        (JobOutcome::Failed { reason, .. }, Some((pod, said))) => JobOutcome::Failed {
            reason: reason.clone(),
            message: format!("pod {pod}: {said}"),
        },
        (outcome, _) => outcome.clone(),
    }
}

/// The state of a Job: also failed when its pods fail repeatedly. The reason is the message of its last pod.
fn outcome_of(draft: &Draft<'_>, job: &ObservedJob) -> JobOutcome {
    let said = || last_message(draft, job).map(|(_, text)| text);
    match &job.outcome {
        JobOutcome::Running if job.failed_pods >= MOST_FAILED_PODS => JobOutcome::Failed {
            reason: "PodsFailed".to_owned(),
            message: said().unwrap_or_else(|| format!("{} pods of its Job have failed", job.failed_pods)),
        },
        JobOutcome::Failed { reason, message } => JobOutcome::Failed {
            reason: reason.clone(),
            message: said().unwrap_or_else(|| message.clone()),
        },
        outcome => outcome.clone(),
    }
}

/// The message of a plan that fails because of a Job of a component: a known text first, then each node with its own.
fn failure(component: Component, failed: &[String]) -> String {
    let name = match component {
        Component::SkipManifestsApply => "skip-manifest apply",
        other => other.as_str(),
    };
    if failed.is_empty() {
        return format!("{name} plan job(s) failed");
    }
    format!("{name} plan job(s) failed: {}", failed.join("; "))
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
        .observed
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
