//! Admission webhooks: who is asked, who may change or refuse, and what happens when one is down.

// Everything here is a test, also what is not marked as one.

use crate::support;
use std::sync::{Arc, Mutex};

use apiserver::{ApiServer, Identity, WebhookHandler};
use base64::Engine as _;
use futures::FutureExt as _;
use http_body_util::BodyExt;
use rstest::rstest;
use serde_json::{Value, json};

async fn ask(server: &ApiServer, method: &str, path: &str, body: &Value) -> (u16, Value, String) {
    let patch = method == "PATCH";
    let content_type = if patch {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type);
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let response = server
        .handle(&Identity::admin(), request.body(text.into()).unwrap())
        .await;
    let warning = response
        .headers()
        .get("warning")
        .map(|value| value.to_str().unwrap().to_owned())
        .unwrap_or_default();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap(), warning)
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn rule(operations: &[&str], resources: &[&str]) -> Value {
    json!([{"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}])
}

async fn configure(server: &ApiServer, kind: &str, webhook: &Value) {
    let plural = format!("{}s", kind.to_lowercase());
    let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
    let body = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "test"}, "webhooks": [webhook],
    });
    let (status, answer, _) = ask(server, "POST", &path, &body).await;
    assert_eq!(status, 201, "{answer}");
}

fn service() -> Value {
    json!({"service": {"namespace": "ns", "name": "hook", "path": "/check"}})
}

/// A target that answers at once.
fn at_once(answer: impl Fn(Value) -> Value + Send + Sync + 'static) -> WebhookHandler {
    Arc::new(move |review| std::future::ready(answer(review)).boxed())
}

fn answer(allowed: bool, status: &Value) -> WebhookHandler {
    let status = status.clone();
    at_once(move |review| json!({"response": {"uid": review["request"]["uid"], "allowed": allowed, "status": status}}))
}

#[tokio::test]
async fn a_validating_webhook_refuses_with_its_own_message() {
    let server = support::server();
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let log = Arc::clone(&seen);
    configure(&server, "ValidatingWebhookConfiguration", &json!({
        "name": "v.test.io", "clientConfig": service(), "rules": rule(&["CREATE", "UPDATE", "DELETE"], &["configmaps"]), "failurePolicy": "Fail",
    })).await;
    server.set_webhook_handler(
        "ns/hook/check",
        at_once(move |review| {
            log.lock().unwrap().push(review["request"].clone());
            let allowed = review["request"]["object"]["data"]["bad"].is_null();
            json!({"response": {"allowed": allowed, "status": {"message": "bad is bad"}}})
        }),
    );
    assert_eq!(ask(&server, "POST", MAPS, &map("a")).await.0, 201);
    let (status, refusal, _) = ask(&server, "PATCH", &format!("{MAPS}/a"), &json!({"data": {"bad": "1"}})).await;
    assert_eq!((status, refusal["reason"].as_str()), (403, Some("Forbidden")));
    assert_eq!(
        refusal["message"],
        "admission webhook \"v.test.io\" denied the request: bad is bad"
    );
    assert!(
        server
            .store()
            .get("", "configmaps", "default", "a")
            .unwrap()
            .get("data")
            .is_none()
    );
    assert_eq!(ask(&server, "DELETE", &format!("{MAPS}/a"), &Value::Null).await.0, 200);
    let seen = seen.lock().unwrap().clone();
    let operations: Vec<&str> = seen
        .iter()
        .map(|request| request["operation"].as_str().unwrap())
        .collect();
    assert_eq!(operations, ["CREATE", "UPDATE", "DELETE"]);
    assert_eq!(seen[1]["oldObject"]["metadata"]["name"], "a");
    assert_eq!(
        seen[1]["resource"],
        json!({"group": "", "version": "v1", "resource": "configmaps"})
    );
    assert!(seen[2]["object"].is_null() && seen[2]["oldObject"]["metadata"]["name"] == "a");
}

#[tokio::test]
async fn a_refusal_brings_its_own_code() {
    let server = support::server();
    configure(
        &server,
        "ValidatingWebhookConfiguration",
        &json!({
            "name": "v.test.io", "clientConfig": {"url": "https://hook.test/x"}, "rules": rule(&["*"], &["*"]),
        }),
    )
    .await;
    server.set_webhook_handler(
        "https://hook.test/x",
        answer(false, &json!({"code": 400, "reason": "BadRequest", "message": "no"})),
    );
    let (status, refusal, _) = ask(&server, "POST", MAPS, &map("a")).await;
    assert_eq!((status, refusal["reason"].as_str()), (400, Some("BadRequest")));
}

