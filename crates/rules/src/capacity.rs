//! Processors and memory: what nodes can take, and what pods request. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::ResourceExt;

use crate::quantity::{amount, gib};

/// KubeVirt's, on the pods that VMs run in.
const LAUNCHER: (&str, &str) = ("kubevirt.io", "virt-launcher");
/// The same: the name of the VM. Long names are cut there, so the owner comes first.
const VM_NAME: &str = "vm.kubevirt.io/name";

/// Processors and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Room {
    /// Processors.
    pub cpu: f64,
    /// Bytes.
    pub memory: f64,
}

impl Room {
    /// There is enough of the other for this.
    #[must_use]
    pub fn fits(self, other: Self) -> bool {
        self.cpu <= other.cpu && self.memory <= other.memory
    }

    /// What is left of it.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            cpu: self.cpu - other.cpu,
            memory: self.memory - other.memory,
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            memory: self.memory + other.memory,
        }
    }

    /// As people read it.
    #[must_use]
    pub fn text(self) -> String {
        format!("{:.1} CPUs, {}", self.cpu, gib(self.memory))
    }
}

/// The VM that a pod runs.
#[must_use]
pub fn launched(pod: &Pod) -> Option<&str> {
    if pod.labels().get(LAUNCHER.0).map(String::as_str) != Some(LAUNCHER.1) {
        return None;
    }
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.kind == "VirtualMachineInstance");
    owner
        .map(|owner| owner.name.as_str())
        .or_else(|| pod.labels().get(VM_NAME).map(String::as_str))
}

/// What a pod requests: its containers together, or its largest init container.
#[must_use]
pub fn requests(pod: &Pod) -> Room {
    let Some(spec) = &pod.spec else {
        return Room::default();
    };
    let read = |resources: Option<&BTreeMap<String, Quantity>>, name: &str| {
        resources.and_then(|map| amount(map.get(name)?)).unwrap_or(0.0)
    };
    let of = |name: &str| {
        let sum: f64 = spec
            .containers
            .iter()
            .map(|container| read(container.resources.as_ref().and_then(|all| all.requests.as_ref()), name))
            .sum();
        let first = spec.init_containers.iter().flatten();
        let first =
            first.map(|container| read(container.resources.as_ref().and_then(|all| all.requests.as_ref()), name));
        first.fold(sum, f64::max) + read(spec.overhead.as_ref(), name)
    };
    Room {
        cpu: of("cpu"),
        memory: of("memory"),
    }
}

/// What a node can take, if it says so.
#[must_use]
pub fn allocatable(node: &Node) -> Option<Room> {
    let all = node.status.as_ref()?.allocatable.as_ref()?;
    Some(Room {
        cpu: amount(all.get("cpu")?)?,
        memory: amount(all.get("memory")?)?,
    })
}
