//! Roles that ship beside the manager's own: for whoever reads its metrics, and for people who work with UpgradePlans.
//! None of these is bound to anybody by us, but the one that lets the manager ask who reads its metrics.

use serde_json::{Value, json};

/// What the metrics endpoint needs, for a service account, and the role of those who may read it.
#[must_use]
pub fn metrics(prefix: &str, namespace: &str, service_account: &str) -> Vec<Value> {
    let auth = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ]);
    let role = cluster_role(&format!("{prefix}metrics-auth-role"), &auth);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{prefix}metrics-auth-rolebinding")},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("{prefix}metrics-auth-role"),
        },
        "subjects": [{"kind": "ServiceAccount", "name": service_account, "namespace": namespace}],
    });
    let reader = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    vec![role, binding, cluster_role(&format!("{prefix}metrics-reader"), &reader)]
}

/// Roles for people: all rights on UpgradePlans, changing them, looking at them.
#[must_use]
pub fn people(prefix: &str) -> Vec<Value> {
    let role = |who: &str, verbs: &[&str]| {
        let rules = json!([
            {"apiGroups": [api::GROUP], "resources": ["upgradeplans"], "verbs": verbs},
            {"apiGroups": [api::GROUP], "resources": ["upgradeplans/status"], "verbs": ["get"]},
        ]);
        cluster_role(&format!("{prefix}upgradeplan-{who}-role"), &rules)
    };
    vec![
        role("admin", &["*"]),
        role(
            "editor",
            &["create", "delete", "get", "list", "patch", "update", "watch"],
        ),
        role("viewer", &["get", "list", "watch"]),
    ]
}

fn cluster_role(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules,
    })
}
