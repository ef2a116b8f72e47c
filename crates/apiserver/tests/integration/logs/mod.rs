//! `pods/log`: what a kubelet has written is read as from a real one, in process and over HTTP.

// Everything here is a test, also what is not marked as one.
mod served;

use std::time::Duration;

use crate::support;
use apiserver::{ApiServer, Config, ContainerInstance, Identity, Logs};
use futures::AsyncReadExt;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, LogParams, Patch, PatchParams, PostParams},
};
use rstest::rstest;
use serde_json::{Value, json};

/// A server with the pod `p` of one container `c` that runs on `n1`, and what a kubelet there does.
struct Cluster {
    server: ApiServer,
    pods: Api<Pod>,
    nodes: Api<Node>,
    logs: Logs,
    uid: String,
}

fn running() -> Value {
    json!({"state": {"running": {"startedAt": "2026-11-15T12:00:00Z"}}})
}

fn ended() -> Value {
    json!({"state": {"terminated": {"exitCode": 1, "reason": "Error"}}})
}

impl Cluster {
    async fn new() -> Self {
        Self::with(Config::new(support::tokio_clock())).await
    }

    async fn with(config: Config) -> Self {
        let server = ApiServer::new(config);
        let client = server.client();
        let mut cluster = Self {
            pods: Api::default_namespaced(client.clone()),
            nodes: Api::all(client),
            logs: server.logs(),
            uid: String::new(),
            server,
        };
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.1.2.3"}],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        let node = serde_json::from_value(node).unwrap();
        cluster.nodes.create(&PostParams::default(), &node).await.unwrap();
        cluster.uid = cluster.create("p").await;
        cluster
    }

    /// Creates a pod that runs; returns its uid.
    async fn create(&self, name: &str) -> String {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        let pod = self.pods.create(&PostParams::default(), &pod).await.unwrap();
        self.status(name, "Running", running()).await;
        pod.metadata.uid.unwrap()
    }

    async fn status(&self, pod: &str, phase: &str, mut container: Value) {
        container["name"] = json!("c");
        let patch = json!({"status": {"phase": phase, "containerStatuses": [container]}});
        let patched = self
            .pods
            .patch_status(pod, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched.unwrap();
    }

    async fn ready(&self, status: &str) {
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        let patched = self
            .nodes
            .patch_status("n1", &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched.unwrap();
    }

    fn print_as(&self, (pod, uid): (&str, &str), restart: u32, text: &str) {
        let of = ContainerInstance {
            namespace: "default",
            pod,
            uid,
            container: "c",
            restart,
        };
        self.logs.append(&of, (support::tokio_clock())(), text);
    }

    fn print(&self, text: &str) {
        self.print_as(("p", &self.uid), 0, text);
    }

    async fn log(&self, parameters: &LogParams) -> String {
        self.pods.logs("p", parameters).await.unwrap()
    }

    /// What a client that follows reads until the end.
    async fn follow(&self, parameters: &LogParams) -> impl Future<Output = String> + use<> {
        let parameters = LogParams {
            follow: true,
            ..parameters.clone()
        };
        let mut stream = self.pods.log_stream("p", &parameters).await.unwrap();
        async move {
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            text
        }
    }

    async fn refusal(&self, query: &str) -> (u16, String) {
        let request = http::Request::get(format!("/api/v1/namespaces/default/pods/p/log{query}"));
        let request = request.body(Vec::new().into()).unwrap();
        let response = self.server.handle(&Identity::admin(), request).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        (status, body["message"].as_str().unwrap().to_owned())
    }
}

#[rstest]
#[case::scheduled(
    "Pending",
    None,
    "",
    "container \"c\" in pod \"p\" is waiting to start: ContainerCreating"
)]
#[case::pulling("Pending", Some(json!({"state": {"waiting": {"reason": "ErrImagePull"}}})), "", "container \"c\" in pod \"p\" is waiting to start: image can't be pulled")]
#[case::backing_off("Pending", Some(json!({"state": {"waiting": {"reason": "ImagePullBackOff"}}})), "", "container \"c\" in pod \"p\" is waiting to start: trying and failing to pull image")]
#[case::configuring("Pending", Some(json!({"state": {"waiting": {"reason": "CreateContainerConfigError"}}})), "", "container \"c\" in pod \"p\" is waiting to start: CreateContainerConfigError")]
#[case::first(
    "Running",
    Some(running()),
    "?previous=true",
    "previous terminated container \"c\" in pod \"p\" not found"
)]
#[case::ended(
    "Failed",
    Some(ended()),
    "?previous=true",
    "previous terminated container \"c\" in pod \"p\" not found"
)]
#[tokio::test]
async fn a_container_without_a_log_is_refused_in_the_words_of_a_kubelet(
    #[case] phase: &str,
    #[case] container: Option<Value>,
    #[case] query: &str,
    #[case] message: &str,
) {
    let cluster = Cluster::new().await;
    match container {
        Some(container) => {
            let cleared = json!({"state": null, "lastState": null});
            cluster.status("p", phase, cleared).await;
            cluster.status("p", phase, container).await;
        }
        None => {
            let patch = json!({"status": {"phase": phase, "containerStatuses": null}});
            let patch = Patch::Merge(&patch);
            cluster
                .pods
                .patch_status("p", &PatchParams::default(), &patch)
                .await
                .unwrap();
        }
    }
    assert_eq!(cluster.refusal(query).await, (400, message.to_owned()));
}

