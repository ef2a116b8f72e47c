//! Whatever is sent, the server answers with an error of the client's and keeps its objects in order.

// Everything here is a test, also what is not marked as one.

use crate::support;
use apiserver::{ApiServer, Identity};
use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::{Value, json};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z$.{]{0,8}".prop_map(Value::from),
        Just(json!("delete")),
    ];
    // Names the server looks at, so that nonsense reaches the places where it could hurt.
    let key = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "template",
        "containers",
        "ports",
        "names",
        "versions",
        "name",
        "labels",
        "finalizers",
        "data",
        "conditions",
        "$patch",
        "$retainKeys",
        "$deleteFromPrimitiveList/finalizers",
        "$setElementOrder/containers",
        "selector",
        "replicas",
        "size",
        "parts",
        "tags",
        "type",
        "stringData",
        "managedFields",
        "ownerReferences",
        "schema",
        "group",
        "kind",
    ]);
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..4).prop_map(|pairs| {
                Value::Object(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

/// Path of a collection, group/version, kind, a good object.
const KINDS: &[(&str, &str, &str)] = &[
    ("/api/v1/namespaces/default/configmaps", "v1", "ConfigMap"),
    ("/api/v1/namespaces/default/pods", "v1", "Pod"),
    ("/api/v1/namespaces/default/services", "v1", "Service"),
    ("/api/v1/namespaces/default/secrets", "v1", "Secret"),
    ("/api/v1/nodes", "v1", "Node"),
    ("/api/v1/namespaces", "v1", "Namespace"),
    ("/apis/batch/v1/namespaces/default/jobs", "batch/v1", "Job"),
    ("/apis/apps/v1/namespaces/default/deployments", "apps/v1", "Deployment"),
    (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
    ),
    (
        "/apis/example.io/v1/namespaces/default/widgets",
        "example.io/v1",
        "Widget",
    ),
];

const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// The code of the answer; a refusal as 500 without a reason, which the real server gives too, counts as 400.
async fn send(server: &ApiServer, method: &str, path: &str, content_type: &str, body: &Value) -> u16 {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type);
    let request = request.body(body.to_string().into()).unwrap();
    let response = server.handle(&Identity::admin(), request).await;
    let code = response.status().as_u16();
    if code != 500 {
        return code;
    }
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&body).unwrap();
    if status.get("reason").is_none() { 400 } else { code }
}

fn in_order(server: &ApiServer) {
    for resource in server.store().resources() {
        for object in server.store().list(&resource.group, &resource.plural, None) {
            assert!(
                object["metadata"]["name"].is_string() && object["metadata"]["uid"].is_string(),
                "{object}"
            );
            assert!(
                object["kind"].is_string() && object["apiVersion"].is_string(),
                "{object}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nonsense_never_breaks_the_server(
        fields in prop::collection::vec((prop::sample::select(vec!["spec", "status", "data", "stringData", "metadata"]), any_json()), 0..3),
        patches in prop::collection::vec((any::<prop::sample::Index>(), any_json(), any::<bool>()), 1..4),
        which in any::<prop::sample::Index>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let server = support::server();
            let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            assert_eq!(send(&server, "POST", crd, "application/json", &support::widget_crd()).await, 201);
            let (path, version, kind) = KINDS[which.index(KINDS.len())];
            let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}});
            for (field, value) in &fields {
                object[*field] = value.clone();
            }
            let mut codes = vec![send(&server, "POST", path, "application/json", &object).await];
            let good = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"},
                "spec": {"size": 1, "containers": [], "template": {"spec": {"containers": []}}}});
            codes.push(send(&server, "POST", path, "application/json", &good).await);
            for (format, body, status) in &patches {
                let format = PATCHES[format.index(PATCHES.len())];
                let subresource = if *status { "/status" } else { "" };
                let target = format!("{path}/a{subresource}?fieldManager=test");
                codes.push(send(&server, "PATCH", &target, format, body).await);
                let mut whole = body.clone();
                if whole.is_object() {
                    whole["apiVersion"] = json!(version);
                    whole["kind"] = json!(kind);
                }
                codes.push(send(&server, "PATCH", &target, "application/apply-patch+yaml", &whole).await);
                codes.push(send(&server, "PUT", &format!("{path}/a{subresource}"), "application/json", &whole).await);
                codes.push(send(&server, "PUT", &format!("{path}/a/scale"), "application/json", &whole).await);
            }
            codes.push(send(&server, "DELETE", &format!("{path}/a"), "application/json", &json!({})).await);
            in_order(&server);
            assert!(codes.iter().all(|code| *code < 500), "{codes:?}");
        });
    }
}
