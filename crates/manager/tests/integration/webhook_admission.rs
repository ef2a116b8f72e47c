//! Plans created, changed and deleted through the API of a cluster whose webhook configurations are the shipped ones.

use crate::support;
use api::UpgradePlan;
use apiserver::ApiServer;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::Status,
};
use manager::webhook::configurations::{MUTATING_PATH, VALIDATING_PATH};
use serde_json::{Value, json};

/// A cluster that asks both webhooks, in this process.
async fn cluster() -> (ApiServer, Api<UpgradePlan>) {
    let cluster = support::asking_cluster().await;
    let plans = Api::all(cluster.client());
    (cluster, plans)
}

fn plan(spec: &Value) -> UpgradePlan {
    serde_json::from_value(json!({"metadata": {"name": "up"}, "spec": spec})).unwrap()
}

fn refusal<T>(result: kube::Result<T>) -> Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("was not refused"),
    }
}

#[tokio::test]
async fn a_plan_for_a_cluster_at_rest_is_created() {
    let (_, plans) = cluster().await;
    let created = plans
        .create(&PostParams::default(), &plan(&json!({"version": "v1.8.0"})))
        .await
        .unwrap();
    assert_eq!(created.spec.version.as_deref(), Some("v1.8.0"));
}

#[tokio::test]
async fn a_denied_plan_names_the_webhook_and_all_causes() {
    let (server, plans) = cluster().await;
    let backup = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
        "metadata": {"name": "nightly", "namespace": "default"},
        "spec": {"source": {"kind": "VirtualMachine", "name": "web"}}});
    support::create(&server.client(), backup).await;
    let status = refusal(
        plans
            .create(&PostParams::default(), &plan(&json!({"version": "v9"})))
            .await,
    );
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    assert_eq!(
        status.message,
        "admission webhook \"vupgradeplan-v1beta1.kb.io\" denied the request: \
         UpgradePlan.management.harvesterhci.io \"up\" is invalid: [spec.version: Not found: \"v9\", \
         spec: Forbidden: please wait until all vmbackups are stopped, for example default/nightly is under processing]"
    );
    let causes = status.details.unwrap().causes;
    let causes: Vec<(&str, &str)> = causes
        .iter()
        .map(|one| (one.reason.as_str(), one.field.as_str()))
        .collect();
    assert_eq!(
        causes,
        [("FieldValueNotFound", "spec.version"), ("FieldValueForbidden", "spec")]
    );
    assert!(plans.get_opt("up").await.unwrap().is_none());
}

#[tokio::test]
async fn a_plan_that_skips_the_webhook_is_created_on_a_cluster_that_is_not_at_rest() {
    let (_, plans) = cluster().await;
    let mut plan = plan(&json!({"version": "v9"}));
    let skip = (api::annotations::SKIP_WEBHOOK.to_owned(), "true".to_owned());
    plan.metadata.annotations = Some([skip].into());
    plans.create(&PostParams::default(), &plan).await.unwrap();
}

#[tokio::test]
async fn a_progressing_plan_is_deleted_only_with_the_annotation_and_never_while_nodes_are_upgraded() {
    let (server, plans) = cluster().await;
    let params = PatchParams::default();
    plans
        .create(&PostParams::default(), &plan(&json!({"version": "v1.8.0"})))
        .await
        .unwrap();
    let in_phase = |phase: &str| {
        json!({"status": {"currentPhase": phase, "conditions": [{"type": "Progressing", "status": "True",
            "reason": phase, "message": "", "lastTransitionTime": "2026-03-13T03:57:09Z"}]}})
    };
    // What the manager reports passes no webhook, and so can always be written.
    let report = async |phase: &str| {
        let manager: Api<UpgradePlan> = Api::all(support::manager_client(&server));
        let mut known = plans.get("up").await.unwrap();
        known.status = serde_json::from_value(in_phase(phase)["status"].clone()).unwrap();
        manager
            .replace_status("up", &PostParams::default(), &known)
            .await
            .unwrap();
    };
    report("NodeUpgrading").await;
    let allow = json!({"metadata": {"annotations": {api::annotations::ALLOW_DELETION: "true"}}});
    plans.patch("up", &params, &Patch::Merge(allow)).await.unwrap();
    let status = refusal(plans.delete("up", &DeleteParams::default()).await);
    let why = "metadata.name: Forbidden: cannot delete UpgradePlan while nodes are being upgraded";
    assert!(status.message.ends_with(why), "{}", status.message);
    report("NodeUpgraded").await;
    plans.delete("up", &DeleteParams::default()).await.unwrap();
    assert!(plans.get_opt("up").await.unwrap().is_none());
}

#[tokio::test]
async fn a_finalizer_goes_although_a_paused_node_is_gone() {
    let (server, plans) = cluster().await;
    let spec = json!({"version": "v1.8.0", "nodeUpgradeOption": {"pauseNodes": ["node-2"]}});
    let mut plan = plan(&spec);
    plan.metadata.finalizers = Some(vec![api::annotations::FINALIZER.to_owned()]);
    plans.create(&PostParams::default(), &plan).await.unwrap();
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(server.client());
    nodes.delete("node-2", &DeleteParams::default()).await.unwrap();
    let params = PatchParams::default();
    let stale = json!({"spec": {"nodeUpgradeOption": {"pauseNodes": ["node-2", "node-9"]}}});
    let status = refusal(plans.patch("up", &params, &Patch::Merge(stale)).await);
    let why = "spec.nodeUpgradeOption.pauseNodes[1]: Not found: \"node-9\"";
    assert!(status.message.ends_with(why), "{}", status.message);
    plans.delete("up", &DeleteParams::default()).await.unwrap();
    let released = json!({"metadata": {"finalizers": null}});
    plans.patch("up", &params, &Patch::Merge(released)).await.unwrap();
    assert!(plans.get_opt("up").await.unwrap().is_none());
}

#[tokio::test]
async fn a_webhook_that_is_down_lets_no_plan_through() {
    let (server, plans) = cluster().await;
    server.remove_webhook_handler(&format!("harvester-system/t-webhook-service{VALIDATING_PATH}"));
    let status = refusal(
        plans
            .create(&PostParams::default(), &plan(&json!({"version": "v1.8.0"})))
            .await,
    );
    assert_eq!(status.code, 500);
    assert!(
        status.message.contains("vupgradeplan-v1beta1.kb.io"),
        "{}",
        status.message
    );
}

#[tokio::test]
async fn s05_while_the_webhook_is_down_only_the_manager_changes_plans() {
    let (server, plans) = cluster().await;
    let create = PostParams::default();
    plans
        .create(&create, &plan(&json!({"version": "v1.8.0"})))
        .await
        .unwrap();
    for path in [MUTATING_PATH, VALIDATING_PATH] {
        server.remove_webhook_handler(&format!("harvester-system/t-webhook-service{path}"));
    }
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
    let params = PatchParams::default();
    let refused = refusal(plans.patch("up", &params, &patch).await);
    assert!(refused.message.contains("failed calling webhook"), "{refused:?}");
    let own: Api<UpgradePlan> = Api::all(support::manager_client(&server));
    own.patch("up", &params, &patch).await.unwrap();
}
