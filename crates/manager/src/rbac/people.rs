//! Roles that ship in addition to the manager's own, for users of UpgradePlans. We do not bind them.

use checks::admission::powers::{self, Power};
use serde_json::{Value, json};

/// The role that may also choose images and skip checks.
const ADMINISTRATOR: &str = "admin";

/// Roles for users: all rights on UpgradePlans, also to choose images and to skip checks; changing them; looking at
/// them.
#[must_use]
pub fn people(prefix: &str) -> Vec<Value> {
    let role = |who: &str, verbs: &[&str]| {
        let mut rules = json!([
            {"apiGroups": [api::GROUP], "resources": ["upgradeplans"], "verbs": verbs},
            {"apiGroups": [api::GROUP], "resources": ["upgradeplans/status"], "verbs": ["get"]},
        ]);
        if who == ADMINISTRATOR {
            let powers = Power::ALL.map(|power| format!("upgradeplans/{}", power.subresource()));
            let rule = json!({"apiGroups": [api::GROUP], "resources": powers, "verbs": [powers::VERB]});
            rules
                .as_array_mut()
                .into_iter()
                .for_each(|rules| rules.push(rule.clone()));
        }
        cluster_role(&format!("{prefix}upgradeplan-{who}-role"), &rules)
    };
    vec![
        role(ADMINISTRATOR, &["*"]),
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
