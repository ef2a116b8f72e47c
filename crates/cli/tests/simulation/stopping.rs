//! Pods that outlive their Jobs: nothing is restored before they are gone.

use std::time::Duration;

use api::{UpgradePlan, names};
use cli::rehearsal::{Rehearsal, Scenario, beginning};
use clock::Clock;
use kube::{Api, ResourceExt, api::DeleteParams};
use serde_json::{Value, json};
use world::{Durations, Shape, Troubles};

use crate::{run::in_paused_time, user, watched::Watched};

const LONG: Duration = Duration::from_secs(12 * 3600);

/// A cluster whose garbage collector takes its time, and whose pods end by the last signal only.
async fn slow(troubles: Troubles) -> Watched {
    let scenario = Scenario {
        shape: Shape {
            vms: 3,
            ..Shape::default()
        },
        durations: Durations {
            garbage_collection: Duration::from_secs(20),
            pod_stop: Duration::from_secs(30),
            ..Durations::default()
        },
        troubles,
        definitions: crate::run::definitions(),
        ..Scenario::default()
    };
    let rehearsal = Watched::start(scenario, Clock::simulated(beginning(), 1.0)).await;
    rehearsal.take_admission_away().await.unwrap();
    rehearsal
}

async fn delete(rehearsal: &Rehearsal, name: &str) {
    let plans: Api<UpgradePlan> = Api::all(rehearsal.server.client());
    plans.delete(name, &DeleteParams::default()).await.unwrap();
}

fn paused(rehearsal: &Rehearsal) -> Vec<&'static str> {
    let is_paused = |name: &&str| {
        let chart = rehearsal
            .server
            .store()
            .get("management.cattle.io", "managedcharts", "fleet-local", name);
        chart.is_some_and(|chart| chart["spec"]["paused"] == true)
    };
    names::MANAGED_CHARTS.into_iter().filter(is_paused).collect()
}

fn pods(rehearsal: &Rehearsal, component: &str) -> Vec<Value> {
    let pods = rehearsal.server.store().list("", "pods", None);
    let of = |pod: &Value| pod["metadata"]["labels"]["management.harvesterhci.io/upgrade-component"] == component;
    pods.iter().filter(|pod| of(pod)).map(|pod| (**pod).clone()).collect()
}

#[test]
fn a_program_that_outlives_its_job_pauses_no_chart_after_the_plan_is_gone() {
    // Some of these moments lie before the charts are paused, by less than pods live on.
    for seconds in [2, 10, 20, 40, 60, 90, 120, 160, 200, 240] {
        in_paused_time(async {
            let rehearsal = slow(Troubles::default()).await;
            let _manager = rehearsal.start_only_manager();
            let name = rehearsal
                .create_unchecked(rehearsal.plan(true, &[]))
                .await
                .unwrap()
                .name_any();
            let runs = |pod: &Value| pod["status"]["phase"] == "Running";
            while !pods(&rehearsal, "cluster-upgrade").iter().any(runs) {
                rehearsal.clock.sleep(Duration::from_secs(1)).await;
            }
            rehearsal.clock.sleep(Duration::from_secs(seconds)).await;
            delete(&rehearsal, &name).await;
            user::until_gone(&rehearsal, &name).await;
            rehearsal.clock.sleep(Duration::from_secs(600)).await;
            assert_eq!(paused(&rehearsal), [""; 0], "deleted after {seconds} s");
        });
    }
}

#[test]
fn a_program_that_outlives_its_job_taints_no_node_after_the_plan_is_gone() {
    for seconds in [0, 1, 2, 4, 8, 16, 32] {
        in_paused_time(async {
            let rehearsal = slow(Troubles::default()).await;
            let _manager = rehearsal.start_only_manager();
            let name = rehearsal
                .create_unchecked(rehearsal.plan(true, &[]))
                .await
                .unwrap()
                .name_any();
            while pods(&rehearsal, "node-upgrade").is_empty() {
                rehearsal.clock.sleep(Duration::from_millis(500)).await;
            }
            rehearsal.clock.sleep(Duration::from_secs(seconds)).await;
            delete(&rehearsal, &name).await;
            user::until_gone(&rehearsal, &name).await;
            rehearsal.clock.sleep(Duration::from_secs(600)).await;
            for node in rehearsal.objects("", "nodes") {
                let taints = node.data["spec"]["taints"].as_array().cloned().unwrap_or_default();
                let drained = taints.iter().any(|taint| taint["key"] == "kubevirt.io/drain");
                assert!(!drained, "deleted after {seconds} s: {} {taints:?}", node.name_any());
            }
        });
    }
}

#[test]
fn a_plan_whose_pod_cannot_end_says_so_and_is_gone_after_its_deadline() {
    in_paused_time(async {
        let stuck = (1..=3).map(|number| format!("node-{number}")).collect();
        let rehearsal = slow(Troubles {
            stuck_kubelets: stuck,
            ..Troubles::default()
        })
        .await;
        let _manager = rehearsal.start_only_manager();
        let name = rehearsal
            .create_unchecked(rehearsal.plan(true, &[]))
            .await
            .unwrap()
            .name_any();
        while paused(&rehearsal).is_empty() {
            rehearsal.clock.sleep(Duration::from_secs(1)).await;
        }
        let deleted = rehearsal.clock.now();
        delete(&rehearsal, &name).await;
        let waits = |plan: &UpgradePlan| {
            let waits = plan.status.iter().flat_map(|status| &status.waiting_for);
            waits.into_iter().any(|wait| wait.what == "StillRunning")
        };
        let plan = rehearsal.follow(&name, Some(LONG), waits).await.unwrap();
        assert!(
            !paused(&rehearsal).is_empty(),
            "restored while the Job's pod still works"
        );
        let message = plan.status.as_ref().unwrap().waiting_for[0].message.clone().unwrap();
        assert!(
            message.contains("Pod harvester-system/") && message.contains("--force"),
            "{message}"
        );
        user::until_gone(&rehearsal, &name).await;
        let took = rehearsal.clock.now().duration_since(deleted).as_secs();
        assert!((600..700).contains(&took), "{took}");
        assert_eq!(json!(paused(&rehearsal)), json!([]));
    });
}
