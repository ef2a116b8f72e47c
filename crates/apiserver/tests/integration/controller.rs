//! An unmodified kube `Controller`, with watches, finalizers and status patches, under paused time.

// Everything here is a test, also what is not marked as one.

use crate::support;
use std::{sync::Arc, time::Duration};

use apiserver::{ApiServer, Config};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    runtime::{
        Controller,
        controller::Action,
        finalizer::{Event, finalizer},
        watcher,
    },
};
use serde_json::json;

fn widgets() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("example.io", "v1", "Widget"))
}

async fn create_definition(client: &kube::Client) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
    ));
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let definition = serde_json::from_value(support::widget_crd()).unwrap();
    definitions.create(&PostParams::default(), &definition).await.unwrap();
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Failed(#[from] Box<dyn std::error::Error + Send + Sync>);

async fn reconcile(widget: Arc<DynamicObject>, client: Arc<kube::Client>) -> Result<Action, Failed> {
    let namespace = widget.namespace().unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with((*client).clone(), &namespace, &widgets());
    let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), &namespace);
    let work = |event: Event<DynamicObject>| async move {
        match event {
            Event::Apply(widget) => {
                let name = widget.name_any();
                let map = json!({
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": name, "ownerReferences": [{
                        "apiVersion": "example.io/v1", "kind": "Widget", "name": name, "uid": widget.uid().unwrap(), "controller": true,
                    }]},
                    "data": {"size": widget.data["spec"]["size"].to_string()},
                });
                maps.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(map))
                    .await?;
                let status = json!({"status": {"phase": "Done", "observed": widget.metadata.generation}});
                api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
                    .await?;
                Ok::<_, kube::Error>(Action::await_change())
            }
            Event::Cleanup(widget) => {
                maps.delete(&widget.name_any(), &Default::default()).await?;
                Ok(Action::await_change())
            }
        }
    };
    let api: Api<DynamicObject> = Api::namespaced_with((*client).clone(), &namespace, &widgets());
    finalizer(&api, "example.io/test", widget, work)
        .await
        .map_err(|error| Failed(Box::new(error)))
}

fn in_paused_time(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(test);
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never came true: {what}");
}

#[test]
fn a_controller_reconciles_creates_owned_objects_and_cleans_up() {
    in_paused_time(async {
        let server = ApiServer::new(Config::new(support::tokio_clock()));
        let client = server.client();
        create_definition(&client).await;
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &widgets());
        let controller = Controller::new_with(api, watcher::Config::default().streaming_lists(), widgets())
            .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
            .run(
                reconcile,
                |_, _, _| Action::requeue(Duration::from_secs(5)),
                Arc::new(client.clone()),
            )
            .for_each(|_| async {});
        let running = tokio::spawn(controller);
        let here: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &widgets());
        let widget = serde_json::from_value(json!({
            "apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "one"}, "spec": {"size": 3},
        }))
        .unwrap();
        here.create(&PostParams::default(), &widget).await.unwrap();
        let phase = || {
            server
                .store()
                .get("example.io", "widgets", "default", "one")
                .map(|w| w["status"]["observed"].clone())
        };
        until("the first status", || phase() == Some(json!(1))).await;
        let map = || server.store().get("", "configmaps", "default", "one");
        assert_eq!(map().unwrap()["data"]["size"], "3");

        // A foreign deletion of the owned object is repaired.
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        maps.delete("one", &Default::default()).await.unwrap();
        until("the map is back", || map().is_some()).await;

        here.patch(
            "one",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"size": 4}})),
        )
        .await
        .unwrap();
        until("the second status", || phase() == Some(json!(2))).await;
        until("the new size", || map().is_some_and(|map| map["data"]["size"] == "4")).await;

        // Long after, over many watch timeouts and bookmarks, nothing is written.
        let before = server.store().counters().commits;
        tokio::time::sleep(Duration::from_secs(4 * 3600)).await;
        assert_eq!(server.store().counters().commits, before);

        here.delete("one", &Default::default()).await.unwrap();
        until("it is gone", || phase().is_none()).await;
        assert!(map().is_none());
        running.abort();
    });
}
