//! Restores what the upgrade changed, from the plan's record, and removes what it created.
//!
//! Success, failure and deletion share these rules. Each one looks at what is, so it can be interrupted anywhere.

pub(crate) mod charts;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};

use api::{Component, JobType, NodePlan, Wait, annotations, names, reasons};
use serde_json::Value;

use crate::{
    decision::{Action, Child, ChildKind},
    draft::{Draft, Outcome},
    node,
    observed::{JobOutcome, ObservedJob, ObservedMachinePlan},
    phase::node_upgrade,
};
use rules::PlanEvent;

use self::workloads::Gone;

/// Why settings are restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The upgrade is done.
    Success,
    /// The upgrade failed.
    Failure,
    /// The plan is being deleted.
    Deletion,
}

/// One setting to restore. Names what is not restored yet.
type Undo = fn(&mut Draft<'_>, Ending, &mut Vec<String>);

/// All of them, in order, once nothing runs that could change it again.
const UNDO: [Undo; 6] = [
    skip_manifests,
    replenishment_interval,
    descheduler,
    upgrade_strategy,
    taints,
    nodes,
];

/// What follows when what we created is removed.
const UNDO_LAST: [Undo; 4] = [
    stopped_vms,
    // Last: after an upgrade of Rancher or KubeVirt that broke off these may be refused for long.
    charts::methods,
    charts::methods_of_kubevirt,
    charts::pauses,
];

/// Restores everything that the upgrade changed; [`Outcome::Done`] once all of it is observed as restored.
pub fn restore(draft: &mut Draft<'_>, ending: Ending) -> Outcome {
    let mut left = Vec::new();
    workloads::stop(draft, ending);
    let gone = workloads::are_gone(draft, ending);
    let (first, last): (&[Undo], &[Undo]) = match gone {
        Gone::No => (&[], &[]),
        Gone::Yes | Gone::GivenUp => (&UNDO, &UNDO_LAST),
    };
    first.iter().for_each(|undo| undo(draft, ending, &mut left));
    children(draft, ending, gone, &mut left);
    last.iter().for_each(|undo| undo(draft, ending, &mut left));
    if !left.is_empty() {
        let message = format!("being restored or removed: {}", left.join(", "));
        draft.wait(Wait::PutBack, None, message);
    }
    if let Some(waits) = draft.waiting_for() {
        Outcome::Wait(waits)
    } else {
        Outcome::Done
    }
}

/// RKE2 applies its own manifests again.
fn skip_manifests(draft: &mut Draft<'_>, _: Ending, _: &mut Vec<String>) {
    if draft.noted(annotations::SKIP_MANIFESTS_APPLIED) != Some("true") {
        return;
    }
    let observed = draft.observed;
    let plan = observed.suc_plans.get(&Component::SkipManifestsRemove);
    if plan.is_some_and(|plan| plan.complete) {
        draft.note(annotations::SKIP_MANIFESTS_APPLIED, None);
        return;
    }
    if plan.is_none() {
        let nodes = observed.nodes.values().filter(|node| node.managed).count();
        draft.create(Child::SucPlan {
            plan: NodePlan::SkipManifestsRemove,
            concurrency: i64::try_from(nodes).unwrap_or(i64::MAX),
            images: Vec::new(),
        });
    }
    let name = names::suc_plan(draft.plan_name(), Component::SkipManifestsRemove);
    let object = Some(format!("Plan cattle-system/{name}"));
    let message = "waiting for skip-manifest remove plan to complete";
    if draft.wait(Wait::SkipManifestsRemove, object, message).is_overdue() {
        // A node that is gone for good must not keep the plan from ending.
        draft.note(annotations::SKIP_MANIFESTS_APPLIED, None);
        let text = "RKE2 manifests are still skipped on some nodes: remove \
                    /var/lib/rancher/rke2/server/manifests/rke2-multus.yaml.skip there";
        draft.event(PlanEvent::warning(reasons::STALLED, text));
    }
}

/// Longhorn rebuilds replicas as soon as before.
fn replenishment_interval(draft: &mut Draft<'_>, ending: Ending, left: &mut Vec<String>) {
    let Some(saved) = draft
        .noted(annotations::SAVED_REPLENISHMENT_INTERVAL)
        .map(str::to_owned)
    else {
        return;
    };
    match &draft.observed.replenishment_interval {
        Some(now) if *now != saved => {
            draft.act(Action::SetReplenishmentInterval { value: saved });
            left.push("Setting longhorn-system/replica-replenishment-wait-interval".to_owned());
        }
        _ => forget(draft, ending, annotations::SAVED_REPLENISHMENT_INTERVAL),
    }
}

/// After a failure the record of restored values is removed: a retry records the values of that time. After a success it
/// stays, for users.
fn forget(draft: &mut Draft<'_>, ending: Ending, key: &str) {
    if ending == Ending::Failure {
        draft.note(key, None);
    }
}

/// The descheduler runs again, if it did.
fn descheduler(draft: &mut Draft<'_>, ending: Ending, left: &mut Vec<String>) {
    if draft.noted(annotations::DESCHEDULER_WAS_ENABLED) != Some("true") {
        return;
    }
    if draft.observed.descheduler_enabled == Some(false) {
        draft.act(Action::EnableDescheduler { enabled: true });
        left.push("Addon kube-system/descheduler".to_owned());
    } else {
        forget(draft, ending, annotations::DESCHEDULER_WAS_ENABLED);
    }
}

/// Rancher drains as before. Never while it still has nodes to upgrade: without our hooks it would continue with them
/// unprotected.
fn upgrade_strategy(draft: &mut Draft<'_>, ending: Ending, left: &mut Vec<String>) {
    let saved = draft.noted(annotations::SAVED_UPGRADE_STRATEGY);
    let Some(saved) = saved.and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
        return;
    };
    let ours = draft.status().provision_generation;
    if ours.is_none() {
        // Nothing was changed. Until a retry, another plan may start Rancher and users may change the strategy: what
        // is there then counts.
        forget(draft, ending, annotations::SAVED_UPGRADE_STRATEGY);
        forget(draft, ending, annotations::TAKEN_OVER);
        return;
    }
    let Some(cluster) = &draft.observed.cluster else { return };
    let provisioned = ours.is_some_and(|ours| cluster.provision_generation >= ours);
    if !provisioned || (ending != Ending::Success && !rancher_is_done(draft)) {
        return;
    }
    let strategy = cluster.upgrade_strategy.clone().unwrap_or_default();
    if strategy != saved || cluster.saved_upgrade_strategy.is_some() {
        draft.act(Action::RestoreUpgradeStrategy { strategy: saved });
        left.push("Cluster fleet-local/local".to_owned());
    } else {
        forget(draft, ending, annotations::SAVED_UPGRADE_STRATEGY);
    }
}

