//! Harvester's charts on a real control plane: who owns what Fleet applies, and an upgrade to the version that runs.

use std::time::Duration;

use api::{Phase, UpgradePlan, UpgradePlanSpec, foreign::kubevirt::KubeVirt, names};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use world::{Durations, Shape};

use crate::harvester::{self, Harvester};

/// An upgrade.
const LIMIT: Duration = Duration::from_secs(180);

fn is_released(plan: &UpgradePlan) -> bool {
    plan.finalizers().is_empty()
}

fn shape(nodes: usize, to: &str) -> Shape {
    Shape {
        nodes,
        vms: 2 * nodes,
        from: "v1.8.0".to_owned(),
        to: to.to_owned(),
        ..Shape::default()
    }
}

async fn upgrade(harvester: &mut Harvester) {
    harvester.start_manager().await;
    harvester.create_plan("up", UpgradePlanSpec::default()).await;
    harvester.succeeded("up", LIMIT).await;
    let plan = harvester.plan_when("up", LIMIT, "released", is_released).await;
    assert_eq!(plan.phase(), Some(Phase::Succeeded));
}

#[test]
fn r32_the_same_version_to_the_same_version_succeeds_on_a_real_control_plane() {
    for nodes in [1, 3] {
        harvester::on_cluster(shape(nodes, "v1.8.0"), Durations::instant(), async |harvester| {
            upgrade(harvester).await;
            let nodes: Api<Node> = Api::all(harvester.client.clone());
            for node in nodes.list(&ListParams::default()).await.unwrap() {
                let name = node.name_any();
                assert_ne!(node.spec.unwrap().unschedulable, Some(true), "{name} is cordoned");
                assert_eq!(
                    node.status.unwrap().node_info.unwrap().os_image,
                    "Harvester v1.8.0",
                    "{name}"
                );
            }
        });
    }
}

#[test]
fn r02_fleet_applies_its_chart_on_a_real_api_server_though_an_earlier_upgrade_owned_a_field() {
    harvester::on_cluster(shape(1, "v1.9.0"), Durations::instant(), async |harvester| {
        let kubevirts: Api<KubeVirt> = Api::namespaced(harvester.client.clone(), names::HARVESTER_NAMESPACE);
        let params = PatchParams {
            field_manager: Some("upgrade-toolkit".to_owned()),
            ..PatchParams::default()
        };
        for methods in [json!([]), json!(["LiveMigrate"])] {
            let patch = json!({"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": methods}}});
            kubevirts
                .patch(names::KUBEVIRT, &params, &Patch::Merge(&patch))
                .await
                .unwrap();
        }
        upgrade(harvester).await;
        let kubevirt = kubevirts.get(names::KUBEVIRT).await.unwrap();
        let owners = kubevirt.managed_fields().iter().map(|entry| json!(entry));
        let ours = owners.filter(|entry| entry["manager"] == "upgrade-toolkit" && entry["subresource"].is_null());
        assert_eq!(ours.count(), 0, "a name of ours is left");
    });
}