#[tokio::test]
async fn a_node_that_is_down_cannot_be_asked_for_logs() {
    let cluster = Cluster::new().await;
    cluster.print("one");
    cluster.ready("Unknown").await;
    let (code, message) = cluster.refusal("?tailLines=5&follow=true").await;
    assert_eq!(code, 500);
    assert_eq!(
        message,
        "Get \"https://10.1.2.3:10250/containerLogs/default/p/c?follow=true&tailLines=5\": dial tcp 10.1.2.3:10250: \
         connect: no route to host"
    );
    // A kubelet that reports that the node is not ready answers.
    cluster.ready("False").await;
    assert_eq!(cluster.log(&LogParams::default()).await, "one\n");
}

#[tokio::test(start_paused = true)]
async fn a_log_is_read_by_lines_times_and_sizes() {
    let cluster = Cluster::new().await;
    let start = (support::tokio_clock())();
    let at = |milliseconds| start + Duration::from_millis(milliseconds);
    let of = ContainerInstance {
        namespace: "default",
        pod: "p",
        uid: &cluster.uid,
        container: "c",
        restart: 0,
    };
    cluster.logs.append(&of, at(0), "zero");
    cluster.logs.append(&of, at(1400), "one\n");
    cluster.logs.append(&of, at(2000), "two\nthree");
    tokio::time::advance(Duration::from_secs(3)).await;
    let default = LogParams::default;
    assert_eq!(cluster.log(&default()).await, "zero\none\ntwo\nthree\n");
    let tail = LogParams {
        tail_lines: Some(2),
        timestamps: true,
        ..default()
    };
    assert_eq!(
        cluster.log(&tail).await,
        "2026-11-15T12:00:02.000000000Z two\n2026-11-15T12:00:02.000000000Z three\n"
    );
    let seconds = LogParams {
        since_seconds: Some(1),
        ..default()
    };
    assert_eq!(cluster.log(&seconds).await, "two\nthree\n");
    // The API server hands times to kubelets in whole seconds: more comes than was wanted, never less.
    let path = "/api/v1/namespaces/default/pods/p/log?sinceTime=2026-11-15T12:00:01.9Z&limitBytes=5";
    let request = http::Request::get(path).body(Vec::new().into()).unwrap();
    let response = cluster.server.handle(&Identity::admin(), request).await;
    assert_eq!(response.headers()["content-type"], "text/plain");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "one\nt");
}

#[tokio::test(start_paused = true)]
async fn who_follows_reads_to_the_end_of_the_container_in_no_time() {
    let cluster = Cluster::new().await;
    cluster.print("one");
    cluster.print("two");
    let tail = LogParams {
        tail_lines: Some(1),
        ..LogParams::default()
    };
    let all = tokio::spawn(cluster.follow(&LogParams::default()).await);
    let last = tokio::spawn(cluster.follow(&tail).await);
    let limited = LogParams {
        limit_bytes: Some(6),
        ..LogParams::default()
    };
    assert_eq!(cluster.follow(&limited).await.await, "one\ntw");
    for hour in 0..3 {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        cluster.print(&format!("hour {hour}"));
    }
    assert_eq!(cluster.logs.followers(), 2);
    cluster.status("p", "Failed", ended()).await;
    assert_eq!(all.await.unwrap(), "one\ntwo\nhour 0\nhour 1\nhour 2\n");
    assert_eq!(last.await.unwrap(), "two\nhour 0\nhour 1\nhour 2\n");
    assert_eq!(cluster.logs.followers(), 0);
    // It can still be read, and followed at once to its end.
    assert!(cluster.follow(&LogParams::default()).await.await.ends_with("hour 2\n"));
    assert!(cluster.log(&LogParams::default()).await.ends_with("hour 2\n"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_takes_its_log_along_and_another_of_its_name_has_its_own() {
    let cluster = Cluster::new().await;
    cluster.print("one");
    let follower = tokio::spawn(cluster.follow(&LogParams::default()).await);
    let now = DeleteParams::default().grace_period(0);
    cluster.pods.delete("p", &now).await.unwrap();
    assert_eq!(follower.await.unwrap(), "one\n");
    assert_eq!(cluster.logs.bytes(), 0);
    // What its program says afterwards is lost.
    cluster.print("late");
    assert_eq!(cluster.logs.bytes(), 0);
    cluster.create("p").await;
    assert_eq!(cluster.log(&LogParams::default()).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_down_cuts_off_who_follows_and_the_container_that_ran_is_the_previous_one() {
    let cluster = Cluster::new().await;
    cluster.print("before");
    let follower = tokio::spawn(cluster.follow(&LogParams::default()).await);
    cluster.ready("Unknown").await;
    assert_eq!(follower.await.unwrap(), "before\n");
    cluster.ready("True").await;
    let again = json!({
        "restartCount": 1, "lastState": {"terminated": {"exitCode": 255, "reason": "Unknown"}},
        "state": {"running": {"startedAt": "2026-11-15T12:10:00Z"}},
    });
    cluster.status("p", "Running", again.clone()).await;
    cluster.print_as(("p", &cluster.uid), 1, "after");
    let previous = LogParams {
        previous: true,
        ..LogParams::default()
    };
    assert_eq!(cluster.log(&LogParams::default()).await, "after\n");
    assert_eq!(cluster.log(&previous).await, "before\n");
    // Only one instance is kept.
    let mut third = again;
    third["restartCount"] = json!(2);
    cluster.status("p", "Running", third).await;
    assert_eq!(cluster.log(&previous).await, "after\n");
    assert_eq!(cluster.log(&LogParams::default()).await, "");
    // Between two instances the last one is shown.
    let waits = json!({
        "restartCount": 2, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    });
    cluster.print_as(("p", &cluster.uid), 2, "third");
    let follower = tokio::spawn(cluster.follow(&LogParams::default()).await);
    cluster.status("p", "Running", waits).await;
    assert_eq!(follower.await.unwrap(), "third\n");
    assert_eq!(cluster.log(&LogParams::default()).await, "third\n");
    assert_eq!(cluster.log(&previous).await, "third\n");
}
