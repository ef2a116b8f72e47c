//! Which node a pod or a virtual machine goes to: the scheduler's filters, then the least loaded node.
//!
//! Pods are created with their node already chosen; there is no separate binding step.

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, PodSpec, Taint, Toleration};

use crate::context::{Context, is_ready};

/// The fitting node with the least load, ties by name. Of a pod that already names its node, that one.
pub(crate) fn pick(world: &Context, spec: &PodSpec, load: impl Fn(&str) -> usize) -> Option<String> {
    if let Some(node) = &spec.node_name {
        return Some(node.clone());
    }
    let fitting = world.nodes.select(|node| fits(node, spec));
    let names = fitting.iter().filter_map(|node| node.metadata.name.clone());
    names.min_by_key(|name| (load(name), name.len(), name.clone()))
}

/// A pod may run on the node.
pub(crate) fn fits(node: &Node, spec: &PodSpec) -> bool {
    is_ready(node) && tolerates(node, spec) && matches_selector(node, spec) && matches_affinity(node, spec)
}

fn tolerates(node: &Node, spec: &PodSpec) -> bool {
    let empty = Vec::new();
    let tolerations = spec.tolerations.as_ref().unwrap_or(&empty);
    let node_spec = node.spec.as_ref();
    let unschedulable = node_spec
        .and_then(|spec| spec.unschedulable)
        .unwrap_or_default()
        .then(|| Taint {
            key: "node.kubernetes.io/unschedulable".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Default::default()
        });
    let taints = node_spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints
        .iter()
        .chain(unschedulable.as_ref())
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .all(|taint| tolerations.iter().any(|toleration| is_tolerated(taint, toleration)))
}

fn is_tolerated(taint: &Taint, toleration: &Toleration) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    (key.is_empty() || key == taint.key)
        && (effect.is_empty() || effect == taint.effect)
        && (toleration.operator.as_deref() == Some("Exists") || toleration.value == taint.value)
}

fn matches_selector(node: &Node, spec: &PodSpec) -> bool {
    let wanted = spec.node_selector.iter().flatten();
    let labels = node.metadata.labels.as_ref();
    wanted
        .into_iter()
        .all(|(key, value)| labels.is_some_and(|labels| labels.get(key) == Some(value)))
}

fn matches_affinity(node: &Node, spec: &PodSpec) -> bool {
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|selector| matches_node_selector(node, selector))
}

/// Terms are alternatives; within a term all must hold; an empty term matches nothing.
pub(crate) fn matches_node_selector(node: &Node, selector: &NodeSelector) -> bool {
    let labels = |key: &str| {
        node.metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(key))
            .cloned()
    };
    let fields = |key: &str| (key == "metadata.name").then(|| node.metadata.name.clone()).flatten();
    selector.node_selector_terms.iter().any(|term| {
        let expressions = term.match_expressions.as_deref().unwrap_or_default();
        let by_field = term.match_fields.as_deref().unwrap_or_default();
        (!expressions.is_empty() || !by_field.is_empty())
            && expressions.iter().all(|rule| holds(rule, labels(&rule.key).as_deref()))
            && by_field.iter().all(|rule| holds(rule, fields(&rule.key).as_deref()))
    })
}

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
