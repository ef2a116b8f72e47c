//! RBAC as a table: what roles and bindings allow, and the words of a refusal.

// Everything here is a test, also what is not marked as one.

use crate::support;
use apiserver::{ApiServer, Config, Identity};
use http_body_util::BodyExt;
use rstest::rstest;
use serde_json::{Value, json};

async fn ask(server: &ApiServer, who: &Identity, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let content_type = if method == "PATCH" {
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
    let response = server.handle(who, request.body(text.into()).unwrap()).await;
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

fn robot() -> Identity {
    Identity::service_account("default", "robot")
}

/// A server where the robot's account has `cluster` rules everywhere and `local` rules in kube-system.
async fn server(cluster: Value, local: Value) -> ApiServer {
    let server = ApiServer::new(Config {
        enforce_rbac: true,
        ..Config::new(support::fixed_clock())
    });
    let group = "rbac.authorization.k8s.io/v1";
    let base = format!("/apis/{group}");
    let subject = json!([{"kind": "ServiceAccount", "namespace": "default", "name": "robot"}]);
    let objects = [
        (
            "clusterroles",
            json!({"apiVersion": group, "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": cluster}),
        ),
        (
            "clusterrolebindings",
            json!({"apiVersion": group, "kind": "ClusterRoleBinding", "metadata": {"name": "r"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}, "subjects": subject}),
        ),
        (
            "namespaces/kube-system/roles",
            json!({"apiVersion": group, "kind": "Role", "metadata": {"name": "l"}, "rules": local}),
        ),
        (
            "namespaces/kube-system/rolebindings",
            json!({"apiVersion": group, "kind": "RoleBinding", "metadata": {"name": "l"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "l"}, "subjects": subject}),
        ),
    ];
    for (path, object) in objects {
        assert_eq!(
            ask(&server, &Identity::admin(), "POST", &format!("{base}/{path}"), &object)
                .await
                .0,
            201
        );
    }
    server
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

#[rstest]
#[case::listed("GET", "/api/v1/nodes", true)]
#[case::watched("GET", "/api/v1/nodes?watch=true&timeoutSeconds=1", false)]
#[case::got("GET", "/api/v1/nodes/n", true)]
#[case::deleted("DELETE", "/api/v1/nodes/n", false)]
#[case::other_group("GET", "/apis/apps/v1/deployments", false)]
#[case::any_group_by_star("GET", "/apis/batch/v1/jobs", true)]
#[case::subresource_named("GET", "/api/v1/nodes/n/status", true)]
#[case::subresource_not_named("GET", "/api/v1/namespaces/default/pods/p/log", false)]
#[case::pods_themselves("GET", "/api/v1/namespaces/default/pods/p", true)]
#[case::by_name("GET", "/api/v1/namespaces/default/secrets/mine", true)]
#[case::by_other_name("GET", "/api/v1/namespaces/default/secrets/yours", false)]
#[case::list_is_not_by_name("GET", "/api/v1/namespaces/default/secrets", false)]
#[case::role_in_its_namespace("GET", "/api/v1/namespaces/kube-system/configmaps", true)]
#[case::role_elsewhere("GET", "/api/v1/namespaces/default/configmaps", false)]
#[case::role_everywhere("GET", "/api/v1/configmaps", false)]
#[case::discovery("GET", "/apis", true)]
#[case::health("GET", "/healthz", true)]
#[case::granted_path("GET", "/metrics", true)]
#[case::other_path("GET", "/logs", false)]
#[tokio::test]
async fn rules_allow_what_they_name(#[case] method: &str, #[case] path: &str, #[case] allowed: bool) {
    let mut named = rule(&[""], &["secrets"], &["get"]);
    named["resourceNames"] = json!(["mine"]);
    let server = server(
        json!([
            rule(&[""], &["nodes", "nodes/status", "pods"], &["get", "list"]),
            rule(&["*"], &["jobs"], &["*"]),
            named,
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        ]),
        json!([rule(&[""], &["configmaps"], &["list"])]),
    )
    .await;
    let (status, answer) = ask(&server, &robot(), method, path, &Value::Null).await;
    assert_eq!(status != 403, allowed, "{status} {answer}");
    let other = ask(
        &server,
        &Identity::service_account("default", "other"),
        "GET",
        "/api/v1/nodes",
        &Value::Null,
    )
    .await;
    assert_eq!(other.0, 403);
}

#[rstest]
#[case::listed("GET", "?fieldSelector=metadata.name%3Dmine", true)]
#[case::listed_by_two_signs("GET", "?fieldSelector=metadata.name%3D%3Dmine", true)]
#[case::listed_among_other_clauses("GET", "?fieldSelector=type%3DOpaque%2Cmetadata.name%3Dmine", true)]
#[case::watched("GET", "?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dmine", true)]
#[case::another("GET", "?fieldSelector=metadata.name%3Dyours", false)]
#[case::all_others("GET", "?fieldSelector=metadata.name%21%3Dmine", false)]
#[case::by_label("GET", "?labelSelector=metadata.name%3Dmine", false)]
#[case::all("GET", "", false)]
#[case::collection_deleted("DELETE", "?fieldSelector=metadata.name%3Dmine", true)]
#[case::whole_collection_deleted("DELETE", "", false)]
#[tokio::test]
async fn a_field_selector_that_insists_on_a_name_asks_for_that_name(
    #[case] method: &str,
    #[case] query: &str,
    #[case] allowed: bool,
) {
    let mut named = rule(&[""], &["secrets"], &["list", "watch", "deletecollection"]);
    named["resourceNames"] = json!(["mine"]);
    let server = server(json!([named]), json!([])).await;
    let path = format!("/api/v1/namespaces/default/secrets{query}");
    let (status, answer) = ask(&server, &robot(), method, &path, &Value::Null).await;
    assert_eq!(status != 403, allowed, "{status} {answer}");
}

#[tokio::test]
async fn refusals_are_worded_like_the_real_ones() {
    let server = server(json!([]), json!([])).await;
    let (status, answer) = ask(
        &server,
        &robot(),
        "GET",
        "/apis/apps/v1/namespaces/default/deployments/d",
        &Value::Null,
    )
    .await;
    assert_eq!((status, answer["reason"].as_str()), (403, Some("Forbidden")));
    assert_eq!(
        answer["message"],
        "deployments.apps \"d\" is forbidden: User \"system:serviceaccount:default:robot\" cannot get resource \"deployments\" \
         in API group \"apps\" in the namespace \"default\""
    );
    let (_, answer) = ask(&server, &robot(), "GET", "/api/v1/nodes", &Value::Null).await;
    assert_eq!(
        answer["message"],
        "nodes is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"nodes\" in API group \"\" at the \
         cluster scope"
    );
}

#[tokio::test]
async fn a_refused_write_is_not_done() {
    let server = server(json!([]), json!([])).await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    assert_eq!(
        ask(
            &server,
            &robot(),
            "POST",
            "/api/v1/namespaces/default/configmaps",
            &body
        )
        .await
        .0,
        403
    );
    assert_eq!(server.store().get("", "configmaps", "default", "a"), None);
}

#[tokio::test]
async fn reviews_say_what_the_table_says() {
    let server = server(json!([rule(&[""], &["nodes"], &["get"])]), json!([])).await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, allowed) in [("get", true), ("delete", false)] {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": verb, "resource": "nodes"}}});
        let (status, answer) = ask(&server, &robot(), "POST", path, &review).await;
        assert_eq!((status, &answer["status"]["allowed"]), (201, &json!(allowed)));
    }
}

#[tokio::test]
async fn who_applies_what_is_not_there_must_be_allowed_to_create_it_by_its_name() {
    let named = |verbs: &[&str], names: &[&str]| {
        let mut rule = rule(&[""], &["configmaps"], verbs);
        rule["resourceNames"] = json!(names);
        rule
    };
    let rules = json!([named(&["patch"], &["a", "b"]), named(&["create"], &["b"])]);
    let server = server(json!([]), rules).await;
    let apply = async |name: &str| {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string();
        let request = http::Request::builder()
            .method("PATCH")
            .uri(format!(
                "/api/v1/namespaces/kube-system/configmaps/{name}?fieldManager=r"
            ))
            .header("content-type", "application/apply-patch+yaml");
        let response = server.handle(&robot(), request.body(body.into()).unwrap()).await;
        response.status().as_u16()
    };
    assert_eq!(apply("a").await, 403);
    assert_eq!(apply("b").await, 201);
    assert_eq!(apply("b").await, 200);
}
