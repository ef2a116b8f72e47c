//! Fields that the API server does not know, as reported to their writer.

use std::sync::Arc;

use api::UpgradePlan;
use apiserver::{ApiServer, Config};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use manager::{client::for_product, field_validation::Mode};
use serde_json::{Value, json};

async fn cluster() -> ApiServer {
    let server = ApiServer::new(Config::new(Arc::new(|| "2026-03-13T03:57:09Z".parse().unwrap())));
    world::install(&server.client(), &[]).await.unwrap();
    server
}

fn plans(client: kube::Client) -> Api<DynamicObject> {
    Api::all_with(client, &ApiResource::erase::<UpgradePlan>(&()))
}

fn plan(name: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
        "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

#[tokio::test]
async fn a_field_that_was_dropped_is_reported_once_with_its_object() {
    let server = cluster().await;
    let (client, warnings) = for_product(server.client(), Mode::Warn);
    let api = plans(client);
    for name in ["one", "two"] {
        let made = api
            .create(
                &PostParams::default(),
                &plan(name, &json!({"version": "v1.8.0", "colour": "red"})),
            )
            .await
            .unwrap();
        assert_eq!(made.data["spec"], json!({"version": "v1.8.0"}));
    }
    let patch = Patch::Merge(json!({"spec": {"restoreVM": true, "sound": "loud"}}));
    api.patch("one", &PatchParams::default(), &patch).await.unwrap();
    // A patch that is as it should be warns of nothing.
    let patch = Patch::Merge(json!({"spec": {"restoreVM": false}}));
    api.patch("one", &PatchParams::default(), &patch).await.unwrap();
    let recorded = warnings.recorded();
    let expected = [
        (
            "upgradeplans.management.harvesterhci.io one",
            "unknown field \"spec.colour\"",
        ),
        (
            "upgradeplans.management.harvesterhci.io one",
            "unknown field \"spec.sound\"",
        ),
    ];
    let expected: Vec<_> = expected
        .map(|(object, text)| (object.to_owned(), text.to_owned()))
        .into();
    assert_eq!(recorded, expected);
}

#[tokio::test]
async fn a_strict_client_is_refused_what_would_be_dropped() {
    let server = cluster().await;
    let (client, _) = for_product(server.client(), Mode::Strict);
    let api = plans(client);
    let refused = api
        .create(&PostParams::default(), &plan("one", &json!({"colour": "red"})))
        .await
        .unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused}")
    };
    assert_eq!((status.code, status.reason.as_str()), (400, "BadRequest"));
    assert!(
        status
            .message
            .contains("strict decoding error: unknown field \"spec.colour\""),
        "{}",
        status.message
    );
    api.create(&PostParams::default(), &plan("one", &json!({"version": "v1.8.0"})))
        .await
        .unwrap();
    let patch = Patch::Merge(json!({"spec": {"sound": "loud"}}));
    let refused = api.patch("one", &PatchParams::default(), &patch).await.unwrap_err();
    assert!(
        refused.to_string().contains("unknown field \"spec.sound\""),
        "{refused}"
    );
}
