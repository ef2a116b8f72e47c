//! Whole upgrades on a real control plane. Nothing outside takes any time, so what is left is Kubernetes and the manager.

use std::time::Duration;

use api::{
    Component, JobType, NodeState, NodeUpgradeOption, Phase, UpgradePlan, UpgradePlanSpec, accounts, annotations,
    foreign::{harvester::VirtualMachineImage, longhorn, suc},
    labels, names, reasons,
};
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, Node, Service},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::json;
use testbed::{Program, Request};
use world::{
    Durations, Shape, Troubles,
    troubles::{JobFailure, JobTrouble},
};

use crate::{
    embedded::{self, masked},
    harvester::{self, Harvester, MANAGER},
};

/// Part of kube-controller-manager.
const GARBAGE_COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
/// An upgrade, or a part of one.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a test on a cluster in which nothing outside takes any time.
fn on_cluster_of(nodes: usize, test: impl AsyncFnOnce(&mut Harvester)) {
    harvester::on_cluster(of(nodes), Durations::instant(), test);
}

fn of(nodes: usize) -> Shape {
    Shape {
        nodes,
        vms: 2 * nodes,
        ..Shape::default()
    }
}

fn has_reached(phase: Phase) -> impl Fn(&UpgradePlan) -> bool {
    move |plan| plan.phase() >= Some(phase)
}

/// The node is paused, and its turn has come: others wait behind it.
fn is_paused(plan: &UpgradePlan, node: &str) -> bool {
    let Some(status) = &plan.status else { return false };
    let state = status.node_upgrade_statuses.get(node);
    state.is_some_and(|entry| entry.state() == Some(NodeState::UpgradePaused.as_str()))
        && status.waiting_for.iter().any(|wait| wait.what == "BehindPaused")
}

fn is_released(plan: &UpgradePlan) -> bool {
    plan.finalizers().is_empty()
}

async fn replenishment(harvester: &Harvester) -> String {
    let settings: Api<longhorn::Setting> = Api::namespaced(harvester.client.clone(), names::LONGHORN_NAMESPACE);
    settings.get(names::REPLENISHMENT_SETTING).await.unwrap().value
}

/// Images were brought to every node and stale ones removed, only by the component that runs Plans. It makes a Job, deletes
/// it before it has a pod, and makes it again, unless it notes in time whose turn it is.
fn assert_plans_ran_on(nodes: &[&str], requests: &[Request]) {
    let jobs: Vec<_> = requests
        .iter()
        .filter(|request| request.verb == "create" && request.resource == "jobs" && request.succeeded())
        .filter(|request| request.namespace == names::CATTLE_NAMESPACE)
        .collect();
    let runs_plans = harvester::runs_plans();
    let others: Vec<_> = jobs.iter().filter(|job| !job.agent.starts_with(runs_plans)).collect();
    assert!(others.is_empty(), "not by {runs_plans}: {others:?}");
    for plan in ["up-image-preload", "up-image-cleanup"] {
        for node in nodes {
            let job = format!("apply-{plan}-on-{node}-");
            let found = jobs.iter().filter(|request| request.name.starts_with(&job)).count();
            assert!((1..=2).contains(&found), "{job}, {found} times: {jobs:?}");
        }
    }
}

#[test]
fn three_nodes_are_upgraded_to_the_end() {
    on_cluster_of(3, async |harvester| {
        let before = replenishment(harvester).await;
        harvester.start_manager().await;
        harvester.create_plan("up", UpgradePlanSpec::default()).await;
        harvester.succeeded("up", LIMIT).await;
        let plan = harvester.plan_when("up", LIMIT, "released", is_released).await;
        assert_eq!(
            masked(&plan),
            masked(&embedded::upgraded(of(3), "up")),
            "not as embedded"
        );

        let nodes: Api<Node> = Api::all(harvester.client.clone());
        for node in nodes.list(&ListParams::default()).await.unwrap() {
            let info = node.status.unwrap().node_info.unwrap();
            assert_eq!(info.os_image, "Harvester v1.8.0");
        }
        assert_eq!(replenishment(harvester).await, before);
        let requests = harvester.control_plane.audit().unwrap();
        assert_plans_ran_on(&["node-1", "node-2", "node-3"], &requests);
        let asked: Vec<_> = requests.iter().filter(|request| request.agent == MANAGER).collect();
        let refused: Vec<_> = asked.iter().filter(|request| request.code == 403).collect();
        assert!(refused.is_empty(), "the shipped roles do not allow {refused:?}");
        // Programs have their own accounts, and what these may do is enough.
        for (_, account) in harvester::accounts() {
            let asked: Vec<_> = requests.iter().filter(|request| request.agent == account).collect();
            let refused: Vec<_> = asked.iter().filter(|request| request.code == 403).collect();
            assert!(
                refused.is_empty(),
                "{account}: the shipped roles do not allow {refused:?}"
            );
            // Nothing is to be restored here, and Helm is played by the world.
            let is_idle = [accounts::VM_RESTORE, accounts::RANCHER_INSTALLER]
                .iter()
                .any(|idle| account.ends_with(idle));
            assert_eq!(asked.is_empty(), is_idle, "{account}");
        }
        let conflicts = asked.iter().filter(|request| request.code == 409).count();
        assert!(conflicts < 5, "{conflicts} writes were conflicts");
    });
}

