//! What simulations rely on: faults, observers, history, delayed watches, determinism. All in paused time.

// Everything here is a test, also what is not marked as one.

use crate::support;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use apiserver::{ApiServer, ChangeKind, Config, Fault, FaultPlan, Identity, ReadFault, ResourceId, Verb};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams, WatchEvent,
        WatchParams,
    },
};
use serde_json::{Value, json};
use tokio::sync::Notify;

fn in_paused_time<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(test)
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn maps(client: kube::Client) -> Api<ConfigMap> {
    Api::namespaced(client, "default")
}

async fn create(api: &Api<ConfigMap>, name: &str) -> Result<ConfigMap, kube::Error> {
    api.create(&PostParams::default(), &map(name)).await
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("not an answer of the API: {other}"),
    }
}

#[test]
fn the_third_write_of_one_user_is_refused_and_no_other() {
    in_paused_time(async {
        let server = support::server();
        server.set_faults(FaultPlan::at_write_of("op", 3, Fault::Reject(503)));
        let op = maps(server.client_as(Identity::user("op")));
        let admin = maps(server.client());
        create(&op, "a").await.unwrap();
        create(&admin, "x").await.unwrap();
        create(&op, "b").await.unwrap();
        create(&admin, "z").await.unwrap();
        assert_eq!(code(&create(&op, "c").await.unwrap_err()), 503);
        assert!(server.store().get("", "configmaps", "default", "c").is_none());
        create(&op, "c").await.unwrap();
        assert_eq!(server.store().counters().writes_by_user["op"], 4);
    });
}

#[test]
fn a_conflict_before_and_a_lost_reply_look_as_they_do_in_life() {
    in_paused_time(async {
        let server = support::server();
        server.set_faults(FaultPlan::writes(|write| match (write.sequence, write.verb) {
            (1, _) => Fault::ConflictBefore,
            (2, Verb::Create) => Fault::LoseReply,
            _ => Fault::None,
        }));
        let api = maps(server.client());
        assert_eq!(code(&create(&api, "a").await.unwrap_err()), 409);
        assert!(api.get_opt("a").await.unwrap().is_none());
        let error = create(&api, "a").await.unwrap_err();
        assert!(matches!(error, kube::Error::Service(_)), "{error:?}");
        assert!(
            api.get_opt("a").await.unwrap().is_some(),
            "applied although the reply was lost"
        );
    });
}

#[test]
fn a_crash_after_a_write_notifies_and_never_answers() {
    in_paused_time(async {
        let server = support::server();
        let done = Arc::new(Notify::new());
        server.set_faults(FaultPlan::at_write_of("op", 1, Fault::CrashAfter(Arc::clone(&done))));
        let api = maps(server.client_as(Identity::user("op")));
        let client = tokio::spawn(async move { create(&api, "a").await });
        done.notified().await;
        assert!(server.store().get("", "configmaps", "default", "a").is_some());
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!client.is_finished(), "the reply never comes");
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
    });
}

#[test]
fn a_stale_list_shows_the_past_and_writes_still_conflict() {
    in_paused_time(async {
        let server = support::server();
        let api = maps(server.client());
        create(&api, "a").await.unwrap();
        create(&api, "b").await.unwrap();
        server.set_faults(FaultPlan::none().with_reads(|read| match read.verb {
            Verb::List => ReadFault::StaleList { older_by: 1 },
            _ => ReadFault::None,
        }));
        let names: Vec<String> = api
            .list(&ListParams::default())
            .await
            .unwrap()
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        assert_eq!(names, ["a"]);
        server.set_faults(FaultPlan::none().with_reads(|_| ReadFault::Reject(500)));
        assert_eq!(code(&api.list(&ListParams::default()).await.unwrap_err()), 500);
    });
}

