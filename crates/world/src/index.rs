//! What objects are found by besides their names: a text per question that an actor asks again and again. With thousands of
//! objects, no actor may go through all of a kind on every event. [`crate::watched::Watched::found`] reads it.

use api::foreign::{
    kubevirt::{VirtualMachineInstance, VirtualMachineInstanceMigration},
    longhorn::Replica,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use rules::evacuation::is_over;

use crate::{
    cluster::vms,
    context::{label, node_of, owner},
    inbox::Key,
};

/// Migrations that are not over.
pub(crate) const ACTIVE: &str = "active";
/// Migrations that failed.
pub(crate) const FAILED: &str = "failed";
/// Nodes that take no pods.
pub(crate) const CORDONED: &str = "cordoned";

/// What is on a node.
pub(crate) fn on(node: &str) -> String {
    format!("on {node}")
}

/// Instances that move to a node.
pub(crate) fn bound_for(node: &str) -> String {
    format!("to {node}")
}

/// Copies of volumes on a node that do not run.
pub(crate) fn lost_on(node: &str) -> String {
    format!("lost on {node}")
}

/// What belongs to an instance.
pub(crate) fn of_instance(key: &Key) -> String {
    format!("of instance {}/{}", key.0, key.1)
}

/// Pods of a Deployment.
pub(crate) fn of_deployment(key: &Key) -> String {
    format!("of deployment {}/{}", key.0, key.1)
}

/// Of a kind that is found by its names alone.
pub(crate) fn none<K>(_: &K) -> Vec<String> {
    Vec::new()
}

pub(crate) fn node(node: &Node) -> Vec<String> {
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    is_cordoned.then(|| CORDONED.to_owned()).into_iter().collect()
}

pub(crate) fn pod(pod: &Pod) -> Vec<String> {
    let namespace = || pod.metadata.namespace.clone().unwrap_or_default();
    let mut found = vec![on(node_of(pod))];
    found.extend(label(&pod.metadata, vms::VM_LABEL).map(|vm| of_instance(&(namespace(), vm.to_owned()))));
    // A ReplicaSet is named after its Deployment.
    let set = owner(&pod.metadata, "ReplicaSet").map(|owner| owner.name.as_str());
    let deployment = set.map(|set| set.rsplit_once('-').map_or(set, |(deployment, _)| deployment));
    found.extend(deployment.map(|name| of_deployment(&(namespace(), name.to_owned()))));
    found
}

pub(crate) fn instance(vmi: &VirtualMachineInstance) -> Vec<String> {
    let mut found = vec![on(vmi.status.node_name.as_deref().unwrap_or_default())];
    let moves = vmi.status.migration_state.as_ref();
    let moves = moves.filter(|state| state.completed != Some(true));
    found.extend(moves.map(|state| bound_for(state.target_node.as_deref().unwrap_or_default())));
    found
}

pub(crate) fn migration(migration: &VirtualMachineInstanceMigration) -> Vec<String> {
    let namespace = migration.metadata.namespace.clone().unwrap_or_default();
    let vmi = migration.spec.vmi_name.clone().unwrap_or_default();
    let mut found = vec![of_instance(&(namespace, vmi))];
    if !is_over(migration) {
        found.push(ACTIVE.to_owned());
    }
    if migration.status.phase.as_deref() == Some("Failed") {
        found.push(FAILED.to_owned());
    }
    found
}

pub(crate) fn replica(replica: &Replica) -> Vec<String> {
    let node = replica.spec.node_id.as_deref().unwrap_or_default();
    let mut found = vec![on(node)];
    if replica.status.current_state.as_deref() != Some("running") {
        found.push(lost_on(node));
    }
    found
}
