//! What a person does while an upgrade runs.

use std::time::Duration;

use api::{Component, JobType, NodeState, Phase, UpgradePlan, annotations, foreign::capi::Machine, labels, names};
use cli::rehearsal::Rehearsal;
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{Node, Secret},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::json;
use world::Troubles;

/// What a person does while an upgrade runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// Resumes paused nodes, ten minutes after they are paused.
    LetsGo,
    /// Resumes paused nodes as soon as they are paused, long before their turn.
    LetsGoAtOnce,
    /// Deletes the plan when it has reached a phase.
    DeletesAt(Phase),
    /// Deletes the plan when a node is in a state.
    DeletesAtNode(&'static str, NodeState),
    /// Repairs what is broken and requests a retry, ten minutes after the plan has failed.
    FixesAndRetries,
    /// Repairs what is broken and creates another plan, ten minutes after the plan has failed.
    FixesAndStartsOver,
    /// Lets the plan skip the preload when it has reached a phase; in that of the preload, once a Job of it has a pod.
    SkipsPreloadAt(Phase),
    /// Creates a second plan so long after the first.
    CreatesAnother(Duration),
    /// Leaves failed Jobs around: one of a plan that is gone, and one of an unknown kind.
    LeavesJobsAround,
    /// Is there when the garbage collector is slow: as the plan is tried again, a failed Job of its Plan that is gone is left.
    SeesJobOfGonePlan,
    /// Adds a node with the old system when the plan has reached a phase.
    AddsNode(&'static str, Phase),
    /// Removes a node from the cluster when the plan has reached a phase.
    RemovesNode(&'static str, Phase),
    /// Removes a node from the cluster when it is in a state.
    RemovesNodeAt(&'static str, NodeState),
}

/// How long people take.
const A_WHILE: Duration = Duration::from_secs(600);

/// Does it.
pub(crate) async fn act(rehearsal: &Rehearsal, name: &str, user: &User) {
    let plans: Api<UpgradePlan> = Api::all(rehearsal.server.client());
    let patch = async |patch: serde_json::Value| {
        plans
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    };
    match user {
        User::LetsGo => {
            rehearsal.follow(name, None, is_paused).await;
            rehearsal.clock.sleep(A_WHILE).await;
            patch(json!({"spec": {"nodeUpgradeOption": {"pauseNodes": null}}})).await;
        }
        User::LetsGoAtOnce => {
            let is_paused = |plan: &UpgradePlan| {
                let nodes = plan
                    .status
                    .iter()
                    .flat_map(|status| status.node_upgrade_statuses.values());
                nodes.into_iter().any(|node| node.state() == Some("UpgradePaused"))
            };
            rehearsal.follow(name, None, is_paused).await;
            patch(json!({"spec": {"nodeUpgradeOption": {"pauseNodes": null}}})).await;
        }
        User::DeletesAt(phase) => {
            rehearsal.follow(name, None, |plan| plan.phase() >= Some(*phase)).await;
            // While nodes are upgraded the webhook refuses, whatever the plan says: who insists takes it away.
            rehearsal.take_admission_away().await.unwrap();
            plans.delete(name, &DeleteParams::default()).await.unwrap();
        }
        User::DeletesAtNode(node, state) => {
            rehearsal.follow(name, None, |plan| is_at(plan, node, *state)).await;
            // While nodes are upgraded the webhook refuses, whatever the plan says: who insists takes it away.
            rehearsal.take_admission_away().await.unwrap();
            plans.delete(name, &DeleteParams::default()).await.unwrap();
        }
        User::FixesAndRetries => {
            rehearsal.follow(name, None, has_failed).await;
            rehearsal.clock.sleep(A_WHILE).await;
            rehearsal.set_troubles(Troubles::default());
            patch(json!({"metadata": {"annotations": {annotations::RETRY: "1"}}})).await;
        }
        User::FixesAndStartsOver => {
            rehearsal.follow(name, None, has_failed).await;
            rehearsal.clock.sleep(A_WHILE).await;
            rehearsal.set_troubles(Troubles::default());
            rehearsal.create_unchecked(rehearsal.plan(false, &[])).await.unwrap();
        }
        User::SkipsPreloadAt(phase) => {
            rehearsal.follow(name, None, |plan| plan.phase() >= Some(*phase)).await;
            if *phase == Phase::ImagePreloading {
                until_at_work(rehearsal, Component::ImagePreload).await;
            }
            patch(json!({"spec": {"imagePreloadOption": {"concurrency": -1}}})).await;
        }
        User::CreatesAnother(later) => {
            rehearsal.clock.sleep(*later).await;
            rehearsal.create_unchecked(rehearsal.plan(false, &[])).await.unwrap();
        }
        User::LeavesJobsAround => {
            let jobs: Api<Job> = Api::namespaced(rehearsal.server.client(), names::HARVESTER_NAMESPACE);
            let left = [
                ("left-over", "gone", JobType::PreDrain.as_str()),
                ("unknown", name, "lunch"),
            ];
            for (job, plan, step) in left {
                let object = json!({
                    "metadata": {"name": job, "labels": {
                        labels::UPGRADE_PLAN: plan, labels::UPGRADE_COMPONENT: Component::NodeUpgrade,
                        labels::JOB_TYPE: step, labels::NODE: "node-1",
                    }},
                    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}},
                });
                let object = serde_json::from_value(object).unwrap();
                jobs.create(&PostParams::default(), &object).await.unwrap();
                let failed =
                    json!({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "no"});
                let patch = Patch::Merge(json!({"status": {"conditions": [failed]}}));
                jobs.patch_status(job, &PatchParams::default(), &patch).await.unwrap();
            }
        }
        User::SeesJobOfGonePlan => {
            rehearsal.follow(name, None, has_failed).await;
            rehearsal.clock.sleep(A_WHILE).await;
            let jobs: Api<Job> = Api::namespaced(rehearsal.server.client(), names::CATTLE_NAMESPACE);
            let component = Component::ImagePreload;
            let object = json!({
                "metadata": {"name": "left", "labels": {
                    labels::UPGRADE_PLAN: name, labels::UPGRADE_COMPONENT: component, labels::NODE: "node-1",
                }, "ownerReferences": [{"apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "uid": "gone",
                    "name": names::suc_plan(name, component), "controller": true}]},
                "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}},
            });
            let object = serde_json::from_value(object).unwrap();
            jobs.create(&PostParams::default(), &object).await.unwrap();
        }
        User::AddsNode(node, phase) => {
            rehearsal.follow(name, None, |plan| plan.phase() >= Some(*phase)).await;
            let nodes: Api<Node> = Api::all(rehearsal.server.client());
            let mut new = nodes.get("node-3").await.unwrap();
            new.metadata = ObjectMeta {
                name: Some((*node).to_owned()),
                labels: new.metadata.labels,
                ..ObjectMeta::default()
            };
            new.labels_mut()
                .insert("kubernetes.io/hostname".to_owned(), (*node).to_owned());
            new.spec = None;
            nodes.create(&PostParams::default(), &new).await.unwrap();
            // As its kubelet would: status does not come with the creation.
            let status = json!({"status": new.status});
            let patch = Patch::Merge(status);
            nodes.patch_status(node, &PatchParams::default(), &patch).await.unwrap();
        }
        User::RemovesNode(node, phase) => {
            rehearsal.follow(name, None, |plan| plan.phase() >= Some(*phase)).await;
            remove_node(rehearsal, node).await;
        }
        User::RemovesNodeAt(node, state) => {
            rehearsal.follow(name, None, |plan| is_at(plan, node, *state)).await;
            remove_node(rehearsal, node).await;
        }
    }
}

/// Removes a node as Rancher does: its Machine and what belongs to that go with it.
async fn remove_node(rehearsal: &Rehearsal, node: &str) {
    let client = rehearsal.server.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let machine = nodes.get(node).await.unwrap().annotations()[annotations::MACHINE].clone();
    let machines: Api<Machine> = Api::namespaced(client.clone(), names::FLEET_NAMESPACE);
    machines.delete(&machine, &DeleteParams::default()).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client, names::FLEET_NAMESPACE);
    let of_machine = ListParams::default().labels(&format!("{}={machine}", labels::MACHINE_NAME));
    secrets
        .delete_collection(&DeleteParams::default(), &of_machine)
        .await
        .unwrap();
    nodes.delete(node, &DeleteParams::default()).await.unwrap();
}

