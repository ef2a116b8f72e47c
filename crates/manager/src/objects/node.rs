//! Patches of Nodes.

use api::labels;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt;
use serde_json::{Value, json};

fn taints(node: &Node) -> &[Taint] {
    let spec = node.spec.as_ref();
    spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Removes that taint, and keeps those of others. Concurrent changes of taints are not overwritten: the write is
/// refused, and the next pass looks again.
#[must_use]
pub fn without_drain_taint(node: &Node) -> Value {
    let others: Vec<&Taint> = taints(node)
        .iter()
        .filter(|taint| taint.key != labels::DRAIN_TAINT)
        .collect();
    let others = if others.is_empty() { Value::Null } else { json!(others) };
    json!({"metadata": {"resourceVersion": node.resource_version()}, "spec": {"taints": others}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r22_only_the_drain_taint_goes() {
        let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
        let node = |taints: Value| -> Node {
            let object = json!({"metadata": {"name": "n", "resourceVersion": "7"}, "spec": {"taints": taints}});
            serde_json::from_value(object).unwrap()
        };
        let both = node(json!([taint(labels::DRAIN_TAINT), taint("mine")]));
        assert!(api::node::has_drain_taint(&both));
        let patch = without_drain_taint(&both);
        assert_eq!(patch["spec"]["taints"], json!([taint("mine")]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let patch = without_drain_taint(&node(json!([taint(labels::DRAIN_TAINT)])));
        assert_eq!(patch["spec"]["taints"], Value::Null);
        assert!(!api::node::has_drain_taint(&node(json!([taint("mine")]))));
    }
}
