//! Pods of users that a drain meets: those that a budget guards and those that use volumes; and these budgets.

use std::collections::BTreeSet;

use api::{names, pod::has_ended};
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::ResourceExt;
use rules::{capacity::launched, selector};
use serde_json::json;
use snapshot::Snapshot;
use world::{Layout, PodLayout};

use super::{all, is_named, key, labels};

/// Longhorn's own pods and budgets: the simulation has its own.
const LONGHORN_OWN: [&str; 2] = ["longhorn.io/component", "longhorn.io/instance-manager"];
/// KubeVirt's, on the pods that plug disks into VMs.
const HOTPLUG: (&str, &str) = ("kubevirt.io", "hotplug-disk");

/// Adds all pods that a drain would evict, and the budgets that do not allow it.
pub(super) fn add(snapshot: &Snapshot, nodes: &BTreeSet<String>, layout: &mut Layout) {
    let mut known = BTreeSet::new();
    let evicted: Vec<&Pod> = all(&snapshot.pods)
        .iter()
        .filter(|pod| is_evicted(pod, nodes))
        .collect();
    for budget in all(&snapshot.budgets).iter().filter(|budget| allows_nothing(budget)) {
        let guards = |pod: &&&Pod| {
            let wanted = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            pod.metadata.namespace == budget.metadata.namespace
                && wanted.is_some_and(|wanted| selector::matches(wanted, pod.labels()))
        };
        let guarded: Vec<&&Pod> = evicted.iter().filter(guards).collect();
        if guarded.is_empty() || !is_named(&budget.metadata) {
            continue;
        }
        let spec = budget.spec.clone().unwrap_or_default();
        let status = budget.status.clone().unwrap_or_default();
        layout.budgets.push(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": budget.name_any(), "namespace": budget.metadata.namespace},
            "spec": spec,
            "status": {
                "disruptionsAllowed": 0, "currentHealthy": status.current_healthy, "desiredHealthy": status.desired_healthy,
                "expectedPods": status.expected_pods, "observedGeneration": 1,
            },
        }));
        for pod in guarded {
            push(layout, &mut known, pod);
        }
    }
    for pod in evicted.iter().filter(|pod| !claims(pod).is_empty()) {
        push(layout, &mut known, pod);
    }
}

/// Pods that use nothing that the rehearsal has, and that no budget guards, change nothing.
pub(super) fn keep_those_that_matter(layout: &mut Layout) {
    let claims: BTreeSet<&(String, String)> = layout
        .volumes
        .iter()
        .filter_map(|volume| volume.claim.as_ref())
        .collect();
    let mut pods = std::mem::take(&mut layout.pods);
    pods.retain(|pod| {
        let uses = |claim: &String| claims.contains(&(pod.namespace.clone(), claim.clone()));
        let guards = |budget: &serde_json::Value| {
            let wanted = serde_json::from_value(budget["spec"]["selector"].clone()).unwrap_or_default();
            budget["metadata"]["namespace"] == pod.namespace.as_str() && selector::matches(&wanted, &pod.labels)
        };
        pod.claims.iter().any(uses) || layout.budgets.iter().any(guards)
    });
    layout.pods = pods;
}

fn push(layout: &mut Layout, known: &mut BTreeSet<(String, String)>, pod: &Pod) {
    let (namespace, name) = key(&pod.metadata);
    if !known.insert((namespace.clone(), name.clone())) {
        return;
    }
    let spec = pod.spec.as_ref();
    layout.pods.push(PodLayout {
        namespace,
        name,
        node: spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        labels: labels(pod.metadata.labels.as_ref()),
        node_selector: labels(spec.and_then(|spec| spec.node_selector.as_ref())),
        claims: claims(pod),
    });
}

fn allows_nothing(budget: &PodDisruptionBudget) -> bool {
    budget
        .status
        .as_ref()
        .is_some_and(|status| status.disruptions_allowed == 0)
}

/// A drain evicts the pod, and the rehearsal does not have it by itself.
fn is_evicted(pod: &Pod, nodes: &BTreeSet<String>) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let is_kept = owners.any(|owner| matches!(owner.kind.as_str(), "DaemonSet" | "Node" | "Job"));
    let is_longhorns = pod.metadata.namespace.as_deref() == Some(names::LONGHORN_NAMESPACE)
        && LONGHORN_OWN.iter().any(|label| pod.labels().contains_key(*label));
    node.is_some_and(|node| nodes.contains(node))
        && is_named(&pod.metadata)
        && !has_ended(pod)
        && !is_kept
        && !is_longhorns
        && launched(pod).is_none()
        && pod.labels().get(HOTPLUG.0).map(String::as_str) != Some(HOTPLUG.1)
        && !pod.annotations().contains_key("kubernetes.io/config.mirror")
}

fn claims(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone()));
    claims.filter(|claim| super::is_name(claim)).collect()
}
