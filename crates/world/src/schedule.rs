//! Which node a pod or a virtual machine goes to: the scheduler's filters, then the least loaded node.
//!
//! Pods are created with their node already chosen; there is no separate binding step.

use api::node::is_ready;
use k8s_openapi::api::core::v1::{Node, PodSpec, Taint, Toleration};
use rules::migration::{has_labels, matches_affinity};

use crate::context::Context;

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
    is_ready(node)
        && tolerates(node, spec)
        && has_labels(node, spec.node_selector.iter().flatten())
        && matches_affinity(node, spec.affinity.as_ref())
}

/// A pod of a DaemonSet belongs on the node, whether it is ready, cordoned or neither.
pub(crate) fn may_run_daemon(node: &Node, spec: &PodSpec) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let blocking = taints.unwrap_or_default().iter();
    let mut blocking = blocking.filter(|taint| !taint.key.starts_with("node.kubernetes.io/"));
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    blocking.all(|taint| tolerations.iter().any(|toleration| is_tolerated(taint, toleration)))
        && has_labels(node, spec.node_selector.iter().flatten())
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