/// No node is left that Rancher would continue with.
fn rancher_is_done(draft: &Draft<'_>) -> bool {
    let open = draft
        .observed
        .machine_plans
        .iter()
        .any(ObservedMachinePlan::is_in_drain);
    let mut managed = draft.observed.nodes.iter().filter(|(_, node)| node.managed);
    !open && managed.all(|(name, _)| draft.progress(name).state().is_some_and(node::is_upgraded))
}

/// Nodes that Jobs of this upgrade have evacuated accept VMs again. A taint on a node that it has not reached is not
/// ours.
fn taints(draft: &mut Draft<'_>, _: Ending, left: &mut Vec<String>) {
    let observed = draft.observed;
    for (name, _) in observed.nodes.iter().filter(|(_, node)| node.drain_taint) {
        if !draft.progress(name).stage().has_started() {
            continue;
        }
        left.push(format!("Node {name}"));
        draft.act(Action::UntaintNode { node: name.clone() });
    }
}

/// Nodes carry nothing of ours any more. Labels of system-upgrade-controller are removed after a failure, too: they would keep a
/// retry from running on nodes where a Plan has already run, even if its changes were undone since; and nothing removes
/// them after the plan has ended.
fn nodes(draft: &mut Draft<'_>, _: Ending, left: &mut Vec<String>) {
    for (name, node) in &draft.observed.nodes {
        let ours = [
            (annotations::PENDING_OS_IMAGE, node.pending_os_image.is_some()),
            (
                annotations::BOOT_ID_BEFORE_UPGRADE,
                node.boot_id_before_upgrade.is_some(),
            ),
        ];
        let annotations: BTreeMap<_, _> = ours
            .into_iter()
            .filter(|(_, present)| *present)
            .map(|(key, _)| (key.to_owned(), None))
            .collect();
        // The Plans go first: a Plan that is still there would serve an unlabelled node once more.
        let unlabel = !node.leftover_labels.is_empty() && draft.observed.suc_plans.is_empty();
        if !annotations.is_empty() || unlabel {
            left.push(format!("Node {name}"));
        }
        if !annotations.is_empty() {
            draft.act(Action::AnnotateNode {
                node: name.clone(),
                annotations,
            });
        }
        if unlabel {
            draft.act(Action::UnlabelNode {
                node: name.clone(),
                labels: node.leftover_labels.clone(),
            });
        }
    }
}

