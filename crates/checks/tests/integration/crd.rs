//! What the definition of UpgradePlan itself admits, on the embedded API.

use std::sync::Arc;

use apiserver::{ApiServer, Config};
use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use rstest::rstest;
use serde_json::{Value, json};

fn plans(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(api::GROUP, "v1beta1", "UpgradePlan");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// The API of a cluster that knows our kind.
async fn client() -> Client {
    let now: jiff::Timestamp = "2026-03-13T03:57:09Z".parse().unwrap();
    let client = ApiServer::new(Config::new(Arc::new(move || now))).client();
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let definition = serde_json::from_value(api::crd::upgrade_plan()).unwrap();
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    client
}

/// Creates a plan of a specification; the message when it is refused.
async fn create(client: &Client, spec: Value) -> Result<DynamicObject, String> {
    let plan = json!({"apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
        "metadata": {"name": "up"}, "spec": spec});
    let plan = serde_json::from_value(plan).unwrap();
    let created = plans(client).create(&PostParams::default(), &plan).await;
    created.map_err(|error| error.to_string())
}

/// Replaces the specification of the plan; the message when it is refused.
async fn update(client: &Client, spec: Value) -> Result<DynamicObject, String> {
    let mut plan = plans(client).get("up").await.unwrap();
    plan.data["spec"] = spec;
    let updated = plans(client).replace("up", &PostParams::default(), &plan).await;
    updated.map_err(|error| error.to_string())
}

#[rstest]
#[tokio::test]
async fn crd_version_image_and_upgrade_cannot_be_changed_added_or_dropped(
    #[values("version", "image", "upgrade")] field: &str,
) {
    let immutable = format!("spec.{field} is immutable after creation");
    // Another field keeps the plan valid when the one in question is dropped.
    let base = if field == "version" { "image" } else { "version" };
    let with = json!({base: "b", field: "a"});
    let without = json!({base: "b"});
    let changed = json!({base: "b", field: "other"});

    let cluster = client().await;
    create(&cluster, with.clone()).await.unwrap();
    for spec in [&changed, &without] {
        let refused = update(&cluster, spec.clone()).await.unwrap_err();
        assert!(refused.contains(&immutable), "{refused}");
    }
    update(&cluster, with.clone()).await.expect("the same value again");

    let cluster = client().await;
    create(&cluster, without).await.unwrap();
    let refused = update(&cluster, with).await.unwrap_err();
    assert!(refused.contains(&immutable), "{refused}");
}

#[tokio::test]
async fn crd_neither_version_nor_image_is_rejected_with_the_message_of_the_fourth_rule() {
    let refused = create(&client().await, json!({"force": true})).await.unwrap_err();
    assert!(
        refused.contains("at least one of spec.version or spec.image must be set"),
        "{refused}"
    );
}

#[tokio::test]
async fn crd_an_empty_version_is_rejected_by_its_length_and_an_empty_image_is_accepted() {
    let refused = create(&client().await, json!({"version": ""})).await.unwrap_err();
    assert!(refused.contains("spec.version"), "{refused}");
    assert!(refused.contains("at least 1 chars long"), "{refused}");
    create(&client().await, json!({"image": ""})).await.unwrap();
}

#[tokio::test]
async fn crd_force_restore_concurrency_and_pause_nodes_stay_editable() {
    let cluster = client().await;
    create(&cluster, json!({"version": "v"})).await.unwrap();
    for spec in [
        json!({"version": "v", "force": true, "restoreVM": true}),
        json!({"version": "v", "force": false, "imagePreloadOption": {"concurrency": -1}}),
        json!({"version": "v", "imagePreloadOption": {"concurrency": 0}}),
        json!({"version": "v", "imagePreloadOption": {"concurrency": 2}, "nodeUpgradeOption": {"pauseNodes": ["a", "b"]}}),
        json!({"version": "v", "nodeUpgradeOption": {"pauseNodes": ["b"]}}),
        json!({"version": "v", "nodeUpgradeOption": {}}),
        json!({"version": "v", "onMigrationFailure": "Retry"}),
        json!({"version": "v", "onMigrationFailure": "Stop"}),
    ] {
        let updated = update(&cluster, spec.clone()).await.unwrap();
        assert_eq!(updated.data["spec"], spec);
    }
}

#[tokio::test]
async fn crd_a_policy_for_failed_migrations_that_does_not_exist_is_rejected() {
    for value in ["stop", "", "Ignore"] {
        let refused = create(&client().await, json!({"version": "v", "onMigrationFailure": value}))
            .await
            .unwrap_err();
        assert!(refused.contains("spec.onMigrationFailure"), "{refused}");
    }
}

#[tokio::test]
async fn crd_a_duplicate_or_empty_name_in_pause_nodes_is_rejected() {
    for names in [json!(["a", "a"]), json!([""])] {
        let spec = json!({"version": "v", "nodeUpgradeOption": {"pauseNodes": names}});
        let refused = create(&client().await, spec).await.unwrap_err();
        assert!(refused.contains("spec.nodeUpgradeOption.pauseNodes["), "{refused}");
    }
}

#[tokio::test]
async fn crd_status_is_ignored_on_the_main_resource_and_spec_on_the_status() {
    let cluster = client().await;
    create(&cluster, json!({"version": "v"})).await.unwrap();
    let both = json!({"spec": {"version": "v", "force": true}, "status": {"currentPhase": "Succeeded"}});
    let params = PatchParams::default();
    let main = plans(&cluster)
        .patch("up", &params, &Patch::Merge(&both))
        .await
        .unwrap();
    assert_eq!(main.data["spec"]["force"], true);
    assert_eq!(main.data.get("status"), None);
    let both = json!({"spec": {"version": "v", "force": false}, "status": {"currentPhase": "Initializing"}});
    let status = plans(&cluster)
        .patch_status("up", &params, &Patch::Merge(&both))
        .await
        .unwrap();
    assert_eq!(status.data["spec"]["force"], true);
    assert_eq!(status.data["status"]["currentPhase"], "Initializing");
}

#[tokio::test]
async fn crd_short_names_and_columns_resolve() {
    let cluster = client().await;
    create(&cluster, json!({"version": "v1.8.0"})).await.unwrap();
    let status = json!({"status": {"currentPhase": "Initializing", "conditions": [
        {"type": "Progressing", "status": "True", "reason": "Initializing", "message": "",
         "lastTransitionTime": "2026-03-13T03:57:09Z"}]}});
    let params = PatchParams::default();
    plans(&cluster)
        .patch_status("up", &params, &Patch::Merge(&status))
        .await
        .unwrap();

    let get = |path: &str, accept: &str| {
        let request = http::Request::get(path).header("Accept", accept);
        let request = request.body(Vec::new()).unwrap();
        let client = cluster.clone();
        async move { client.request::<Value>(request).await.unwrap() }
    };
    let resources = get("/apis/management.harvesterhci.io/v1beta1", "application/json").await;
    let mut resources = resources["resources"].as_array().unwrap().iter();
    let ours = resources.find(|resource| resource["name"] == "upgradeplans").unwrap();
    assert_eq!(ours["shortNames"], json!(["up", "ups"]));
    assert_eq!(ours["namespaced"], false);

    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = get("/apis/management.harvesterhci.io/v1beta1/upgradeplans", table).await;
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let columns: Vec<&str> = columns.filter_map(|column| column["name"].as_str()).collect();
    assert_eq!(
        columns[1..],
        ["VERSION", "CURRENTPHASE", "AVAILABLE", "PROGRESSING", "DEGRADED", "AGE"]
    );
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..3], [json!("up"), json!("v1.8.0"), json!("Initializing")]);
    assert_eq!(cells[4], "True");
}
