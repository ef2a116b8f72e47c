//! Predicates on Nodes, in one place.

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::ResourceExt;

use crate::labels;

/// Harvester manages the node.
#[must_use]
pub fn is_managed(node: &Node) -> bool {
    node.labels().get(labels::MANAGED).is_some_and(|value| value == "true")
}

/// The node is a witness: a member of etcd that runs no VMs. The key of its label alone decides.
#[must_use]
pub fn is_witness(node: &Node) -> bool {
    node.labels().contains_key(labels::WITNESS)
}

/// Whether the node is ready, and since when.
#[must_use]
pub fn ready_condition(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// The kubelet of the node says that it is ready.
#[must_use]
pub fn is_ready(node: &Node) -> bool {
    ready_condition(node).is_some_and(|condition| condition.status == "True")
}

/// No pod is scheduled to the node.
#[must_use]
pub fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

/// KubeVirt is to move the VMs of the node away.
#[must_use]
pub fn has_drain_taint(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    taints
        .unwrap_or_default()
        .iter()
        .any(|taint| taint.key == labels::DRAIN_TAINT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(value: serde_json::Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_node_is_managed_only_by_the_value_true() {
        let labelled = |value: &str| node(json!({"metadata": {"labels": {labels::MANAGED: value}}}));
        assert!(is_managed(&labelled("true")));
        assert!(!is_managed(&labelled("True")));
        assert!(!is_managed(&Node::default()));
    }

    #[test]
    fn a_witness_is_known_by_the_key_of_its_label() {
        assert!(is_witness(&node(
            json!({"metadata": {"labels": {labels::WITNESS: "false"}}})
        )));
        assert!(!is_witness(&Node::default()));
    }

    #[test]
    fn a_node_is_ready_only_when_it_says_so() {
        let says = |status: &str| {
            node(
                json!({"status": {"conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": status}]}}),
            )
        };
        assert!(is_ready(&says("True")));
        assert!(!is_ready(&says("Unknown")));
        assert!(!is_ready(&Node::default()));
    }

    #[test]
    fn cordons_and_taints_are_read_from_the_spec() {
        let spec = json!({"unschedulable": true, "taints": [{"key": labels::DRAIN_TAINT, "effect": "NoExecute"}]});
        let drained = node(json!({"spec": spec}));
        assert!(is_cordoned(&drained) && has_drain_taint(&drained));
        let other = node(json!({"spec": {"taints": [{"key": "other", "effect": "NoSchedule"}]}}));
        assert!(!is_cordoned(&other) && !has_drain_taint(&other));
    }
}
