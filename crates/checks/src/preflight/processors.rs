//! Processors: a VM that has the model of its node can move only to nodes that offer the same model and features.

use std::collections::BTreeMap;

use api::foreign::kubevirt::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use rules::migration;

use super::{Found, Question, found::listed, full_name};
use crate::finding::{Missing, ObjectRef, needed};

/// KubeVirt's, on a node: the model that VMs with `host-model` get there.
const HOST_MODEL: &str = "host-model-cpu.node.kubevirt.io/";
/// The features that these VMs then need.
const REQUIRED: &str = "host-model-required-features.node.kubevirt.io/";
/// The models with which a VM can be migrated to the node.
const ACCEPTED: &str = "cpu-model-migration.node.kubevirt.io/";
/// The features that the node offers.
const FEATURE: &str = "cpu-feature.node.kubevirt.io/";

pub(super) fn are_alike(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let nodes = needed(&question.snapshot.nodes, "nodes")?;
    let vmis = needed(&question.snapshot.vmis, "virtualmachineinstances")?;
    let hosts = migration::hosts(nodes);
    if hosts.len() < 2 {
        return Ok(Vec::new());
    }
    let mut by_node: BTreeMap<&str, Vec<&VirtualMachineInstance>> = BTreeMap::new();
    for vmi in vmis
        .iter()
        .filter(|vmi| has_host_model(vmi) && !migration::has_ended(vmi))
    {
        if let Some(node) = vmi.status.node_name.as_deref() {
            by_node.entry(node).or_default().push(vmi);
        }
    }
    let found = by_node.into_iter().filter_map(|(name, vmis)| {
        let node = hosts.iter().find(|node| node.metadata.name.as_deref() == Some(name))?;
        let wanted = wanted(node);
        let others = hosts
            .iter()
            .filter(|other| other.metadata.name.as_deref() != Some(name));
        let is_offered = |other: &Node| {
            wanted
                .iter()
                .all(|label| other.labels().get(label).is_some_and(|value| value == "true"))
        };
        let mut others = others.peekable();
        let lonely = !wanted.is_empty() && others.peek().is_some() && !others.any(|other| is_offered(other));
        lonely.then(|| {
            let names = vmis.iter().map(|vmi| full_name(*vmi)).collect();
            let text = format!(
                "VMs with the processor of node {name} find no other node with its model and features: {}",
                listed(names)
            );
            Found::of(*node, text).about(vmis.iter().map(|vmi| ObjectRef::of(*vmi)))
        })
    });
    Ok(found.collect())
}

/// Without a model a VM has the default of KubeVirt, which Harvester leaves at `host-model`.
fn has_host_model(vmi: &VirtualMachineInstance) -> bool {
    let cpu = vmi.spec.domain.as_ref().and_then(|domain| domain.cpu.as_ref());
    let model = cpu.and_then(|cpu| cpu.model.as_deref()).unwrap_or_default();
    model.is_empty() || model == "host-model"
}

/// The labels that a target must have for VMs with the model of a node.
fn wanted(node: &Node) -> Vec<String> {
    let is_true = node.labels().iter().filter(|(_, value)| value.as_str() == "true");
    is_true
        .filter_map(|(key, _)| {
            let model = key.strip_prefix(HOST_MODEL).map(|model| format!("{ACCEPTED}{model}"));
            model.or_else(|| key.strip_prefix(REQUIRED).map(|feature| format!("{FEATURE}{feature}")))
        })
        .collect()
}
