//! Kinds of Cluster API are read by the version that is served, also when that changes on the way.

use std::sync::Arc;

use api::{foreign::capi::Machine, names};
use apiserver::{ApiServer, Config};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use manager::{client::for_product, field_validation::Mode};
use serde_json::{Value, json};

/// The definition of machines, with these versions served.
fn machines(versions: &[&str]) -> Value {
    let mut definitions = api::crd::foreign().into_iter();
    let mut definition = definitions
        .find(|definition| definition["metadata"]["name"] == "machines.cluster.x-k8s.io")
        .unwrap();
    let entry = definition["spec"]["versions"][0].clone();
    let entries = versions.iter().enumerate().map(|(index, version)| {
        let mut entry = entry.clone();
        entry["name"] = json!(version);
        entry["storage"] = json!(index == 0);
        entry
    });
    definition["spec"]["versions"] = entries.collect();
    definition
}

async fn served(versions: &[&str]) -> (ApiServer, Client) {
    let server = ApiServer::new(Config::new(Arc::new(|| "2026-03-13T03:57:09Z".parse().unwrap())));
    let client = server.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = serde_json::from_value(machines(versions)).unwrap();
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let namespace = json!({"metadata": {"name": names::FLEET_NAMESPACE}});
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(namespace).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", versions[0], "Machine"));
    let api: Api<DynamicObject> = Api::namespaced_with(client, names::FLEET_NAMESPACE, &resource);
    let machine = json!({
        "apiVersion": format!("cluster.x-k8s.io/{}", versions[0]), "kind": "Machine",
        "metadata": {"name": "custom-1"}, "spec": {},
    });
    let machine = serde_json::from_value(machine).unwrap();
    api.create(&PostParams::default(), &machine).await.unwrap();
    let (client, _) = for_product(server.client(), Mode::Warn);
    (server, client)
}

async fn names_of(client: &Client) -> Vec<String> {
    let api: Api<Machine> = Api::namespaced(client.clone(), names::FLEET_NAMESPACE);
    let found = api.list(&ListParams::default()).await.unwrap();
    found.items.iter().map(ResourceExt::name_any).collect()
}

/// The version that the machine says it is of when the product reads it.
async fn version(client: &Client) -> String {
    let api: Api<Machine> = Api::namespaced(client.clone(), names::FLEET_NAMESPACE);
    api.get("custom-1").await.unwrap().api_version
}

#[tokio::test]
async fn r36_machines_are_read_by_whichever_version_is_served() {
    let (_server, older) = served(&["v1beta1"]).await;
    assert_eq!(names_of(&older).await, ["custom-1"]);
    assert_eq!(version(&older).await, "cluster.x-k8s.io/v1beta1");
    let (_server, both) = served(&["v1beta2", "v1beta1"]).await;
    assert_eq!(version(&both).await, "cluster.x-k8s.io/v1beta2");
    let (_server, newer) = served(&["v1beta2"]).await;
    assert_eq!(names_of(&newer).await, ["custom-1"]);
}

#[tokio::test]
async fn r36_a_rancher_that_is_upgraded_on_the_way_is_followed() {
    let (server, client) = served(&["v1beta1"]).await;
    assert_eq!(version(&client).await, "cluster.x-k8s.io/v1beta1");
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    let newer = json!({"spec": {"versions": machines(&["v1beta2", "v1beta1"])["spec"]["versions"]}});
    definitions
        .patch(
            "machines.cluster.x-k8s.io",
            &PatchParams::default(),
            &Patch::Merge(newer),
        )
        .await
        .unwrap();
    assert_eq!(version(&client).await, "cluster.x-k8s.io/v1beta2");
    // A patch addresses the same version as a read.
    let api: Api<Machine> = Api::namespaced(client, names::FLEET_NAMESPACE);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let patched = api.patch("custom-1", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.labels()["a"], "b");
}
