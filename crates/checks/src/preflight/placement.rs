//! Where VMs could go: the room that nodes have left, and what a VM asks for.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    foreign::kubevirt::VirtualMachineInstance,
    node::{is_cordoned, is_ready},
};
use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, Toleration};
use kube::ResourceExt;
pub(super) use rules::capacity::Room;
use rules::{
    capacity::{allocatable, launched, requests},
    migration, selector,
};

use super::{Question, missing};
use crate::finding::{Missing, needed};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// A node that VMs can move to, and the room that it has.
pub(super) struct Place<'a> {
    pub(super) node: &'a Node,
    pub(super) free: Room,
}

/// A VM that must move while its node is upgraded.
pub(super) struct Mover<'a> {
    pub(super) vmi: &'a VirtualMachineInstance,
    pub(super) node: &'a str,
    /// What its pod requests; nothing when it has none.
    pub(super) needs: Room,
    tolerations: &'a [Toleration],
    /// Nodes that its required anti-affinity excludes.
    excluded: BTreeSet<&'a str>,
}

/// Nodes and VMs of a question.
pub(super) struct Placement<'a> {
    pub(super) places: Vec<Place<'a>>,
    pub(super) movers: Vec<Mover<'a>>,
}

impl<'a> Placement<'a> {
    /// VMs that run and could move, on clusters with more than one host. Those that cannot move are the subject of admission.
    pub(super) fn of(question: &Question<'a>) -> Result<Self, Missing> {
        let nodes = needed(&question.snapshot.nodes, "nodes")?;
        let vmis = needed(&question.snapshot.vmis, "virtualmachineinstances")?;
        let hosts = migration::hosts(nodes);
        let mut moving: Vec<&VirtualMachineInstance> = Vec::new();
        if hosts.len() > 1 {
            let is_movable = |vmi: &&VirtualMachineInstance| {
                vmi.status.node_name.is_some() && !migration::has_ended(vmi) && !migration::is_stuck(vmi, &hosts)
            };
            moving = vmis.iter().filter(is_movable).collect();
        }
        if moving.is_empty() {
            return Ok(Self {
                places: Vec::new(),
                movers: Vec::new(),
            });
        }
        let pods = needed(&question.snapshot.pods, "pods")?;
        let mut taken: BTreeMap<&str, Room> = BTreeMap::new();
        let mut launchers: BTreeMap<(&str, &str, &str), &Pod> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !api::pod::has_ended(pod)) {
            let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else {
                continue;
            };
            let needs = requests(pod);
            let sum = taken.entry(node).or_default();
            (sum.cpu, sum.memory) = (sum.cpu + needs.cpu, sum.memory + needs.memory);
            if let Some(vm) = launched(pod) {
                launchers.insert((pod.metadata.namespace.as_deref().unwrap_or_default(), vm, node), pod);
            }
        }
        let mut places = Vec::new();
        for node in hosts.into_iter().filter(|node| is_ready(node) && !is_cordoned(node)) {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let Some(all) = allocatable(node) else {
                return Err(missing(
                    "nodes",
                    &format!("node {name} does not say how much it can take"),
                ));
            };
            let free = all.without(taken.get(name).copied().unwrap_or_default());
            places.push(Place { node, free });
        }
        let mut spread = Spread::new(&launchers);
        let movers = moving.into_iter().map(|vmi| {
            let node = vmi.status.node_name.as_deref().unwrap_or_default();
            let name = vmi.metadata.name.as_deref().unwrap_or_default();
            let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
            let pod = launchers.get(&(namespace, name, node)).copied();
            Mover {
                vmi,
                node,
                needs: pod.map(requests).unwrap_or_default(),
                tolerations: pod
                    .and_then(|pod| pod.spec.as_ref()?.tolerations.as_deref())
                    .unwrap_or_default(),
                excluded: spread.excluded(vmi, name),
            }
        });
        let movers = movers.collect();
        Ok(Self { places, movers })
    }
}

impl Mover<'_> {
    /// A node that the VM may run on, whether or not it has room.
    pub(super) fn may_go_to(&self, node: &Node) -> bool {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        migration::is_target(self.vmi, node) && !self.excluded.contains(name) && self.tolerates(node)
    }

    fn tolerates(&self, node: &Node) -> bool {
        let taints = node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.as_deref())
            .unwrap_or_default();
        let mut hard = taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
        hard.all(|taint| {
            self.tolerations.iter().any(|toleration| {
                let same_key = toleration
                    .key
                    .as_deref()
                    .is_none_or(|key| key.is_empty() || key == taint.key);
                let same_effect = toleration
                    .effect
                    .as_deref()
                    .is_none_or(|effect| effect.is_empty() || effect == taint.effect);
                let exists = toleration.operator.as_deref() == Some("Exists");
                let same_value =
                    toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
                same_key && same_effect && (exists || same_value)
            })
        })
    }
}

/// Which nodes have pods that VMs must keep away from. VMs of one kind mostly share their rule, so each rule is looked up once.
struct Spread<'a, 'b> {
    launchers: &'b BTreeMap<(&'a str, &'a str, &'a str), &'a Pod>,
    known: BTreeMap<String, Vec<(&'a str, &'a str)>>,
}

impl<'a, 'b> Spread<'a, 'b> {
    fn new(launchers: &'b BTreeMap<(&'a str, &'a str, &'a str), &'a Pod>) -> Self {
        Self {
            launchers,
            known: BTreeMap::new(),
        }
    }

    fn excluded(&mut self, vmi: &VirtualMachineInstance, own: &str) -> BTreeSet<&'a str> {
        let affinity = vmi
            .spec
            .affinity
            .as_ref()
            .and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let terms =
            affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_deref());
        let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
        let mut excluded = BTreeSet::new();
        for term in terms
            .unwrap_or_default()
            .iter()
            .filter(|term| term.topology_key == HOSTNAME)
        {
            let pods = self.pods(namespace, term).iter();
            excluded.extend(pods.filter(|(vm, _)| *vm != own).map(|(_, node)| *node));
        }
        excluded
    }

    /// VMs that a term is about, with their nodes.
    fn pods(&mut self, namespace: &str, term: &PodAffinityTerm) -> &[(&'a str, &'a str)] {
        let key = format!("{namespace} {}", serde_json::to_string(term).unwrap_or_default());
        let launchers = self.launchers;
        self.known.entry(key).or_insert_with(|| {
            let Some(wanted) = &term.label_selector else {
                return Vec::new();
            };
            let named = term.namespaces.as_deref().filter(|namespaces| !namespaces.is_empty());
            let in_namespace = |of: &str| named.map_or(of == namespace, |all| all.iter().any(|one| one == of));
            let matching = launchers
                .iter()
                .filter(|((of, ..), pod)| in_namespace(of) && selector::matches(wanted, pod.labels()));
            matching.map(|((_, vm, node), _)| (*vm, *node)).collect()
        })
    }
}
