//! Nodes: ready, schedulable, and those to pause exist.

use api::{
    UpgradePlan,
    node::{is_cordoned, is_ready},
};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::{Cluster, FieldError};

use super::{SPEC, all, takes_over};

const PAUSE_NODES: &str = "spec.nodeUpgradeOption.pauseNodes";

pub(super) fn are_ready(_: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let mut errors = Vec::new();
    // Rancher keeps what it drains cordoned until another plan goes on, whoever uncordons it. Mostly that is one node, but it
    // lets machines past its limit that were never well.
    let may_be_cordoned = takes_over(cluster);
    for node in all(&cluster.nodes, "nodes")? {
        let name = node.name_any();
        if !is_ready(node) {
            errors.push(FieldError::forbidden(SPEC, format!("node \"{name}\" is not Ready")));
        }
        if !may_be_cordoned && is_cordoned(node) {
            errors.push(FieldError::forbidden(SPEC, format!("node \"{name}\" is unschedulable")));
        }
    }
    Ok(errors)
}

pub(super) fn to_pause_exist(plan: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    exist(&paused(plan).iter().enumerate().collect::<Vec<_>>(), cluster)
}

fn paused(plan: &UpgradePlan) -> &[String] {
    let option = plan.spec.node_upgrade_option.as_ref();
    option
        .and_then(|option| option.pause_nodes.as_deref())
        .unwrap_or_default()
}

/// Names that the new plan pauses and the old one did not, with their places in the list.
pub(super) fn newly_paused<'a>(old: &UpgradePlan, new: &'a UpgradePlan) -> Vec<(usize, &'a String)> {
    let names = paused(new).iter().enumerate();
    names.filter(|(_, name)| !paused(old).contains(name)).collect()
}

/// What is wrong with names of nodes at places of the list.
pub(super) fn exist(names: &[(usize, &String)], cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let nodes = all(&cluster.nodes, "nodes").map_err(|error| FieldError::internal(PAUSE_NODES, error.detail))?;
    let unknown = names
        .iter()
        .filter(|(_, name)| !nodes.iter().any(|node| node.name_any() == **name));
    let errors = unknown.map(|(index, name)| FieldError::not_found(&format!("{PAUSE_NODES}[{index}]"), name));
    Ok(errors.collect())
}