#[test]
fn observers_see_every_commit_in_order_and_may_read_the_store() {
    in_paused_time(async {
        let server = support::server();
        let seen: Arc<Mutex<Vec<(ChangeKind, String, u64)>>> = Arc::default();
        let (log, store) = (Arc::clone(&seen), server.store().clone());
        server.store().observe(move |change| {
            let name = change.object["metadata"]["name"].as_str().unwrap();
            let stored = store.get("", "configmaps", "default", name);
            assert_eq!(stored.is_none(), change.kind == ChangeKind::Deleted);
            assert_eq!(change.previous.is_none(), change.kind == ChangeKind::Added);
            log.lock()
                .unwrap()
                .push((change.kind, change.user.clone(), change.resource_version));
        });
        let api = maps(server.client_as(Identity::user("op")));
        create(&api, "a").await.unwrap();
        let patch = Patch::Merge(json!({"data": {"k": "v"}}));
        api.patch("a", &PatchParams::default(), &patch).await.unwrap();
        api.patch("a", &PatchParams::default(), &patch).await.unwrap();
        api.delete("a", &Default::default()).await.unwrap();
        let seen = seen.lock().unwrap().clone();
        let kinds: Vec<ChangeKind> = seen.iter().map(|(kind, _, _)| *kind).collect();
        assert_eq!(
            kinds,
            [ChangeKind::Added, ChangeKind::Modified, ChangeKind::Deleted],
            "a no-op is no commit"
        );
        assert!(seen.iter().all(|(_, user, _)| user == "op"));
        assert!(seen.windows(2).all(|pair| pair[0].2 < pair[1].2));
        let codes: Vec<(Verb, u16, bool)> = server
            .store()
            .history()
            .iter()
            .map(|write| (write.verb, write.code, write.changed))
            .collect();
        assert_eq!(
            codes,
            [
                (Verb::Create, 201, true),
                (Verb::Patch, 200, true),
                (Verb::Patch, 200, false),
                (Verb::Delete, 200, true)
            ]
        );
    });
}

#[test]
fn history_keeps_refusals_and_can_be_limited() {
    in_paused_time(async {
        let server = support::server();
        let api = maps(server.client());
        create(&api, "a").await.unwrap();
        create(&api, "a").await.unwrap_err();
        let history = server.store().history();
        assert_eq!(
            (history[1].code, history[1].sequence, history[1].changed),
            (409, 2, false)
        );
        assert_eq!(history[0].object.as_ref().unwrap()["metadata"]["name"], "a");
        server.store().set_history_limit(1);
        create(&api, "b").await.unwrap();
        let history = server.store().history();
        assert_eq!((history.len(), history[0].sequence), (1, 3));
        assert_eq!(server.store().counters().writes_by_code, [(201, 2), (409, 1)].into());
    });
}