/// A node of the plan is in a state.
pub(crate) fn is_at(plan: &UpgradePlan, node: &str, state: NodeState) -> bool {
    let status = plan.status.as_ref();
    let entry = status.and_then(|status| status.node_upgrade_statuses.get(node));
    entry.is_some_and(|entry| entry.state() == Some(state.as_str()))
}

/// The plan has failed, and everything is restored.
pub(crate) fn has_failed(plan: &UpgradePlan) -> bool {
    plan.phase() == Some(Phase::Failed) && plan.finalizers().is_empty()
}

/// A node of the plan is paused, and it is its turn: the plan waits for nothing else.
pub(crate) fn is_paused(plan: &UpgradePlan) -> bool {
    let Some(status) = &plan.status else { return false };
    let mut nodes = status.node_upgrade_statuses.values();
    let mut waits = status.waiting_for.iter();
    nodes.any(|node| node.state() == Some(NodeState::UpgradePaused.as_str()))
        && waits.all(|wait| wait.what.ends_with("Paused"))
}

/// Waits until a Job of a component has a pod.
async fn until_at_work(rehearsal: &Rehearsal, component: Component) {
    let is_at_work = |job: &serde_json::Value| {
        let is_of = job["metadata"]["labels"][labels::UPGRADE_COMPONENT] == component.as_str();
        is_of && job["spec"]["parallelism"] == 1
    };
    let store = rehearsal.server.store();
    while !store.list("batch", "jobs", None).iter().any(|job| is_at_work(job)) {
        rehearsal.clock.sleep(Duration::from_millis(500)).await;
    }
}

/// Waits until a plan is gone.
pub(crate) async fn until_gone(rehearsal: &Rehearsal, name: &str) {
    let plans: Api<UpgradePlan> = Api::all(rehearsal.server.client());
    let uid = plans
        .get(name)
        .await
        .ok()
        .and_then(|plan| plan.metadata.uid)
        .unwrap_or_default();
    await_condition(plans, name, is_deleted(&uid)).await.unwrap();
}
