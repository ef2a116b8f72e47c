//! Nodes of a snapshot: roles, sizes, machines, disks, and what is taken there.

use std::collections::BTreeMap;

use api::{
    annotations, labels,
    node::{is_cordoned, is_ready},
    pod::has_ended,
};
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::api::resource::Quantity};
use kube::ResourceExt;
use rules::{
    capacity::{Room, launched, requests},
    quantity::amount,
    room::Disk,
};
use snapshot::Snapshot;
use world::{NodeLayout, VmLayout};

use super::{all, is_named, listed};

/// Rancher's, on the plan Secret of the machine that the cluster began with.
const INIT_NODE: &str = "rke.cattle.io/init-node";
/// Taints that pass: a drain's, and those that Kubernetes sets by itself.
const PASSING: [&str; 3] = [
    labels::DRAIN_TAINT,
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
];

pub(super) fn nodes(
    snapshot: &Snapshot,
    running: &BTreeMap<(String, String), VmLayout>,
    assumed: &mut Vec<String>,
    unknown: &mut Vec<String>,
) -> Vec<NodeLayout> {
    let (named, unnamed): (Vec<&Node>, Vec<&Node>) =
        all(&snapshot.nodes).iter().partition(|node| is_named(&node.metadata));
    if !unnamed.is_empty() {
        unknown.push(format!(
            "{} nodes have names that Kubernetes does not allow: they are left out.",
            unnamed.len()
        ));
    }
    let down: Vec<&str> = named
        .iter()
        .filter(|node| !is_ready(node) || is_cordoned(node))
        .filter_map(|node| node.metadata.name.as_deref())
        .collect();
    if !down.is_empty() {
        assumed.push(format!(
            "Nodes {} are ready and uncordoned when the upgrade begins. In the snapshot they are not.",
            listed(&down)
        ));
    }
    let taken = taken(snapshot, running);
    let first = first(snapshot, &named);
    let layout = named.iter().enumerate().map(|(index, node)| {
        let name = node.name_any();
        NodeLayout {
            machine: machine(snapshot, node),
            is_first: first.as_deref() == Some(&name),
            labels: node_labels(node),
            taints: node
                .spec
                .iter()
                .flat_map(|spec| spec.taints.iter().flatten())
                .filter(|taint| !PASSING.iter().any(|passing| taint.key.starts_with(passing)))
                .cloned()
                .collect(),
            address: address(node, index),
            capacity: amounts(node.status.as_ref().and_then(|status| status.capacity.as_ref())),
            allocatable: amounts(node.status.as_ref().and_then(|status| status.allocatable.as_ref())),
            taken: taken.get(name.as_str()).copied().unwrap_or_default(),
            disk: disk(snapshot, &name),
            name,
        }
    });
    layout.collect()
}

fn node_labels(node: &Node) -> BTreeMap<String, String> {
    let mut kept = super::labels(node.metadata.labels.as_ref());
    // What earlier upgrades have left would make the simulated controllers skip the node.
    kept.retain(|key, _| !key.starts_with(labels::SUC_NODE_PLAN_PREFIX));
    kept
}

/// The machine of a node. Without one it gets a name, and the order of nodes may be another one.
fn machine(snapshot: &Snapshot, node: &Node) -> String {
    let name = node.name_any();
    let noted = node.annotations().get(annotations::MACHINE).cloned();
    let by_reference = || {
        let mut machines = all(&snapshot.machines).iter();
        let found = machines.find(|machine| {
            let reference = machine.status.node_ref.as_ref();
            reference.and_then(|reference| reference.name.as_deref()) == Some(&name)
        });
        found.and_then(|machine| machine.metadata.name.clone())
    };
    let found = noted.or_else(by_reference).filter(|machine| super::is_name(machine));
    found.unwrap_or_else(|| format!("custom-{name}"))
}

/// The node that the cluster began with: its machine says so, or it is the oldest of the control plane.
fn first(snapshot: &Snapshot, nodes: &[&Node]) -> Option<String> {
    let plans = all(&snapshot.machine_plans).iter();
    let mut marked = plans.filter(|secret| secret.label(INIT_NODE) == Some("true"));
    let machine = marked.find_map(|secret| secret.label(labels::MACHINE_NAME));
    let by_machine = machine.and_then(|wanted| {
        let mut nodes = nodes.iter();
        nodes.find(|node| super::nodes::machine(snapshot, node) == wanted)
    });
    let is_server = |node: &&&Node| {
        node.labels().contains_key(labels::CONTROL_PLANE) && !node.labels().contains_key(labels::WITNESS)
    };
    let oldest = || {
        let servers = nodes.iter().filter(is_server);
        servers.min_by_key(|node| {
            let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (created, node.metadata.name.clone())
        })
    };
    by_machine
        .or_else(oldest)
        .or_else(|| nodes.first())
        .map(|node| node.name_any())
}

fn address(node: &Node, index: usize) -> String {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let mut internal = addresses.filter(|address| address.type_ == "InternalIP");
    let found = internal.find(|address| address.address.parse::<std::net::Ipv4Addr>().is_ok());
    found.map_or_else(
        || format!("192.0.{}.{}", index / 200 % 256, 10 + index % 200),
        |address| address.address.clone(),
    )
}

fn amounts(of: Option<&BTreeMap<String, Quantity>>) -> BTreeMap<String, String> {
    let amounts = of.into_iter().flatten();
    amounts
        .filter(|(key, quantity)| key.is_ascii() && amount(quantity).is_some())
        .map(|(key, quantity)| (key.clone(), quantity.0.clone()))
        .collect()
}

/// What pods request on each node, but for those of VMs that the rehearsal runs itself.
fn taken<'a>(snapshot: &'a Snapshot, running: &BTreeMap<(String, String), VmLayout>) -> BTreeMap<&'a str, Room> {
    let mut taken: BTreeMap<&str, Room> = BTreeMap::new();
    for pod in all(&snapshot.pods).iter().filter(|pod| !has_ended(pod)) {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        if launched(pod).is_some_and(|vm| running.contains_key(&(namespace, vm.to_owned()))) {
            continue;
        }
        if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
            let sum = taken.entry(node).or_default();
            *sum = sum.and(requests(pod));
        }
    }
    taken
}

fn disk(snapshot: &Snapshot, node: &str) -> Option<Disk> {
    let disk = snapshot.kubelet_disks.get(node)?.as_ref().ok()?;
    Some(Disk {
        capacity_bytes: disk.capacity_bytes,
        used_bytes: disk.used_bytes,
        threshold_percent: disk.image_gc_high_threshold_percent,
    })
}
