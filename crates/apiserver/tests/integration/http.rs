//! The HTTP door: limits, tokens, shutdown, over real sockets on loopback.

// Everything here is a test, also what is not marked as one.

use crate::support;
use apiserver::{ApiServer, BODY_LIMIT, Config, Identity};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};

struct Running {
    base: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

async fn start(server: &ApiServer) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.clone().serve(listener, async { stopped.await.unwrap_or(()) }));
    Running { base, stop, task }
}

async fn send(
    running: &Running,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: Vec<u8>,
) -> http::Response<hyper::body::Incoming> {
    let mut request = http::Request::builder()
        .method(method)
        .uri(format!("{}{path}", running.base));
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    client
        .request(
            request
                .header("content-type", "application/json")
                .body(Full::from(body))
                .unwrap(),
        )
        .await
        .unwrap()
}

async fn read(response: http::Response<hyper::body::Incoming>) -> (u16, Value) {
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_nothing_changes() {
    let server = support::server();
    let running = start(&server).await;
    let version = server.store().resource_version();
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "x".repeat(BODY_LIMIT)}});
    let (status, answer) = read(
        send(
            &running,
            "POST",
            "/api/v1/namespaces/default/configmaps",
            None,
            body.to_string().into(),
        )
        .await,
    )
    .await;
    assert_eq!(
        (status, answer["reason"].as_str()),
        (413, Some("RequestEntityTooLarge"))
    );
    assert_eq!(server.store().resource_version(), version);
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "x".repeat(BODY_LIMIT - 1000)}});
    let (status, _) = read(
        send(
            &running,
            "POST",
            "/api/v1/namespaces/default/configmaps",
            None,
            body.to_string().into(),
        )
        .await,
    )
    .await;
    assert_eq!(status, 201);
}

#[tokio::test]
async fn tokens_stand_for_identities() {
    let server = support::server();
    let running = start(&server).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let body = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
            .to_string()
            .into_bytes()
    };
    let token = server.token_for(&Identity::user("jane"));
    assert_eq!(
        send(&running, "POST", path, Some(&token), body("a")).await.status(),
        201
    );
    assert_eq!(send(&running, "POST", path, None, body("b")).await.status(), 201);
    let (status, answer) = read(send(&running, "POST", path, Some("nonsense"), body("c")).await).await;
    assert_eq!((status, answer["reason"].as_str()), (401, Some("Unauthorized")));
    let users: Vec<String> = server.store().history().into_iter().map(|write| write.user).collect();
    assert_eq!(users, ["jane", "kubernetes-admin"]);
}

#[tokio::test]
async fn with_rbac_no_client_gets_in_without_a_token() {
    let server = ApiServer::new(Config {
        enforce_rbac: true,
        ..Config::new(support::fixed_clock())
    });
    let running = start(&server).await;
    assert_eq!(send(&running, "GET", "/api/v1/nodes", None, vec![]).await.status(), 401);
    let jane = server.token_for(&Identity::user("jane"));
    assert_eq!(
        send(&running, "GET", "/api/v1/nodes", Some(&jane), vec![])
            .await
            .status(),
        403
    );
    let admin = server.token_for(&Identity::admin());
    assert_eq!(
        send(&running, "GET", "/api/v1/nodes", Some(&admin), vec![])
            .await
            .status(),
        200
    );
}

#[tokio::test]
async fn a_watch_streams_and_ends_with_the_server() {
    let server = support::server();
    let running = start(&server).await;
    let mut response = send(
        &running,
        "GET",
        "/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=4",
        None,
        vec![],
    )
    .await;
    assert_eq!(response.status(), 200);
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}).to_string();
    send(
        &running,
        "POST",
        "/api/v1/namespaces/default/configmaps",
        None,
        body.into(),
    )
    .await;
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    let event: Value = serde_json::from_slice(frame.data_ref().unwrap()).unwrap();
    assert_eq!(
        (event["type"].as_str(), event["object"]["metadata"]["name"].as_str()),
        (Some("ADDED"), Some("a"))
    );
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
    assert!(response.body_mut().frame().await.is_none(), "the watch ended cleanly");
}

#[tokio::test]
async fn a_lost_reply_is_a_broken_connection_over_http() {
    let server = support::server();
    let running = start(&server).await;
    server.set_faults(apiserver::FaultPlan::writes(|_| apiserver::Fault::LoseReply));
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}).to_string();
    let uri = format!("{}/api/v1/namespaces/default/configmaps", running.base);
    let request = http::Request::post(uri)
        .header("content-type", "application/json")
        .body(Full::from(body))
        .unwrap();
    assert!(client.request(request).await.is_err());
    assert!(
        server.store().get("", "configmaps", "default", "a").is_some(),
        "it was applied all the same"
    );
}

#[tokio::test]
async fn http_2_is_not_supported_and_a_client_that_tries_gets_an_error() {
    let server = support::server();
    let running = start(&server).await;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let request = client.get(format!("{}/version", running.base).parse().unwrap());
    let answer = tokio::time::timeout(std::time::Duration::from_secs(30), request).await;
    assert!(answer.expect("an end in time").is_err());
    let (status, _) = read(send(&running, "GET", "/version", None, Vec::new()).await).await;
    assert_eq!(status, 200);
}

/// What a page in a browser can have it send: simple requests, and its own name once that leads to loopback.
#[tokio::test]
async fn s14_a_page_in_a_browser_creates_and_reads_nothing() {
    let server = support::server();
    let running = start(&server).await;
    let address = running.base.strip_prefix("http://").unwrap();
    let path = "/api/v1/namespaces/default/configmaps";
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "evil"}}).to_string();
    for (method, headers, wanted) in [
        // A form, and a fetch without CORS.
        (
            "POST",
            format!("host: {address}\r\ncontent-type: text/plain\r\norigin: http://evil.example"),
            403,
        ),
        (
            "POST",
            format!("host: {address}\r\ncontent-type: application/json\r\norigin: null"),
            403,
        ),
        ("POST", format!("host: {address}\r\ncontent-type: text/plain"), 415),
        (
            "POST",
            format!("host: {address}\r\ncontent-type: application/x-www-form-urlencoded"),
            415,
        ),
        // DNS rebinding: the same origin, as the browser sees it.
        (
            "POST",
            "host: evil.example:8001\r\ncontent-type: application/json".to_owned(),
            403,
        ),
        ("GET", "host: evil.example:8001".to_owned(), 403),
        ("DELETE", "host: evil.example:8001".to_owned(), 403),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{headers}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{object}",
            object.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert_eq!(status, wanted.to_string(), "{method} {headers}: {answer}");
    }
    assert!(server.store().get("", "configmaps", "default", "evil").is_none());
}

#[tokio::test]
async fn s14_where_a_token_is_required_no_client_gets_in_without_it() {
    let server = support::server();
    server.require_token("of this rehearsal");
    let running = start(&server).await;
    for (token, wanted) in [(None, 401), (Some("another"), 401), (Some("of this rehearsal"), 200)] {
        let response = send(&running, "GET", "/api/v1/nodes", token, Vec::new()).await;
        assert_eq!(response.status(), wanted, "{token:?}");
    }
}
