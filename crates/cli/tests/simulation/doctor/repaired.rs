//! Troubles that an administrator repairs while the upgrade runs: after the documented remedy it continues, and succeeds.

use api::{Phase, UpgradePlan, annotations};
use checks::doctor::examine;
use cli::rehearsal::trouble::{Row, Shows};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    by_trouble::{LONG, until, with_trouble},
    named, play,
};
use crate::{run::in_paused_time, watched::Watched};

/// What an administrator does, by what doctor names: namespace and name of the object, and the plan.
enum Remedy {
    DeleteBudget,
    DeletePod,
    DeleteVolume,
    Resume,
    ForceSync,
    Halt,
    Retry,
    RestartManager,
    SwitchOn,
}

fn dynamic(client: &Client, group: &str, version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

async fn apply(remedy: &Remedy, client: Client, plan: &str, (namespace, name): (&str, &str)) {
    let merge = |patch: Value| Patch::Merge(patch);
    let (params, delete) = (PatchParams::default(), DeleteParams::default());
    match remedy {
        Remedy::DeleteBudget => {
            let budgets: Api<PodDisruptionBudget> = Api::namespaced(client, namespace);
            budgets.delete(name, &delete).await.unwrap();
        }
        Remedy::DeletePod => {
            let pods: Api<Pod> = Api::namespaced(client, namespace);
            pods.delete(name, &delete).await.unwrap();
        }
        Remedy::DeleteVolume => {
            let volumes = dynamic(&client, "longhorn.io", "v1beta2", "Volume", namespace);
            volumes.delete(name, &delete).await.unwrap();
        }
        Remedy::Resume => {
            let clusters = dynamic(&client, "cluster.x-k8s.io", "v1beta2", "Cluster", namespace);
            let patch = merge(json!({"spec": {"paused": false}}));
            clusters.patch(name, &params, &patch).await.unwrap();
        }
        Remedy::ForceSync => {
            let bundles = dynamic(&client, "fleet.cattle.io", "v1alpha1", "Bundle", "fleet-local");
            let patch = merge(json!({"spec": {"forceSyncGeneration": 7}}));
            bundles.patch("mcc-harvester", &params, &patch).await.unwrap();
        }
        Remedy::Halt => {
            let vms = dynamic(&client, "kubevirt.io", "v1", "VirtualMachine", namespace);
            let patch = merge(json!({"spec": {"runStrategy": "Halted"}}));
            vms.patch(name, &params, &patch).await.unwrap();
        }
        Remedy::Retry => {
            let plans: Api<UpgradePlan> = Api::all(client);
            let patch = merge(json!({"metadata": {"annotations": {annotations::RETRY: "again"}}}));
            plans.patch(plan, &params, &patch).await.unwrap();
        }
        Remedy::RestartManager => {
            let deployments: Api<Deployment> = Api::namespaced(client, "harvester-system");
            let at = json!({"kubectl.kubernetes.io/restartedAt": "2026-03-13T12:00:00Z"});
            let patch = merge(json!({"spec": {"template": {"metadata": {"annotations": at}}}}));
            let name = "harvester-upgrade-manager-controller-manager";
            deployments.patch(name, &params, &patch).await.unwrap();
        }
        Remedy::SwitchOn => {
            let nodes: Api<Node> = Api::all(client);
            let patch = merge(json!({"metadata": {"annotations": {"power": "on"}}}));
            nodes.patch(name, &params, &patch).await.unwrap();
        }
    }
}

#[rstest]
#[case("drain-blocked=node-2", Remedy::DeleteBudget)]
#[case("D20", Remedy::Resume)]
#[case("chart-stuck", Remedy::ForceSync)]
#[case("image-pull-fails", Remedy::DeletePod)]
#[case("migration-stuck=default/web-1", Remedy::Halt)]
#[case("migration-fails=default/web-1", Remedy::Halt)]
#[case("stale-attachment", Remedy::DeleteVolume)]
#[case("replica-without-place", Remedy::DeleteVolume)]
#[case("old-system=node-2", Remedy::Retry)]
#[case("iso-import-fails", Remedy::Retry)]
#[case("manager-down", Remedy::RestartManager)]
#[case("reboot-never-returns=node-3", Remedy::SwitchOn)]
fn after_the_remedy_of_a_trouble_the_upgrade_succeeds(#[case] text: &str, #[case] remedy: Remedy) {
    let row = Row::named(text.split('=').next().unwrap()).unwrap();
    let Shows::Doctor(ids, object) = row.shows else {
        panic!("{text}")
    };
    in_paused_time(with_trouble(Some(text), async |rehearsal: &Watched, plan: &str| {
        let snapshot = until(rehearsal, |snapshot| {
            named(&examine(snapshot), ids[0], object).is_some()
        })
        .await;
        let report = examine(&snapshot);
        let finding = named(&report, ids[0], object).unwrap_or_else(|| panic!("{text}: {report:#?}"));
        let about = &finding.objects[0];
        let key = (about.namespace.as_deref().unwrap_or_default(), about.name.as_str());
        assert_ne!(
            play::plan(&snapshot).and_then(UpgradePlan::phase),
            Some(Phase::Succeeded),
            "{text}"
        );
        apply(&remedy, rehearsal.server.client(), plan, key).await;
        let succeeded = |plan: &UpgradePlan| plan.phase() == Some(Phase::Succeeded);
        let ended = rehearsal.follow(plan, Some(LONG), succeeded).await;
        let last = rehearsal.read(plan).await.unwrap();
        rehearsal.take_violations();
        assert!(
            ended.is_some(),
            "{text}: {:#?}",
            last.status.map(|status| (status.current_phase, status.waiting_for))
        );
    }));
}