#[tokio::test]
async fn a_mutating_webhook_changes_and_warns() {
    let server = support::server();
    configure(
        &server,
        "MutatingWebhookConfiguration",
        &json!({
            "name": "m.test.io", "clientConfig": service(), "rules": rule(&["CREATE"], &["configmaps"]),
        }),
    )
    .await;
    server.set_webhook_handler("ns/hook/check", at_once(|_| {
        let patch = json!([{"op": "add", "path": "/data", "value": {"by": "hook"}}]).to_string();
        let patch = base64::engine::general_purpose::STANDARD.encode(patch);
        json!({"response": {"allowed": true, "patchType": "JSONPatch", "patch": patch, "warnings": ["mind the gap"]}})
    }));
    let (status, created, warning) = ask(&server, "POST", MAPS, &map("a")).await;
    assert_eq!((status, created["data"]["by"].as_str()), (201, Some("hook")));
    assert_eq!(warning, "299 - \"mind the gap\"");
    assert_eq!(
        server.store().get("", "configmaps", "default", "a").unwrap()["data"]["by"],
        "hook"
    );
}

#[rstest]
#[case::fails("Fail", 500)]
#[case::is_ignored("Ignore", 201)]
#[tokio::test]
async fn a_webhook_that_is_down(#[case] policy: &str, #[case] expected: u16) {
    let server = support::server();
    configure(&server, "ValidatingWebhookConfiguration", &json!({
        "name": "v.test.io", "clientConfig": service(), "rules": rule(&["CREATE"], &["configmaps"]), "failurePolicy": policy,
    })).await;
    let (status, answer, _) = ask(&server, "POST", MAPS, &map("a")).await;
    assert_eq!(status, expected);
    if expected == 500 {
        let message = answer["message"].as_str().unwrap();
        assert!(
            message.starts_with("Internal error occurred: failed calling webhook \"v.test.io\""),
            "{message}"
        );
        assert_eq!(server.store().get("", "configmaps", "default", "a"), None);
    }
}

#[rstest]
#[case::other_resource(json!({"rules": rule(&["CREATE"], &["secrets"])}), false)]
#[case::other_operation(json!({"rules": rule(&["UPDATE"], &["configmaps"])}), false)]
#[case::subresource_only(json!({"rules": rule(&["CREATE"], &["configmaps/status"])}), false)]
#[case::everything(json!({"rules": rule(&["*"], &["*"])}), true)]
#[case::everything_with_subresources(json!({"rules": rule(&["*"], &["*/*"])}), true)]
#[case::object_selected(json!({"rules": rule(&["*"], &["*"]), "objectSelector": {"matchLabels": {"a": "b"}}}), true)]
#[case::object_not_selected(json!({"rules": rule(&["*"], &["*"]), "objectSelector": {"matchLabels": {"a": "c"}}}), false)]
#[case::namespace_selected(json!({"rules": rule(&["*"], &["*"]), "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}), true)]
#[case::namespace_not_selected(json!({"rules": rule(&["*"], &["*"]), "namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}]}}), false)]
#[tokio::test]
async fn rules_and_selectors_say_who_is_asked(#[case] mut webhook: Value, #[case] asked: bool) {
    let server = support::server();
    webhook["name"] = json!("v.test.io");
    webhook["clientConfig"] = service();
    configure(&server, "ValidatingWebhookConfiguration", &webhook).await;
    server.set_webhook_handler("ns/hook/check", answer(false, &json!({"message": "no"})));
    let mut object = map("a");
    object["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(ask(&server, "POST", MAPS, &object).await.0 == 403, asked);
}

#[tokio::test]
async fn a_handler_taken_down_is_a_webhook_down() {
    let server = support::server();
    configure(
        &server,
        "ValidatingWebhookConfiguration",
        &json!({
            "name": "v.test.io", "clientConfig": service(), "rules": rule(&["CREATE"], &["configmaps"]),
        }),
    )
    .await;
    server.set_webhook_handler("ns/hook/check", answer(true, &Value::Null));
    assert_eq!(ask(&server, "POST", MAPS, &map("a")).await.0, 201);
    server.remove_webhook_handler("ns/hook/check");
    assert_eq!(ask(&server, "POST", MAPS, &map("b")).await.0, 500);
}

#[tokio::test]
async fn a_webhook_may_read_the_cluster_before_it_answers() {
    let server = support::server();
    configure(
        &server,
        "ValidatingWebhookConfiguration",
        &json!({
            "name": "v.test.io", "clientConfig": service(), "rules": rule(&["CREATE", "DELETE"], &["configmaps"]),
        }),
    )
    .await;
    let reader = server.clone();
    server.set_webhook_handler(
        "ns/hook/check",
        Arc::new(move |review| {
            let reader = reader.clone();
            async move {
                let (status, found, _) = ask(&reader, "GET", MAPS, &Value::Null).await;
                let others = found["items"].as_array().map_or(0, Vec::len);
                let creates = review["request"]["operation"] == "CREATE";
                json!({"response": {"allowed": status == 200 && (creates == (others == 0)), "status": {"message": "one"}}})
            }
            .boxed()
        }),
    );
    assert_eq!(ask(&server, "POST", MAPS, &map("a")).await.0, 201);
    assert_eq!(ask(&server, "POST", MAPS, &map("b")).await.0, 403);
    assert_eq!(ask(&server, "DELETE", &format!("{MAPS}/a"), &Value::Null).await.0, 200);
    assert_eq!(ask(&server, "POST", MAPS, &map("b")).await.0, 201);
}
