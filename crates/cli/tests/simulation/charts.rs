//! Harvester's charts: who owns what Fleet applies, who paused what, and an upgrade to the version that runs.

use std::time::Duration;

use api::{Phase, UpgradePlan, foreign::kubevirt::KubeVirt, names};
use cli::rehearsal::{Rehearsal, Scenario, beginning};
use clock::Clock;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use world::Shape;

use crate::{
    run::{Case, in_paused_time, run},
    user,
    watched::Watched,
};

const LONG: Duration = Duration::from_secs(12 * 3600);

/// A cluster that was installed with v1.8, so that Fleet has its charts applied by the server.
async fn newer() -> Watched {
    let shape = Shape {
        vms: 3,
        from: "v1.8.0".to_owned(),
        to: "v1.9.0".to_owned(),
        ..Shape::default()
    };
    let scenario = Scenario {
        shape,
        // Others write too, and what they own is kept account of.
        open: true,
        definitions: crate::run::definitions(),
        ..Scenario::default()
    };
    let clock = Clock::simulated(beginning(), 1.0);
    Watched::start(scenario, clock).await
}

fn get(rehearsal: &Rehearsal, group: &str, plural: &str, namespace: &str, name: &str) -> Value {
    let found = rehearsal.server.store().get(group, plural, namespace, name);
    found.map(|object| (*object).clone()).unwrap_or_default()
}

fn harvester(rehearsal: &Rehearsal) -> Value {
    get(
        rehearsal,
        "management.cattle.io",
        "managedcharts",
        "fleet-local",
        "harvester",
    )
}

fn methods(rehearsal: &Rehearsal) -> Value {
    let kubevirt = get(rehearsal, "kubevirt.io", "kubevirts", "harvester-system", "kubevirt");
    kubevirt["spec"]["workloadUpdateStrategy"]["workloadUpdateMethods"].clone()
}

/// A user changes KubeVirt's methods on the object itself.
async fn set_methods(rehearsal: &Rehearsal, manager: &str, methods: &[&str]) {
    let kubevirts: Api<KubeVirt> = Api::namespaced(rehearsal.server.client(), names::HARVESTER_NAMESPACE);
    let params = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let patch = json!({"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": methods}}});
    kubevirts
        .patch(names::KUBEVIRT, &params, &Patch::Merge(&patch))
        .await
        .unwrap();
}

async fn begin(rehearsal: &Rehearsal) -> String {
    let plan = rehearsal.create(&rehearsal.plan(true, &[])).await.unwrap();
    plan.name_any()
}

fn waits_for(plan: &UpgradePlan, word: &str) -> bool {
    let waits = plan.status.iter().flat_map(|status| &status.waiting_for);
    waits
        .into_iter()
        .any(|wait| wait.message.as_ref().is_some_and(|message| message.contains(word)))
}

#[test]
fn r02_an_upgrade_succeeds_though_earlier_ones_left_their_names_on_kubevirts_methods() {
    in_paused_time(async {
        let rehearsal = newer().await;
        for manager in ["kubectl-patch", "upgrade-toolkit", "unknown"] {
            set_methods(&rehearsal, manager, &[]).await;
            set_methods(&rehearsal, manager, &["LiveMigrate"]).await;
        }
        let _manager = rehearsal.start_only_manager();
        let name = begin(&rehearsal).await;
        let upgrading = |plan: &UpgradePlan| plan.phase() >= Some(Phase::ClusterUpgrading);
        rehearsal.follow(&name, Some(LONG), upgrading).await.unwrap();
        assert_eq!(methods(&rehearsal), json!([]));
        let ended = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty();
        let plan = rehearsal.follow(&name, Some(LONG), ended).await.unwrap();
        assert_eq!(plan.phase(), Some(Phase::Succeeded));
        rehearsal.clock.sleep(Duration::from_secs(300)).await;
        assert_eq!(methods(&rehearsal), json!(["LiveMigrate"]));
        assert_eq!(harvester(&rehearsal)["spec"]["values"]["kubevirt"], Value::Null);
        assert_eq!(harvester(&rehearsal)["status"]["summary"]["ready"], 1);
    });
}

