//! The Rancher cluster and its machines: ready, running, one per node.

use api::{UpgradePlan, annotations, foreign::capi::Machine, labels, names};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::{Cluster, FieldError};

use super::{SPEC, all, full_name, takes_over, within};

pub(super) fn cluster_is_ready(_: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let clusters = within(&cluster.rancher_clusters, "clusters", names::FLEET_NAMESPACE)?;
    let local = clusters.iter().find(|found| found.name_any() == names::LOCAL_CLUSTER);
    let why = match local {
        None => "cluster not found",
        Some(local) if local.status.ready != Some(true) && !takes_over(cluster) => "cluster is not ready",
        Some(_) => return Ok(Vec::new()),
    };
    Ok(vec![FieldError::forbidden(SPEC, why)])
}

fn machines(cluster: &Cluster) -> Result<Vec<&Machine>, FieldError> {
    within(&cluster.machines, "machines", names::FLEET_NAMESPACE)
}

pub(super) fn are_running(_: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let machines = machines(cluster)?.into_iter();
    let stopped = machines.filter(|machine| machine.status.phase.as_deref() != Some("Running"));
    let errors = stopped.map(|machine| {
        let why = format!("machine {} is not running", full_name(machine));
        FieldError::forbidden(SPEC, why)
    });
    Ok(errors.collect())
}

pub(super) fn are_paired_with_nodes(_: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let nodes = all(&cluster.nodes, "nodes")?;
    let machines = machines(cluster)?;
    if nodes.is_empty() {
        return Ok(vec![FieldError::forbidden(SPEC, "no nodes found in the cluster")]);
    }
    let mut wrong = Vec::new();
    if nodes.len() != machines.len() {
        wrong.push(format!(
            "node count ({}) does not match machine count ({})",
            nodes.len(),
            machines.len()
        ));
    }
    for machine in &machines {
        if machine.status.node_ref.is_none() {
            wrong.push(format!("machine {} has no node reference", full_name(*machine)));
        }
    }
    wrong.extend(nodes.iter().filter_map(|node| unpaired(node, &machines)));
    Ok(wrong.into_iter().map(|why| FieldError::forbidden(SPEC, why)).collect())
}

/// Why the node has no machine of its own; the first reason only.
fn unpaired(node: &Node, machines: &[&Machine]) -> Option<String> {
    let name = node.name_any();
    if !api::node::is_managed(node) {
        return Some(format!("node \"{name}\" is missing {} label", labels::MANAGED));
    }
    let Some(wanted) = node.annotations().get(annotations::MACHINE) else {
        return Some(format!(
            "node \"{name}\" is missing {} annotation",
            annotations::MACHINE
        ));
    };
    let Some(machine) = machines.iter().find(|machine| machine.name_any() == *wanted) else {
        return Some(format!(
            "node \"{name}\" references machine \"{wanted}\" which does not exist"
        ));
    };
    // A machine without a reference has been reported already.
    let reference = machine.status.node_ref.as_ref()?;
    let referenced = reference.name.as_deref().unwrap_or_default();
    (referenced != name)
        .then(|| format!("machine \"{wanted}\" NodeRef.Name \"{referenced}\" does not match node \"{name}\""))
}
