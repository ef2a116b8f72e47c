//! Service accounts beside the manager's own, and what each may do.

use serde_json::{Value, json};

use super::{
    ALL,
    role::{Holder, Rule, Scope, binding, role},
};

/// The account whose tokens kubelets are told.
pub const KUBELET_READER: &str = "kubelet-reader";

/// Rules for the whole cluster: how full a kubelet's disks are, and when it begins to remove images.
const KUBELET_RULES: &[Rule] = &[("", &["nodes/configz", "nodes/stats"], &["get"], ALL)];

/// The accounts of an installation with their roles and bindings.
#[must_use]
pub fn accounts(prefix: &str, namespace: &str) -> Vec<Value> {
    let mut objects = Vec::new();
    let mut add = |namespace: &str, name: &str, roles: Vec<Value>| {
        let name = format!("{prefix}{name}");
        let holder = Holder {
            namespace,
            account: &name,
        };
        objects.push(json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace},
            // Who has none of its tokens cannot use it: pods that run as it ask for one.
            "automountServiceAccountToken": false,
        }));
        for role in roles {
            let binding = binding(&role, holder);
            objects.extend([role, binding]);
        }
    };
    let cluster = |name: &str, rules: &[Rule]| role(prefix, name, Scope::Cluster, rules);
    add(
        namespace,
        KUBELET_READER,
        vec![cluster("kubelet-reader-role", KUBELET_RULES)],
    );
    objects
}