#[test]
fn r02_a_field_that_another_client_owns_is_named_before_anything_is_paused() {
    in_paused_time(async {
        let rehearsal = newer().await;
        set_methods(&rehearsal, "kubectl-edit", &["Evict"]).await;
        let _manager = rehearsal.start_only_manager();
        let name = begin(&rehearsal).await;
        let conflict = "Apply failed with 1 conflict: conflict with 'kubectl-edit'";
        let waits = |plan: &UpgradePlan| waits_for(plan, conflict);
        let plan = rehearsal.follow(&name, Some(LONG), waits).await.unwrap();
        assert_eq!(plan.phase(), Some(Phase::ImagePreloaded));
        assert_eq!(methods(&rehearsal), json!(["Evict"]));
        let status = harvester(&rehearsal)["status"].clone();
        assert_eq!(
            (&status["summary"]["ready"], &status["summary"]["errApplied"]),
            (&json!(0), &json!(1))
        );
        assert_ne!(harvester(&rehearsal)["spec"]["paused"], true);
    });
}

#[test]
fn the_generation_in_a_charts_status_is_that_of_its_bundle_and_a_paused_one_is_seen_and_not_applied() {
    in_paused_time(async {
        let rehearsal = newer().await;
        let bundle = || get(&rehearsal, "fleet.cattle.io", "bundles", "fleet-local", "mcc-harvester");
        let charts: Api<api::foreign::rancher::ManagedChart> =
            Api::namespaced(rehearsal.server.client(), names::FLEET_NAMESPACE);
        let change = async |patch: Value| {
            let params = PatchParams::default();
            charts.patch("harvester", &params, &Patch::Merge(&patch)).await.unwrap();
            rehearsal.clock.sleep(Duration::from_secs(300)).await;
        };
        // Its diff is no part of what the bundle is to be here: another generation of the chart, and not of the bundle.
        change(json!({"spec": {"force": true}})).await;
        assert_ne!(
            harvester(&rehearsal)["metadata"]["generation"],
            bundle()["metadata"]["generation"]
        );
        let methods_of = |methods: Value| json!({"spec": {"values": {"kubevirt": {"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": methods}}}}}});
        change(json!({"spec": {"paused": true}})).await;
        assert_eq!(harvester(&rehearsal)["status"]["summary"]["ready"], 1);
        change(methods_of(json!([]))).await;
        let generation = bundle()["metadata"]["generation"].clone();
        assert_eq!(harvester(&rehearsal)["status"]["observedGeneration"], generation);
        assert_eq!(harvester(&rehearsal)["status"]["summary"]["outOfSync"], 1);
        assert_eq!(methods(&rehearsal), json!(["LiveMigrate"]));
        change(json!({"spec": {"paused": false}})).await;
        assert_eq!(harvester(&rehearsal)["status"]["summary"]["ready"], 1);
        assert_eq!(methods(&rehearsal), json!([]));
    });
}

#[test]
fn r14_a_plan_that_is_deleted_while_its_job_pauses_the_charts_resumes_them() {
    in_paused_time(async {
        let rehearsal = newer().await;
        let _manager = rehearsal.start_only_manager();
        let name = begin(&rehearsal).await;
        while harvester(&rehearsal)["spec"]["paused"] != true {
            rehearsal.clock.sleep(Duration::from_millis(500)).await;
        }
        let plans: Api<UpgradePlan> = Api::all(rehearsal.server.client());
        // While the cluster is upgraded the webhook refuses: who insists takes it away.
        rehearsal.take_admission_away().await.unwrap();
        plans.delete(&name, &DeleteParams::default()).await.unwrap();
        user::until_gone(&rehearsal, &name).await;
        rehearsal.clock.sleep(Duration::from_secs(300)).await;
        for chart in names::MANAGED_CHARTS {
            let chart = get(
                &rehearsal,
                "management.cattle.io",
                "managedcharts",
                "fleet-local",
                chart,
            );
            assert_eq!(chart["spec"]["paused"], false, "{}", chart["metadata"]);
            assert_eq!(chart["status"]["summary"]["ready"], 1, "{}", chart["status"]);
        }
        assert_eq!(methods(&rehearsal), json!(["LiveMigrate"]));
    });
}

#[test]
fn r32_the_same_version_to_the_same_version_succeeds() {
    for nodes in [1, 3] {
        let mut case = Case::three_nodes();
        case.scenario.shape = Shape {
            nodes,
            vms: 3,
            from: "v1.8.0".to_owned(),
            to: "v1.8.0".to_owned(),
            ..Shape::default()
        };
        let ended = run(&case);
        assert_eq!(ended.digest["status"]["currentPhase"], "Succeeded", "{nodes} nodes");
        assert_eq!(ended.violations, [""; 0]);
        for (name, node) in ended.digest["nodes"].as_object().unwrap() {
            assert_eq!(node["osImage"], "Harvester v1.8.0", "{name}");
            assert!(
                node["cordoned"].is_null() || node["cordoned"] == false,
                "{name} is cordoned"
            );
        }
    }
}