/// What we created is gone. After a failure Jobs stay, for their logs, and so does the ISO, for a retry; Jobs that
/// start VMs again always stay.
fn children(draft: &mut Draft<'_>, ending: Ending, gone: Gone, left: &mut Vec<String>) {
    let observed = draft.observed;
    let mut found: BTreeSet<(ChildKind, Component, Option<JobType>)> = BTreeSet::new();
    let mut going: BTreeSet<(ChildKind, Component, Option<JobType>)> = BTreeSet::new();
    if ending != Ending::Failure && observed.iso_image.as_ref().is_some_and(|image| image.ours) {
        found.insert((ChildKind::Image, Component::Iso, None));
    }
    if observed.repo.deployment_ready.is_some() {
        found.insert((ChildKind::Deployment, Component::Repo, None));
    }
    if observed.repo.service_ready.is_some() {
        found.insert((ChildKind::Service, Component::Repo, None));
    }
    let undoing = draft.noted(annotations::SKIP_MANIFESTS_APPLIED) == Some("true");
    let plans = observed
        .suc_plans
        .iter()
        .filter(|(plan, _)| !(undoing && **plan == Component::SkipManifestsRemove));
    for (plan, observed) in plans {
        let which = if observed.deleting { &mut going } else { &mut found };
        which.insert((ChildKind::SucPlan, *plan, None));
    }
    let jobs = observed
        .jobs
        .values()
        .filter(|job| ending != Ending::Failure && is_removed(job));
    for job in jobs {
        let which = if job.deleting { &mut going } else { &mut found };
        which.insert((ChildKind::Job, job.component, job.job_type));
    }
    // What is being deleted exists until its pods are gone. Once the wait is given up, it is not shown.
    let shown = going.iter().filter(|_| gone != Gone::GivenUp);
    for (kind, component, job_type) in found.iter().chain(shown).collect::<BTreeSet<_>>() {
        let what = job_type.map_or(component.as_str(), JobType::as_str);
        left.push(format!("{} {what}", kind.name()));
    }
    for (kind, component, job_type) in found {
        draft.act(Action::Delete {
            kind,
            component,
            job_type,
        });
    }
}

/// VMs that were stopped for the upgrade start again, if the user requested it, also when it did not complete: the
/// list of them goes with the plan. Last, when nothing is left that could stop another one.
fn stopped_vms(draft: &mut Draft<'_>, ending: Ending, left: &mut Vec<String>) {
    // After a success NodeUpgrade has seen to them.
    if ending == Ending::Success || !left.is_empty() || draft.waiting_for().is_some() {
        return;
    }
    let observed = draft.observed;
    for node in observed.restore_list.keys() {
        if !node_upgrade::restores_vms(draft, node) {
            continue;
        }
        let name = names::node_job(draft.plan_name(), JobType::RestoreVm, node);
        let object = format!("Job harvester-system/{name}");
        match observed.jobs.get(&name).map(|job| &job.outcome) {
            None => {
                node_upgrade::restore_vms(draft, node);
                left.push(object);
            }
            // It goes with the plan, so it gets its time.
            Some(JobOutcome::Running) if ending == Ending::Deletion => {
                if !draft.is_overdue(Wait::RestoreVm, &object) {
                    let message = format!("VMs that were stopped for node {node} are being started again");
                    draft.wait(Wait::RestoreVm, Some(object), message);
                }
            }
            Some(_) => {}
        }
    }
}

/// A Job of ours that goes when the upgrade has ended. Jobs of system-upgrade-controller go with their Plan.
fn is_removed(job: &ObservedJob) -> bool {
    match (job.component, job.job_type) {
        (Component::ClusterUpgrade, _) => true,
        (Component::NodeUpgrade, Some(step)) => step != JobType::RestoreVm,
        _ => false,
    }
}

/// Waits for our change to take effect.
pub fn wait_for_change(draft: &mut Draft<'_>, object: &str) -> Outcome {
    let message = format!("{object} is being changed");
    draft.wait(Wait::Setting, Some(object.to_owned()), message).into()
}
