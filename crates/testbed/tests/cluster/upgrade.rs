//! Whole upgrades on a real control plane. Nothing outside takes any time, so what is left is Kubernetes and the manager.

use std::time::Duration;

use api::{NodeState, NodeUpgradeOption, Phase, UpgradePlan, UpgradePlanSpec, foreign::longhorn, names};
use k8s_openapi::api::{batch::v1::Job, core::v1::Node};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::json;
use testbed::Program;
use world::Shape;

use crate::harvester::{Harvester, MANAGER};

/// An upgrade, or a part of one.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a test on a cluster of its own, after those before it: two at once would only take each other's time.
fn on_cluster_of(nodes: usize, test: impl AsyncFnOnce(&mut Harvester)) {
    if !testbed::is_wanted() {
        return;
    }
    let _turn = crate::turn();
    let shape = Shape {
        nodes,
        vms: 2 * nodes,
        ..Shape::default()
    };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut harvester = Harvester::start(shape).await;
        test(&mut harvester).await;
    });
}

fn has_reached(phase: Phase) -> impl Fn(&UpgradePlan) -> bool {
    move |plan| plan.phase() >= Some(phase)
}

fn is_held(plan: &UpgradePlan, node: &str) -> bool {
    let status = plan
        .status
        .as_ref()
        .and_then(|status| status.node_upgrade_statuses.get(node));
    status.is_some_and(|status| status.state.as_deref() == Some(NodeState::UpgradePaused.as_str()))
}

async fn replenishment(harvester: &Harvester) -> String {
    let settings: Api<longhorn::Setting> = Api::namespaced(harvester.client.clone(), names::LONGHORN_NAMESPACE);
    settings.get(names::REPLENISHMENT_SETTING).await.unwrap().value
}

#[test]
fn three_nodes_are_upgraded_to_the_end() {
    on_cluster_of(3, async |harvester| {
        let before = replenishment(harvester).await;
        harvester.start_manager().await;
        harvester.create_plan("up", UpgradePlanSpec::default()).await;
        harvester.succeeded("up", LIMIT).await;

        let nodes: Api<Node> = Api::all(harvester.client.clone());
        for node in nodes.list(&ListParams::default()).await.unwrap() {
            let info = node.status.unwrap().node_info.unwrap();
            assert_eq!(info.os_image, "Harvester v1.8.0");
        }
        assert_eq!(replenishment(harvester).await, before);
        let requests = harvester.control_plane.audit().unwrap();
        let asked: Vec<_> = requests.iter().filter(|request| request.agent == MANAGER).collect();
        let refused: Vec<_> = asked.iter().filter(|request| request.code == 403).collect();
        assert!(refused.is_empty(), "the shipped roles do not allow {refused:?}");
        let conflicts = asked.iter().filter(|request| request.code == 409).count();
        assert!(conflicts < 5, "{conflicts} writes were conflicts");
    });
}

#[test]
fn a_held_node_waits_for_its_user_and_a_second_plan_for_the_first() {
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
            .plan_when("first", LIMIT, "held at node-2", |plan| is_held(plan, "node-2"))
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
        let is_setting = |request: &&testbed::Request| request.agent == MANAGER && request.resource == "settings";
        let written = requests.iter().filter(is_setting).filter(|request| request.is_write());
        assert_eq!(written.count(), 2, "the setting is changed and put back");
        let jobs: Api<Job> = Api::namespaced(harvester.client.clone(), names::HARVESTER_NAMESPACE);
        harvester.until_none(&jobs, LIMIT).await;
    });
}
