//! Which running VMs cannot move to another node while theirs is upgraded.

use api::{foreign::kubevirt::VirtualMachineInstance, labels};
use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement};

/// Nodes that can carry VMs: all but witnesses. The label's key alone decides.
#[must_use]
pub fn hosts(nodes: &[Node]) -> Vec<&Node> {
    let is_witness = |node: &&Node| {
        let labels = node.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(labels::WITNESS))
    };
    nodes.iter().filter(|node| !is_witness(node)).collect()
}

/// The VM cannot move: it holds a device of its node, or no other host would take it.
///
/// Unlike upstream's, a nodeSelector alone does not hold a VM: it is one more condition on the other hosts. And `gpus`
/// hold it like host devices: before v1.8.0 vGPUs were carried there.
#[must_use]
pub fn is_stuck(vmi: &VirtualMachineInstance, hosts: &[&Node]) -> bool {
    holds_a_device(vmi) || !hosts.iter().any(|node| is_target(vmi, node))
}

fn holds_a_device(vmi: &VirtualMachineInstance) -> bool {
    let devices = vmi.spec.domain.as_ref().and_then(|domain| domain.devices.as_ref());
    devices.is_some_and(|devices| {
        [&devices.host_devices, &devices.gpus]
            .into_iter()
            .flatten()
            .any(|list| !list.is_empty())
    })
}

fn is_target(vmi: &VirtualMachineInstance, node: &Node) -> bool {
    let affinity = vmi
        .spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    // A VM that has no node yet runs on none of them.
    let is_elsewhere = vmi.status.node_name.is_none() || node.metadata.name != vmi.status.node_name;
    is_elsewhere
        && !cordoned
        && matches_labels(vmi, node)
        && required.is_none_or(|selector| matches_terms(node, selector))
}

fn matches_labels(vmi: &VirtualMachineInstance, node: &Node) -> bool {
    let mut wanted = vmi.spec.node_selector.iter().flatten();
    wanted.all(|(key, value)| label(node, key) == Some(value.as_str()))
}

/// Terms are alternatives; within a term all must hold; an empty term matches nothing.
fn matches_terms(node: &Node, selector: &NodeSelector) -> bool {
    selector.node_selector_terms.iter().any(|term| {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let fields = term.match_fields.as_deref().unwrap_or_default();
        (!expressions.is_empty() || !fields.is_empty())
            && expressions.iter().all(|rule| holds(rule, label(node, &rule.key)))
            && fields
                .iter()
                .all(|rule| rule.key == "metadata.name" && holds(rule, node.metadata.name.as_deref()))
    })
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// A rule that cannot be read holds for nobody.
fn holds(rule: &NodeSelectorRequirement, actual: Option<&str>) -> bool {
    let values = rule.values.as_deref().unwrap_or_default();
    let listed = actual.is_some_and(|actual| values.iter().any(|value| value == actual));
    let numbers = || Some((actual?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match rule.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        "Gt" => numbers().is_some_and(|(actual, bound)| actual > bound),
        "Lt" => numbers().is_some_and(|(actual, bound)| actual < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, labels: &Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
    }

    fn vmi(spec: &Value) -> VirtualMachineInstance {
        serde_json::from_value(json!({"metadata": {"name": "vm"}, "spec": spec, "status": {"nodeName": "node-1"}}))
            .unwrap()
    }

    fn wants(rule: &Value) -> VirtualMachineInstance {
        vmi(
            &json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [rule]}]}}}}),
        )
    }

    #[rstest]
    #[case(json!({"key": "zone", "operator": "In", "values": ["a", "b"]}), false)]
    #[case(json!({"key": "zone", "operator": "In", "values": ["c"]}), true)]
    #[case(json!({"key": "zone", "operator": "NotIn", "values": ["c"]}), false)]
    #[case(json!({"key": "zone", "operator": "NotIn", "values": ["b"]}), true)]
    #[case(json!({"key": "zone", "operator": "Exists"}), false)]
    #[case(json!({"key": "rack", "operator": "Exists"}), true)]
    #[case(json!({"key": "rack", "operator": "DoesNotExist"}), false)]
    #[case(json!({"key": "cores", "operator": "Gt", "values": ["7"]}), false)]
    #[case(json!({"key": "cores", "operator": "Lt", "values": ["8"]}), true)]
    #[case(json!({"key": "zone", "operator": "Gt", "values": ["7"]}), true)]
    #[case(json!({"key": "zone", "operator": "Like", "values": ["b"]}), true)]
    fn required_affinity_is_read_as_the_scheduler_reads_it(#[case] rule: Value, #[case] stuck: bool) {
        let nodes = [
            node("node-1", &json!({})),
            node("node-2", &json!({"zone": "b", "cores": "8"})),
        ];
        assert_eq!(is_stuck(&wants(&rule), &hosts(&nodes)), stuck);
    }

    #[test]
    fn an_empty_term_matches_nothing() {
        let nodes = [node("node-1", &json!({})), node("node-2", &json!({}))];
        let vmi = vmi(
            &json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{}]}}}}),
        );
        assert!(is_stuck(&vmi, &hosts(&nodes)));
    }

    #[test]
    fn a_node_can_be_named_by_a_field() {
        let nodes = [node("node-1", &json!({})), node("node-2", &json!({}))];
        let by_field = |name: &str| {
            vmi(
                &json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]}}}}),
            )
        };
        assert!(is_stuck(&by_field("node-1"), &hosts(&nodes)));
        assert!(!is_stuck(&by_field("node-2"), &hosts(&nodes)));
    }
}
