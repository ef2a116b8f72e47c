//! Roles that ship beside the manager's own, for people who work with UpgradePlans. We bind them to nobody.

use serde_json::{Value, json};

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
