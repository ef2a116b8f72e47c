//! Room for VMs in a cluster that was seen: processors and memory that their pods request, and which VMs keep away from each
//! other. Generated clusters have room for all.

use std::collections::BTreeMap;

use api::foreign::kubevirt::{VirtualMachineInstance, VirtualMachineInstanceSpec};
use k8s_openapi::api::core::v1::{Node, PodAffinityTerm};
use rules::{
    capacity::{Room, allocatable},
    selector,
};

use crate::{cluster::layout::Layout, context::Context, inbox::Key};

/// The only topology that VMs of a Harvester are spread by.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// What nodes have left, and who is there.
pub(crate) struct Rooms<'a> {
    layout: &'a Layout,
    /// What VMs request, by node.
    taken: BTreeMap<String, Room>,
    /// Nodes that the VM may not share with those that are there.
    excluded: Vec<String>,
    needs: Room,
}

impl<'a> Rooms<'a> {
    /// For a VM that is to go somewhere; nothing in a generated cluster.
    pub(crate) fn for_vm(world: &'a Context, vm: &Key, spec: &VirtualMachineInstanceSpec) -> Option<Self> {
        let layout = world.shape.layout.as_deref()?;
        let own = world.vmis.at(vm);
        let labels = own.as_ref().and_then(|own| own.metadata.labels.clone());
        let labels = labels.or_else(|| layout.vms.get(vm).map(|vm| vm.labels.clone()));
        let labels = labels.unwrap_or_default();
        let mut taken: BTreeMap<String, Room> = BTreeMap::new();
        let mut excluded = Vec::new();
        let wanted = terms(spec);
        for other in world.vmis.list() {
            let key = (
                other.metadata.namespace.clone().unwrap_or_default(),
                other.metadata.name.clone().unwrap_or_default(),
            );
            if key == *vm {
                continue;
            }
            let needs = layout.vms.get(&key).map(|vm| vm.needs).unwrap_or_default();
            let places = places(&other);
            for node in &places {
                let sum = taken.entry(node.clone()).or_default();
                *sum = sum.and(needs);
            }
            let theirs = other.metadata.labels.clone().unwrap_or_default();
            // The scheduler obeys the rules of both.
            let keeps_away = wanted.iter().any(|term| is_about(term, &vm.0, &key.0, &theirs))
                || terms(&other.spec)
                    .iter()
                    .any(|term| is_about(term, &key.0, &vm.0, &labels));
            if keeps_away {
                excluded.extend(places);
            }
        }
        let needs = layout.vms.get(vm).map(|vm| vm.needs).unwrap_or_default();
        Some(Self {
            layout,
            taken,
            excluded,
            needs,
        })
    }

    /// The node has room for the VM.
    pub(crate) fn fits(&self, node: &Node) -> bool {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let mut known = self.layout.nodes.iter();
        let others = known
            .find(|node| node.name == name)
            .map(|node| node.taken)
            .unwrap_or_default();
        let vms = self.taken.get(name).copied().unwrap_or_default();
        // A node that does not say what it can take is taken at its word.
        let has_room = allocatable(node).is_none_or(|all| self.needs.fits(all.without(others).without(vms)));
        has_room && !self.excluded.iter().any(|excluded| excluded == name)
    }
}

/// Where an instance is, and where it is about to be.
fn places(vmi: &VirtualMachineInstance) -> Vec<String> {
    let target = vmi.status.migration_state.as_ref();
    let target = target.filter(|state| state.completed != Some(true));
    let target = target.and_then(|state| state.target_node.clone());
    vmi.status.node_name.iter().cloned().chain(target).collect()
}

/// Whom the VM must not share a node with.
fn terms(spec: &VirtualMachineInstanceSpec) -> &[PodAffinityTerm] {
    let affinity = spec.affinity.as_ref();
    let away = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let terms = away.and_then(|away| away.required_during_scheduling_ignored_during_execution.as_deref());
    terms.unwrap_or_default()
}

/// The term of a VM in one namespace is about one with these labels in the other.
fn is_about(term: &PodAffinityTerm, of: &str, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
    let named = term.namespaces.as_deref().filter(|names| !names.is_empty());
    let in_namespace = named.map_or(of == namespace, |names| names.iter().any(|name| name == namespace));
    let wanted = term.label_selector.as_ref();
    term.topology_key == HOSTNAME && in_namespace && wanted.is_some_and(|wanted| selector::matches(wanted, labels))
}
