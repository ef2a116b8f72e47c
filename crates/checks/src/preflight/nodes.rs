//! Nodes: what their kubelets and Harvester say about them.

use std::collections::{BTreeMap, BTreeSet};

use api::{labels, node::is_witness, quoted::quoted};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::Value;

use super::{Found, Question, found::together};
use crate::finding::{Missing, ObjectRef, needed};

const PRESSURES: [&str; 4] = ["DiskPressure", "MemoryPressure", "PIDPressure", "NetworkUnavailable"];
/// Harvester's, on a node: whether its clock is synchronised, as JSON.
const NTP: &str = "node.harvesterhci.io/ntp-service";

pub(super) fn have_no_pressure(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let nodes = needed(&question.snapshot.nodes, "nodes")?;
    let pressed = nodes.iter().filter_map(|node| {
        let conditions = node.status.as_ref()?.conditions.as_deref()?.iter();
        let pressed: Vec<&str> = conditions
            .filter(|condition| PRESSURES.contains(&condition.type_.as_str()) && condition.status == "True")
            .map(|condition| condition.type_.as_str())
            .collect();
        let text = format!("node {} reports {}", node.name_any(), pressed.join(", "));
        (!pressed.is_empty()).then(|| Found::of(node, text))
    });
    Ok(pressed.collect())
}

pub(super) fn have_one_witness(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let nodes = needed(&question.snapshot.nodes, "nodes")?;
    let witnesses: Vec<&Node> = nodes.iter().filter(|node| is_witness(node)).collect();
    let mut found = Vec::new();
    if witnesses.len() > 1 {
        found.extend(together(
            "a cluster has at most one witness, this one has more",
            &witnesses,
        ));
    }
    let untainted: Vec<&Node> = witnesses.into_iter().filter(|node| !keeps_pods_off(node)).collect();
    let text = format!("witnesses lack the taint {}=true:NoExecute", labels::ETCD);
    found.extend(together(&text, &untainted));
    Ok(found)
}

fn keeps_pods_off(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    taints
        .unwrap_or_default()
        .iter()
        .any(|taint| taint.key == labels::ETCD && taint.effect == "NoExecute")
}

pub(super) fn have_synchronised_clocks(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let nodes = needed(&question.snapshot.nodes, "nodes")?;
    let wrong = nodes.iter().filter_map(|node| {
        let text = node.annotations().get(NTP)?;
        let status: Value = serde_json::from_str(text).ok()?;
        let status = status.get("ntpSyncStatus")?.as_str()?;
        let text = format!(
            "the clock of node {} is not synchronised: NTP is {}",
            node.name_any(),
            quoted(status)
        );
        (status != "synced").then(|| Found::of(node, text))
    });
    Ok(wrong.collect())
}

/// Nodes of different versions are what an upgrade that was not completed leaves.
pub(super) fn run_the_same_version(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let nodes = needed(&question.snapshot.nodes, "nodes")?;
    if question.is_upgrading()? {
        return Ok(Vec::new());
    }
    let info = |node: &Node| node.status.as_ref().and_then(|status| status.node_info.clone());
    let mut kubelets: BTreeMap<String, Vec<&Node>> = BTreeMap::new();
    let mut systems: BTreeMap<String, Vec<&Node>> = BTreeMap::new();
    for node in nodes {
        if let Some(info) = info(node) {
            kubelets.entry(info.kubelet_version).or_default().push(node);
            systems.entry(info.os_image).or_default().push(node);
        }
    }
    let found = [
        ("kubelets of different versions", kubelets),
        ("different operating systems", systems),
    ]
    .into_iter()
    .filter(|(_, versions)| versions.len() > 1)
    .map(|(what, versions)| {
        let texts = versions
            .iter()
            .map(|(version, nodes)| format!("{} on {}", quoted(version), nodes.len()));
        let text = format!("nodes run {what}: {}", texts.collect::<Vec<_>>().join(", "));
        // Those that differ from most are the ones to look at.
        let most = versions.values().map(Vec::len).max().unwrap_or_default();
        let few = versions.values().filter(|nodes| nodes.len() < most).flatten();
        let few: BTreeSet<ObjectRef> = few.map(|node| ObjectRef::of(*node)).collect();
        Found::new(text).about(few)
    });
    Ok(found.collect())
}

/// Harvester does not know a node that is being added or removed.
pub(super) fn none_is_leaving(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let nodes = needed(&question.snapshot.nodes, "nodes")?;
    let leaving: Vec<&Node> = nodes
        .iter()
        .filter(|node| node.metadata.deletion_timestamp.is_some())
        .collect();
    Ok(together("nodes are being deleted", &leaving))
}

/// Maintenance mode of Harvester keeps VMs off a node.
pub(super) fn none_is_in_maintenance(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    const MAINTENANCE: &str = "harvesterhci.io/maintain-status";
    let nodes = needed(&question.snapshot.nodes, "nodes")?;
    let found = nodes.iter().filter_map(|node| {
        let status = node
            .annotations()
            .get(MAINTENANCE)
            .filter(|status| !status.is_empty())?;
        let text = format!("node {} is in maintenance mode ({})", node.name_any(), quoted(status));
        Some(Found::of(node, text))
    });
    Ok(found.collect())
}
