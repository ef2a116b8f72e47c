//! How much is kept, which clients may read it, and how it comes over HTTP.

use apiserver::{Config, Identity};
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{Cluster, ended};
use crate::support;

#[tokio::test]
async fn what_is_kept_is_bounded_and_the_pods_that_ended_first_lose_theirs_first() {
    let config = Config {
        log_bytes: 10_000,
        ..Config::new(support::fixed_clock())
    };
    let cluster = Cluster::with(config).await;
    let line = "x".repeat(3000);
    let mut uids = Vec::new();
    for name in ["a", "b", "d"] {
        uids.push(cluster.create(name).await);
        cluster.print_as((name, uids.last().unwrap()), 0, &line);
    }
    for name in ["b", "a"] {
        cluster.status(name, "Succeeded", ended()).await;
    }
    let size = async |name: &str| cluster.pods.logs(name, &LogParams::default()).await.unwrap().len();
    cluster.print(&line);
    // b has ended first.
    assert_eq!(
        (size("a").await, size("b").await, size("d").await, size("p").await),
        (3001, 0, 3001, 3001)
    );
    cluster.print(&line);
    assert_eq!((size("a").await, size("d").await, size("p").await), (0, 3001, 6002));
    // Nothing is left that has ended: what grows is rotated.
    cluster.print(&line);
    assert_eq!((size("d").await, size("p").await), (3001, 0));
    assert!(cluster.logs.bytes() < 10_000);
    cluster.print("still there");
    assert_eq!(cluster.log(&LogParams::default()).await, "still there\n");
}

#[tokio::test]
async fn reading_a_log_takes_the_right_to_get_it() {
    let cluster = Cluster::with(Config {
        enforce_rbac: true,
        ..Config::new(support::fixed_clock())
    })
    .await;
    cluster.print("one");
    let jane: Api<Pod> = Api::default_namespaced(cluster.server.client_as(Identity::user("jane")));
    let error = jane.logs("p", &LogParams::default()).await.unwrap_err();
    let message = "pods \"p\" is forbidden: User \"jane\" cannot get resource \"pods/log\" in API group \"\" in the namespace \
                   \"default\"";
    assert!(error.to_string().contains(message), "{error}");
    let group = "rbac.authorization.k8s.io";
    for (path, object) in [
        (
            "roles",
            json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}]}),
        ),
        (
            "rolebindings",
            json!({
                "metadata": {"name": "r"}, "roleRef": {"apiGroup": group, "kind": "Role", "name": "r"},
                "subjects": [{"apiGroup": group, "kind": "User", "name": "jane"}],
            }),
        ),
    ] {
        let request = http::Request::post(format!("/apis/{group}/v1/namespaces/default/{path}"));
        let request = request.header("content-type", "application/json");
        let request = request.body(object.to_string().into()).unwrap();
        let response = cluster.server.handle(&Identity::admin(), request).await;
        assert_eq!(response.status(), 201);
    }
    assert_eq!(jane.logs("p", &LogParams::default()).await.unwrap(), "one\n");
}

#[tokio::test]
async fn lines_come_over_http_as_they_are_printed_and_a_client_that_leaves_is_forgotten() {
    let cluster = Cluster::new().await;
    cluster.print("one");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(cluster.server.clone().serve(listener, async {
        let _ = stopped.await;
    }));
    let mut config = kube::Config::new(format!("http://{address}").parse().unwrap());
    config.default_namespace = "default".to_owned();
    let pods: Api<Pod> = Api::default_namespaced(kube::Client::try_from(config).unwrap());
    let follow = LogParams {
        follow: true,
        ..LogParams::default()
    };
    let mut lines = pods.log_stream("p", &follow).await.unwrap().lines();
    for line in ["one", "two", "three"] {
        if line != "one" {
            cluster.print(line);
        }
        assert_eq!(lines.try_next().await.unwrap().unwrap(), line);
    }

    let mut plain = TcpStream::connect(address).await.unwrap();
    let request = "GET /api/v1/namespaces/default/pods/p/log?follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n";
    plain.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let size = plain.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..size]).to_lowercase();
    assert!(answer.contains("transfer-encoding: chunked"), "{answer}");
    assert_eq!(cluster.logs.followers(), 2);
    drop(plain);
    while cluster.logs.followers() > 1 {
        tokio::task::yield_now().await;
    }

    cluster.status("p", "Failed", ended()).await;
    assert_eq!(lines.try_next().await.unwrap(), None);
    let mut lines = pods.log_stream("p", &follow).await.unwrap().lines();
    assert_eq!(lines.try_next().await.unwrap().unwrap(), "one");
    drop(lines);
    stop.send(()).unwrap();
    serving.await.unwrap();
}
