//! The taint that makes KubeVirt move VMs away from a node: the programs of a node set it, and the manager takes away what
//! they leave.

use api::labels::DRAIN_TAINT;
use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Value, json};

/// The patch that gives a node our taint or removes it; nothing when it is so. Concurrent changes of taints are not
/// overwritten: the write is refused, and the step looks again.
#[must_use]
pub fn patch(node: &Node, draining: bool) -> Option<Value> {
    let ours = Taint {
        key: DRAIN_TAINT.to_owned(),
        value: Some("draining".to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    let before = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let others = before.iter().filter(|taint| taint.key != DRAIN_TAINT).cloned();
    let wanted: Vec<Taint> = others.chain(draining.then_some(ours)).collect();
    if same(before, &wanted) {
        return None;
    }
    let wanted = if wanted.is_empty() { json!(null) } else { json!(wanted) };
    Some(json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": wanted}}))
}

/// The order of taints means nothing.
fn same(one: &[Taint], other: &[Taint]) -> bool {
    one.len() == other.len() && one.iter().all(|taint| other.contains(taint))
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
        let both = node(json!([taint(DRAIN_TAINT), taint("mine")]));
        assert!(api::node::has_drain_taint(&both));
        let change = patch(&both, false).unwrap();
        assert_eq!(change["spec"]["taints"], json!([taint("mine")]));
        assert_eq!(change["metadata"]["resourceVersion"], "7");
        let change = patch(&node(json!([taint(DRAIN_TAINT)])), false).unwrap();
        assert_eq!(change["spec"]["taints"], Value::Null);
        assert!(!api::node::has_drain_taint(&node(json!([taint("mine")]))));
    }
}