#[test]
fn a_paused_node_waits_for_its_user_and_a_second_plan_for_the_first() {
    on_cluster_of(3, async |harvester| {
        harvester.start_manager().await;
        let pause = NodeUpgradeOption {
            pause_nodes: Some(vec!["node-2".to_owned()]),
        };
        let spec = UpgradePlanSpec {
            node_upgrade_option: Some(pause),
            ..UpgradePlanSpec::default()
        };
        harvester.create_plan("first", spec).await;
        harvester
            .plan_when("first", LIMIT, "paused at node-2", |plan| is_paused(plan, "node-2"))
            .await;
        harvester.create_plan("second", UpgradePlanSpec::default()).await;
        let waits = |plan: &UpgradePlan| {
            plan.status
                .as_ref()
                .is_some_and(|status| !status.waiting_for.is_empty())
        };
        let second = harvester.plan_when("second", LIMIT, "waiting", waits).await;
        assert!(second.phase() < Some(Phase::Initialized), "{:#?}", second.status);

        let go = json!({"spec": {"nodeUpgradeOption": {"pauseNodes": null}}});
        let plans = harvester.plans();
        plans
            .patch("first", &PatchParams::default(), &Patch::Merge(go))
            .await
            .unwrap();
        harvester.succeeded("first", LIMIT).await;
    });
}

#[test]
fn a_single_node_is_upgraded_although_the_api_server_crashes_in_between() {
    on_cluster_of(1, async |harvester| {
        harvester.start_manager().await;
        harvester.create_plan("up", UpgradePlanSpec::default()).await;
        harvester
            .plan_when("up", LIMIT, "preloading", has_reached(Phase::ImagePreloading))
            .await;
        harvester.control_plane.restart(Program::ApiServer).unwrap();
        harvester.succeeded("up", LIMIT).await;
    });
}

#[test]
fn a_deleted_plan_restores_what_it_changed_and_leaves_nothing_behind() {
    on_cluster_of(3, async |harvester| {
        let before = replenishment(harvester).await;
        harvester.start_manager().await;
        harvester.create_plan("up", UpgradePlanSpec::default()).await;
        let plan = harvester
            .plan_when("up", LIMIT, "upgrading nodes", has_reached(Phase::NodeUpgrading))
            .await;
        let plans = harvester.plans();
        plans.delete("up", &DeleteParams::default()).await.unwrap();
        let gone = await_condition(plans, "up", is_deleted(plan.metadata.uid.as_deref().unwrap()));
        tokio::time::timeout(LIMIT, gone).await.unwrap().unwrap();

        assert_eq!(replenishment(harvester).await, before);
        let requests = harvester.control_plane.audit().unwrap();
        let is_setting = |request: &&Request| request.agent == MANAGER && request.resource == "settings";
        let written = requests.iter().filter(is_setting).filter(|request| request.is_write());
        assert_eq!(written.count(), 2, "the setting is changed and restored");
        let jobs: Api<Job> = Api::namespaced(harvester.client.clone(), names::HARVESTER_NAMESPACE);
        harvester.until_none(&jobs, LIMIT).await;
    });
}

