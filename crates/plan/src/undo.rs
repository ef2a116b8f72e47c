//! Puts back what the upgrade changed, from what the plan has on record, and removes what it created.
//!
//! Success, failure and deletion share these rules. Each one looks at what is, so it can be interrupted anywhere.

use std::time::Duration;

use api::{
    annotations,
    labels::{component, job_type},
    reasons,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    decision::{Action, Child, ChildKind, PlanEvent},
    draft::{Draft, Outcome},
    node,
};

/// Why things are put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The upgrade is done.
    Success,
    /// The upgrade failed.
    Failure,
    /// The plan is being deleted.
    Deletion,
}

/// What KubeVirt and Fleet were like before the cluster upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedMethods {
    /// KubeVirt's workloadUpdateMethods.
    pub methods: Vec<String>,
    /// Fleet ignored changes of them already.
    pub ignored: bool,
}

/// One thing to put back.
type Undo = fn(&mut Draft<'_>, Ending) -> Outcome;

/// All of them, in order.
const UNDO: [Undo; 7] = [
    skip_manifests,
    replenishment_interval,
    descheduler,
    workload_update_methods,
    upgrade_strategy,
    nodes,
    children,
];

/// Puts everything back; [`Outcome::Done`] once all of it is seen to be so.
pub fn put_back(draft: &mut Draft<'_>, ending: Ending) -> Outcome {
    let mut outcome = Outcome::Done;
    for undo in UNDO {
        if undo(draft, ending) != Outcome::Done {
            outcome = Outcome::Wait;
        }
    }
    outcome
}

/// RKE2 applies its own manifests again.
fn skip_manifests(draft: &mut Draft<'_>, _: Ending) -> Outcome {
    if draft.annotation(annotations::SKIP_MANIFESTS_APPLIED) != Some("true") {
        return Outcome::Done;
    }
    let seen = draft.seen;
    let plan = seen.suc_plans.get(component::SKIP_MANIFESTS_REMOVE);
    if plan.is_some_and(|plan| plan.complete) {
        draft.annotate(annotations::SKIP_MANIFESTS_APPLIED, None);
        return Outcome::Done;
    }
    if plan.is_none() {
        let nodes = seen.nodes.values().filter(|node| node.managed).count();
        draft.create(Child::SucPlan {
            component: component::SKIP_MANIFESTS_REMOVE.to_owned(),
            concurrency: i64::try_from(nodes).unwrap_or(i64::MAX),
            images: Vec::new(),
        });
    }
    let name = api::names::suc_plan(draft.plan_name(), component::SKIP_MANIFESTS_REMOVE);
    let object = Some(format!("Plan cattle-system/{name}"));
    let limit = seen.settings.deadlines.skip_manifests;
    if draft.wait(
        "SkipManifestsRemove",
        object,
        "waiting for skip-manifest remove plan to complete",
        limit,
    ) {
        // A node that is gone for good must not keep the plan from ending.
        draft.annotate(annotations::SKIP_MANIFESTS_APPLIED, None);
        let text = "RKE2 manifests are still skipped on some nodes: remove \
                    /var/lib/rancher/rke2/server/manifests/rke2-multus.yaml.skip there";
        draft.event(PlanEvent::warning(reasons::STALLED, text));
    }
    Outcome::Wait
}

/// Longhorn rebuilds replicas as soon as before.
fn replenishment_interval(draft: &mut Draft<'_>, _: Ending) -> Outcome {
    let Some(saved) = draft
        .annotation(annotations::SAVED_REPLENISHMENT_INTERVAL)
        .map(str::to_owned)
    else {
        return Outcome::Done;
    };
    match &draft.seen.replenishment_interval {
        Some(now) if *now != saved => {
            draft.act(Action::SetReplenishmentInterval { value: saved });
            changing(draft, "Setting longhorn-system/replica-replenishment-wait-interval")
        }
        _ => Outcome::Done,
    }
}

/// The descheduler runs again, if it did.
fn descheduler(draft: &mut Draft<'_>, _: Ending) -> Outcome {
    let was_enabled = draft.annotation(annotations::DESCHEDULER_WAS_ENABLED) == Some("true");
    if was_enabled && draft.seen.descheduler_enabled == Some(false) {
        draft.act(Action::EnableDescheduler { enabled: true });
        return changing(draft, "Addon kube-system/descheduler");
    }
    Outcome::Done
}

/// KubeVirt moves VMs on its own updates again, if it did.
fn workload_update_methods(draft: &mut Draft<'_>, _: Ending) -> Outcome {
    let saved = draft.annotation(annotations::SAVED_WORKLOAD_UPDATE_METHODS);
    let Some(saved) = saved.and_then(|text| serde_json::from_str::<SavedMethods>(text).ok()) else {
        return Outcome::Done;
    };
    let mut outcome = Outcome::Done;
    if draft
        .seen
        .workload_update_methods
        .as_ref()
        .is_some_and(|now| *now != saved.methods)
    {
        draft.act(Action::SetWorkloadUpdateMethods { methods: saved.methods });
        outcome = changing(draft, "KubeVirt harvester-system/kubevirt");
    }
    if !saved.ignored && draft.seen.chart_ignores_methods == Some(true) {
        draft.act(Action::IgnoreWorkloadUpdateMethods { ignore: false });
        outcome = changing(draft, "ManagedChart fleet-local/harvester");
    }
    outcome
}

/// Rancher drains as before. Never while it still has nodes to upgrade: without our hooks it would go on with them
/// unprotected.
fn upgrade_strategy(draft: &mut Draft<'_>, ending: Ending) -> Outcome {
    let Some(saved) = draft.annotation(annotations::SAVED_UPGRADE_STRATEGY) else {
        return Outcome::Done;
    };
    let Ok(saved) = serde_json::from_str::<Value>(saved) else {
        return Outcome::Done;
    };
    let Some(cluster) = &draft.seen.cluster else {
        return Outcome::Done;
    };
    let provisioned = draft
        .status()
        .provision_generation
        .is_some_and(|ours| cluster.provision_generation >= ours);
    if !provisioned || (ending != Ending::Success && !rancher_is_done(draft)) {
        return Outcome::Done;
    }
    let now = cluster.upgrade_strategy.clone().unwrap_or_default();
    if now == saved {
        return Outcome::Done;
    }
    draft.act(Action::RestoreUpgradeStrategy { strategy: saved });
    changing(draft, "Cluster fleet-local/local")
}

/// No node is left that Rancher would go on with.
fn rancher_is_done(draft: &Draft<'_>) -> bool {
    let asks = |token: &Option<String>| token.as_deref().is_some_and(|token| !token.is_empty());
    let open = draft
        .seen
        .machine_plans
        .iter()
        .any(|plan| asks(&plan.pre_drain) || asks(&plan.post_drain));
    let managed = draft.seen.nodes.iter().filter(|(_, node)| node.managed);
    let all_done = managed
        .map(|(name, _)| draft.progress(name).state())
        .all(|state| state.is_some_and(node::is_upgraded));
    !open && all_done
}

/// Nodes carry nothing of ours any more. Labels of system-upgrade-controller stay on failure: they tell a later try
/// which nodes have been served.
fn nodes(draft: &mut Draft<'_>, ending: Ending) -> Outcome {
    let mut outcome = Outcome::Done;
    for (name, node) in &draft.seen.nodes {
        let ours = [
            (annotations::PENDING_OS_IMAGE, node.pending_os_image.is_some()),
            (
                annotations::BOOT_ID_BEFORE_UPGRADE,
                node.boot_id_before_upgrade.is_some(),
            ),
        ];
        let left: Vec<_> = ours.into_iter().filter(|(_, present)| *present).collect();
        if !left.is_empty() {
            let annotations = left.into_iter().map(|(key, _)| (key.to_owned(), None)).collect();
            draft.act(Action::AnnotateNode {
                node: name.clone(),
                annotations,
            });
            outcome = changing(draft, &format!("Node {name}"));
        }
        // The Plans go first: a Plan that is still there would serve an unlabelled node once more.
        if ending != Ending::Failure && !node.leftover_labels.is_empty() && draft.seen.suc_plans.is_empty() {
            draft.act(Action::UnlabelNode {
                node: name.clone(),
                labels: node.leftover_labels.clone(),
            });
            outcome = changing(draft, &format!("Node {name}"));
        }
    }
    outcome
}

/// What we created is gone. Jobs stay after a failure, for their logs; those that start VMs again always stay.
fn children(draft: &mut Draft<'_>, ending: Ending) -> Outcome {
    let seen = draft.seen;
    let mut left: Vec<(ChildKind, String, Option<String>)> = Vec::new();
    if seen.iso_image.as_ref().is_some_and(|image| image.ours) {
        left.push((ChildKind::Image, component::ISO.to_owned(), None));
    }
    if seen.repo.deployment_ready.is_some() {
        left.push((ChildKind::Deployment, component::REPO.to_owned(), None));
    }
    if seen.repo.service_ready.is_some() {
        left.push((ChildKind::Service, component::REPO.to_owned(), None));
    }
    let undoing = draft.annotation(annotations::SKIP_MANIFESTS_APPLIED) == Some("true");
    for plan in seen
        .suc_plans
        .keys()
        .filter(|plan| !(undoing && *plan == component::SKIP_MANIFESTS_REMOVE))
    {
        left.push((ChildKind::SucPlan, plan.clone(), None));
    }
    if ending != Ending::Failure {
        for job in seen.jobs.values() {
            let ours = match (job.component.as_str(), job.job_type.as_deref()) {
                (component::CLUSTER_UPGRADE, _) => true,
                (component::NODE_UPGRADE, Some(step)) => step != job_type::RESTORE_VM,
                _ => false,
            };
            let entry = (ChildKind::Job, job.component.clone(), job.job_type.clone());
            if ours && !left.contains(&entry) {
                left.push(entry);
            }
        }
    }
    let mut outcome = Outcome::Done;
    for (kind, component, job_type) in left {
        let text = format!("{kind:?} {component}");
        draft.act(Action::Delete {
            kind,
            component,
            job_type,
        });
        outcome = waiting(draft, "Removal", &text, "objects of the upgrade are being removed");
    }
    outcome
}

/// Waits for a change of ours to show.
pub fn changing(draft: &mut Draft<'_>, object: &str) -> Outcome {
    waiting(draft, "Setting", object, &format!("{object} is being changed"))
}

fn waiting(draft: &mut Draft<'_>, what: &str, object: &str, message: &str) -> Outcome {
    let limit: Duration = draft.seen.settings.deadlines.setting;
    draft.wait(what, Some(object.to_owned()), message, limit);
    Outcome::Wait
}
