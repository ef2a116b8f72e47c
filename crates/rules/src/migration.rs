//! Which running VMs cannot move to another node while theirs is upgraded, and why.
//!
//! One algorithm for all callers: admission, the detector of a node's Job, the rehearsal.

use std::fmt;

use api::{
    foreign::{condition_is, kubevirt::VirtualMachineInstance},
    labels,
    node::{is_cordoned, is_witness},
};
use k8s_openapi::api::core::v1::{Affinity, Node, NodeSelector, NodeSelectorRequirement};

/// Why a VM cannot move to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// There is no other host in the cluster.
    SingleHost,
    /// It holds a device of its node: PCI, USB, GPU.
    HoldsDevice,
    /// KubeVirt says that it cannot be migrated.
    NotLiveMigratable {
        /// KubeVirt's reason and message, as far as it gave any.
        why: String,
    },
    /// No other host fits it: cordoned, or not what its nodeSelector and node affinity ask for.
    NoTarget,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SingleHost => f.write_str("there is no other node for VMs"),
            Self::HoldsDevice => f.write_str("it uses a device of its node"),
            Self::NotLiveMigratable { why } if why.is_empty() => {
                f.write_str("KubeVirt says that it cannot be live-migrated")
            }
            Self::NotLiveMigratable { why } => write!(f, "KubeVirt says that it cannot be live-migrated: {why}"),
            Self::NoTarget => f.write_str("no other schedulable node fits its nodeSelector and node affinity"),
        }
    }
}

/// Nodes that can carry VMs: all but witnesses. The label's key alone decides.
#[must_use]
pub fn hosts<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Vec<&'a Node> {
    nodes.into_iter().filter(|node| !is_witness(node)).collect()
}

/// Why the VM cannot move, if it runs and cannot: what [`why_bound`] says, or KubeVirt's own condition.
#[must_use]
pub fn why_stuck(vmi: &VirtualMachineInstance, hosts: &[&Node]) -> Option<Stuck> {
    why_bound(vmi, hosts).or_else(|| denial(vmi).map(|why| Stuck::NotLiveMigratable { why }))
}

/// Why nothing could ever move the VM while its node is upgraded, so that it has to be shut down: there is but one host, it
/// holds a device of its node, or no other host would take it.
///
/// Unlike upstream's, a nodeSelector alone does not hold a VM: it is one more condition on the other hosts. `gpus` hold
/// it like host devices: before v1.8.0 vGPUs were carried there. KubeVirt's condition LiveMigratable is not among the reasons:
/// it may pass, and a VM that KubeVirt will not move now is dealt with as the plan says (`spec.onMigrationFailure`).
#[must_use]
pub fn why_bound(vmi: &VirtualMachineInstance, hosts: &[&Node]) -> Option<Stuck> {
    if has_ended(vmi) {
        return None;
    }
    if hosts.len() == 1 {
        return Some(Stuck::SingleHost);
    }
    if holds_a_device(vmi) {
        return Some(Stuck::HoldsDevice);
    }
    (!hosts.iter().any(|node| is_target(vmi, node))).then_some(Stuck::NoTarget)
}

/// The VM cannot move.
#[must_use]
pub fn is_stuck(vmi: &VirtualMachineInstance, hosts: &[&Node]) -> bool {
    why_stuck(vmi, hosts).is_some()
}

/// The instance does not run any more: nothing of it has to leave the node.
#[must_use]
pub fn has_ended(vmi: &VirtualMachineInstance) -> bool {
    matches!(vmi.status.phase.as_deref(), Some("Succeeded" | "Failed"))
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

/// Why KubeVirt says that it cannot migrate the VM, if it says so: its reason and message, which may be empty. A condition that
/// is unknown or absent says nothing, and so does one of a VM that has ended.
#[must_use]
pub fn denial(vmi: &VirtualMachineInstance) -> Option<String> {
    const CONDITION: &str = "LiveMigratable";
    if has_ended(vmi) {
        return None;
    }
    let conditions = vmi.status.conditions.as_deref().unwrap_or_default();
    if condition_is(conditions, CONDITION) != Some(false) {
        return None;
    }
    let condition = conditions.iter().find(|condition| condition.type_ == CONDITION)?;
    let words = [&condition.reason, &condition.message].into_iter().flatten();
    let words: Vec<&str> = words.map(String::as_str).filter(|word| !word.is_empty()).collect();
    Some(words.join(": "))
}

/// Another node than its own, which is not cordoned and is what the VM's nodeSelector and node affinity ask for. Whether the
/// node has room for it is another question.
#[must_use]
pub fn is_target(vmi: &VirtualMachineInstance, node: &Node) -> bool {
    // A VM that has no node yet runs on none of them.
    let is_elsewhere = vmi.status.node_name.is_none() || node.metadata.name != vmi.status.node_name;
    is_elsewhere
        && !is_cordoned(node)
        && has_labels(node, vmi.spec.node_selector.iter().flatten())
        && matches_affinity(node, vmi.spec.affinity.as_ref())
}

/// The node carries every one of these labels.
pub fn has_labels<'a>(node: &Node, wanted: impl IntoIterator<Item = (&'a String, &'a String)>) -> bool {
    let mut wanted = wanted.into_iter();
    wanted.all(|(key, value)| label(node, key) == Some(value.as_str()))
}

/// The node is one that the required node affinity asks for, if there is any.
#[must_use]
pub fn matches_affinity(node: &Node, affinity: Option<&Affinity>) -> bool {
    let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|selector| matches_terms(node, selector))
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

/// An invalid rule matches no node.
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

/// Why a VM that is stopped is not put on the list of those to start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlisted {
    /// A user had paused it; started again, it would run.
    Paused,
    /// It serves an upgrade itself, as the repository of older releases did.
    ServesAnUpgrade,
}

impl fmt::Display for Unlisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Paused => "it is paused",
            Self::ServesAnUpgrade => "it serves an upgrade itself",
        })
    }
}

/// Why a VM is not to be started again, if it is not.
#[must_use]
pub fn unlisted(vmi: &VirtualMachineInstance) -> Option<Unlisted> {
    let conditions = vmi.status.conditions.as_deref().unwrap_or_default();
    let label = vmi.metadata.labels.as_ref().and_then(|all| all.get(labels::UPGRADE_VM));
    if condition_is(conditions, "Paused") == Some(true) {
        Some(Unlisted::Paused)
    } else if label.is_some_and(|value| !value.is_empty()) {
        Some(Unlisted::ServesAnUpgrade)
    } else {
        None
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

    #[rstest]
    #[case(json!([{"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable", "message": "PVC is not shared"}]),
        Some("KubeVirt says that it cannot be live-migrated: DisksNotLiveMigratable: PVC is not shared"))]
    #[case(json!([{"type": "LiveMigratable", "status": "False"}]), Some("KubeVirt says that it cannot be live-migrated"))]
    #[case(json!([{"type": "LiveMigratable", "status": "True"}]), None)]
    #[case(json!([{"type": "LiveMigratable", "status": "Unknown"}]), None)]
    #[case(json!([{"type": "Paused", "status": "True"}]), None)]
    #[case(json!([]), None)]
    fn what_kubevirt_will_not_migrate_is_stuck(#[case] conditions: Value, #[case] why: Option<&str>) {
        let nodes = [node("node-1", &json!({})), node("node-2", &json!({}))];
        let mut vmi = vmi(&json!({}));
        vmi.status.conditions = serde_json::from_value(conditions).unwrap();
        let found = why_stuck(&vmi, &hosts(&nodes)).map(|why| why.to_string());
        assert_eq!(found.as_deref(), why);
    }
}