#[test]
fn a_plan_that_failed_at_a_node_is_tried_again_and_succeeds() {
    on_cluster_of(3, async |harvester| {
        let trouble = JobTrouble {
            component: Component::NodeUpgrade.to_owned(),
            job_type: Some(JobType::PreDrain.to_owned()),
            node: Some("node-2".to_owned()),
            failure: JobFailure::Fails(100),
        };
        harvester.facts.set_troubles(Troubles {
            jobs: vec![trouble],
            ..Troubles::default()
        });
        let before = harvester.provision_generation().await.unwrap_or_default();
        harvester.start_manager().await;
        harvester.create_plan("up", UpgradePlanSpec::default()).await;
        // Kubernetes would try for ten minutes; a person without that patience says so.
        let jobs: Api<Job> = Api::namespaced(harvester.client.clone(), names::HARVESTER_NAMESPACE);
        let job = names::node_job("up", JobType::PreDrain, "node-2");
        let has_failed_once = |job: Option<&Job>| {
            let failed = job.and_then(|job| job.status.as_ref()?.failed);
            failed.is_some_and(|failed| failed > 0)
        };
        let failing = await_condition(jobs.clone(), &job, has_failed_once);
        tokio::time::timeout(LIMIT, failing).await.unwrap().unwrap();
        let impatient = Patch::Merge(json!({"spec": {"backoffLimit": 0}}));
        jobs.patch(&job, &PatchParams::default(), &impatient).await.unwrap();

        let has_failed = |plan: &UpgradePlan| plan.phase() == Some(Phase::Failed) && is_released(plan);
        let failed = harvester.plan_when("up", LIMIT, "failed", has_failed).await;
        let why = &failed.condition(reasons::PROGRESSING).unwrap().message;
        assert!(why.starts_with("node node-2 upgrade failed: "), "{why}");
        let states = |plan: &UpgradePlan| -> Vec<Option<String>> {
            let nodes = plan.status.as_ref().unwrap().node_upgrade_statuses.values();
            nodes.map(|node| node.state().map(str::to_owned)).collect()
        };
        assert_ne!(states(&failed)[0], states(&failed)[1], "node-1 is done");

        harvester.facts.set_troubles(Troubles::default());
        let retry = Patch::Merge(json!({"metadata": {"annotations": {annotations::RETRY: "1"}}}));
        let plans = harvester.plans();
        plans.patch("up", &PatchParams::default(), &retry).await.unwrap();
        let has_succeeded = |plan: &UpgradePlan| plan.phase() == Some(Phase::Succeeded);
        let plan = harvester.plan_when("up", LIMIT, "tried again", has_succeeded).await;
        let done = Some(NodeState::ImageCleaned.as_str().to_owned());
        assert!(states(&plan).iter().all(|state| *state == done), "{:?}", states(&plan));
        assert_eq!(
            harvester.provision_generation().await,
            Some(before + 1),
            "Rancher is started once"
        );
    });
}

#[test]
fn what_a_plan_owns_goes_with_it_by_kubernetes_own_garbage_collector() {
    on_cluster_of(3, async |harvester| {
        let manager = harvester.start_manager().await;
        let spec = UpgradePlanSpec {
            restore_vm: Some(true),
            node_upgrade_option: Some(NodeUpgradeOption {
                pause_nodes: Some(vec!["node-2".to_owned()]),
            }),
            ..UpgradePlanSpec::default()
        };
        harvester.create_plan("up", spec).await;
        harvester
            .plan_when("up", LIMIT, "paused at node-2", |plan| is_paused(plan, "node-2"))
            .await;
        // No manager any more, and nothing of it in the way: all that is left is who owns what.
        manager.abort();
        let plans = harvester.plans();
        let let_go = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        plans.patch("up", &PatchParams::default(), &let_go).await.unwrap();

        let (client, namespace) = (harvester.client.clone(), names::HARVESTER_NAMESPACE);
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        let images: Api<VirtualMachineImage> = Api::namespaced(client.clone(), namespace);
        let suc_plans: Api<suc::Plan> = Api::namespaced(client.clone(), names::CATTLE_NAMESPACE);
        let config_maps: Api<ConfigMap> = Api::namespaced(client, namespace);
        let ours = ListParams::default().labels(labels::UPGRADE_PLAN);
        assert!(!jobs.list(&ours).await.unwrap().items.is_empty());
        assert!(!deployments.list(&ours).await.unwrap().items.is_empty());
        assert!(!services.list(&ours).await.unwrap().items.is_empty());
        assert!(!images.list(&ours).await.unwrap().items.is_empty());
        assert!(!suc_plans.list(&ours).await.unwrap().items.is_empty());
        assert!(!config_maps.list(&ours).await.unwrap().items.is_empty());

        plans.delete("up", &DeleteParams::default()).await.unwrap();
        harvester.until_none_of(&jobs, &ours, LIMIT).await;
        harvester.until_none_of(&deployments, &ours, LIMIT).await;
        harvester.until_none_of(&services, &ours, LIMIT).await;
        harvester.until_none_of(&images, &ours, LIMIT).await;
        harvester.until_none_of(&suc_plans, &ours, LIMIT).await;
        harvester.until_none_of(&config_maps, &ours, LIMIT).await;
        let requests = harvester.control_plane.audit().unwrap();
        for kind in [
            "jobs",
            "deployments",
            "services",
            "virtualmachineimages",
            "plans",
            "configmaps",
        ] {
            let by_collector = requests.iter().any(|request| {
                request.verb == "delete" && request.resource == kind && request.user == GARBAGE_COLLECTOR
            });
            assert!(by_collector, "{kind} were not removed by the garbage collector");
        }
    });
}