#[test]
fn a_live_watch_loses_nothing() {
    in_paused_time(async {
        let server = support::server();
        let api = maps(server.client());
        let watcher = api.clone();
        let watching = tokio::spawn(async move {
            let stream = watcher.watch(&WatchParams::default().timeout(100), "0").await.unwrap();
            stream
                .filter_map(|event| async {
                    match event.unwrap() {
                        WatchEvent::Added(map) => Some(map.name_any()),
                        _ => None,
                    }
                })
                .collect::<Vec<_>>()
                .await
        });
        for number in 0..200 {
            create(&api, &format!("m{number:03}")).await.unwrap();
            if number % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
        let names = watching.await.unwrap();
        let expected: Vec<String> = (0..200).map(|number| format!("m{number:03}")).collect();
        assert_eq!(names, expected);
    });
}

#[test]
fn a_watch_that_falls_behind_the_log_gets_an_error() {
    in_paused_time(async {
        let server = ApiServer::new(Config {
            watch_log: 2,
            ..Config::new(support::tokio_clock())
        });
        let api = maps(server.client());
        let version = server.store().resource_version().to_string();
        let mut stream = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
        create(&api, "a").await.unwrap();
        assert!(matches!(stream.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
        for name in ["b", "c", "d", "e"] {
            create(&api, name).await.unwrap();
        }
        let Some(WatchEvent::Error(status)) = stream.try_next().await.unwrap() else {
            panic!("no error event")
        };
        assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
        assert!(stream.try_next().await.unwrap().is_none(), "and then it ends");
    });
}

#[test]
fn a_delayed_watch_is_silent_until_resumed() {
    in_paused_time(async {
        let server = support::server();
        let resource = ResourceId::new("", "configmaps");
        let op = maps(server.client_as(Identity::user("op")));
        let version = server.store().resource_version().to_string();
        let mut stream = op
            .watch(&WatchParams::default().timeout(290), &version)
            .await
            .unwrap()
            .boxed();
        server.delay_watches("op", &resource, true);
        create(&maps(server.client()), "a").await.unwrap();
        let waited = tokio::time::timeout(Duration::from_secs(30), stream.try_next()).await;
        assert!(waited.is_err(), "nothing while delayed");
        server.delay_watches("op", &resource, false);
        assert!(matches!(stream.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    });
}

#[test]
fn the_same_seed_gives_the_same_names_and_uids() {
    let run = |seed: u64| {
        in_paused_time(async move {
            let server = ApiServer::new(Config {
                seed,
                ..Config::new(support::fixed_clock())
            });
            let api = maps(server.client());
            for _ in 0..50 {
                let object = serde_json::from_value(json!({"metadata": {"generateName": "x-"}})).unwrap();
                api.create(&PostParams::default(), &object).await.unwrap();
            }
            server
                .store()
                .list("", "configmaps", None)
                .iter()
                .map(|object| object.to_string())
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    assert_eq!(run(7).len(), 50, "no name twice");
    let suffix_is_kubernetes = |text: &String| {
        let object: Value = serde_json::from_str(text).unwrap();
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap()
            .strip_prefix("x-")
            .unwrap()
            .to_owned();
        name.len() == 5
            && name
                .chars()
                .all(|letter| "bcdfghjklmnpqrstvwxz2456789".contains(letter))
    };
    assert!(run(7).iter().all(suffix_is_kubernetes));
}

#[test]
fn the_node_proxy_answers_for_kubelets() {
    in_paused_time(async {
        let server = support::server();
        let client = server.client();
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
        nodes
            .create(
                &PostParams::default(),
                &serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap(),
            )
            .await
            .unwrap();
        server.set_node_proxy(Arc::new(|node, path| {
            (path == "stats/summary").then(|| {
                (
                    200,
                    "application/json".into(),
                    format!("{{\"node\":\"{node}\"}}").into(),
                )
            })
        }));
        let get = |path: &str| {
            http::Request::get(format!("/api/v1/nodes/n1/proxy/{path}"))
                .body(vec![])
                .unwrap()
        };
        let summary: Value = client.request(get("stats/summary")).await.unwrap();
        assert_eq!(summary, json!({"node": "n1"}));
        let error = client.request::<Value>(get("configz")).await.unwrap_err();
        assert_eq!(code(&error), 503);
    });
}

#[test]
fn a_watch_ends_with_its_kind_after_the_last_deletions() {
    in_paused_time(async {
        let server = support::server();
        let client = server.client();
        let definitions = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&definitions));
        let definition: DynamicObject = serde_json::from_value(support::widget_crd()).unwrap();
        definitions.create(&PostParams::default(), &definition).await.unwrap();
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.io", "v1", "Widget"));
        let widgets: Api<DynamicObject> = Api::namespaced_with(client, "default", &kind);
        let widget =
            json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 1}});
        widgets
            .create(&PostParams::default(), &serde_json::from_value(widget).unwrap())
            .await
            .unwrap();
        let stream = widgets
            .watch(&WatchParams::default().timeout(290), "0")
            .await
            .unwrap()
            .boxed();
        definitions
            .delete("widgets.example.io", &Default::default())
            .await
            .unwrap();
        definitions.create(&PostParams::default(), &definition).await.unwrap();
        let events: Vec<&str> = stream
            .map(|event| match event.unwrap() {
                WatchEvent::Added(_) => "added",
                WatchEvent::Deleted(_) => "deleted",
                _ => "other",
            })
            .collect()
            .await;
        assert_eq!(events, ["added", "deleted"]);
    });
}
