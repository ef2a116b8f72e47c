//! A cluster that was seen, as far as the simulated one can be like it: nodes with their sizes, VMs, volumes with their replicas,
//! pods and budgets of users, addons, settings. Plain values, filled in by the caller.

use std::collections::BTreeMap;

use api::labels;
use k8s_openapi::api::core::v1::Taint;
use rules::{capacity::Room, room::Disk};
use serde_json::Value;

/// Namespace and name.
pub type Name = (String, String);

/// A cluster that was seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// Its nodes.
    pub nodes: Vec<NodeLayout>,
    /// Its running VMs.
    pub vms: BTreeMap<Name, VmLayout>,
    /// Its Longhorn volumes.
    pub volumes: Vec<VolumeLayout>,
    /// Pods of users that a drain meets: those that a budget guards or that use a volume.
    pub pods: Vec<PodLayout>,
    /// Budgets that guard them, as Kubernetes has them, with their status.
    pub budgets: Vec<Value>,
    /// Addons, and whether they are enabled.
    pub addons: BTreeMap<Name, bool>,
    /// Values of Harvester's settings.
    pub settings: BTreeMap<String, String>,
    /// Values of Longhorn's settings.
    pub longhorn_settings: BTreeMap<String, String>,
    /// `spec.configuration.migrations` of KubeVirt.
    pub migrations: Option<Value>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeLayout {
    /// Its name.
    pub name: String,
    /// The name of its machine. Rancher goes by the names of machines.
    pub machine: String,
    /// The cluster began with it.
    pub is_first: bool,
    /// Its labels, among them its roles.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Its address.
    pub address: String,
    /// What it has.
    pub capacity: BTreeMap<String, String>,
    /// What pods can have of it.
    pub allocatable: BTreeMap<String, String>,
    /// What pods request there that are not part of the simulation.
    pub taken: Room,
    /// What its kubelet says of its disk.
    pub disk: Option<Disk>,
}

impl NodeLayout {
    fn has(&self, label: &str) -> bool {
        self.labels.contains_key(label)
    }

    pub(super) fn is_witness(&self) -> bool {
        self.has(labels::WITNESS)
    }

    pub(super) fn is_control_plane(&self) -> bool {
        self.has(labels::CONTROL_PLANE)
    }

    pub(super) fn is_etcd(&self) -> bool {
        self.has(labels::ETCD)
    }
}

/// A VM that runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmLayout {
    /// Its node.
    pub node: String,
    /// Labels of its instance.
    pub labels: BTreeMap<String, String>,
    /// What KubeVirt was asked for: the specification of its instance.
    pub spec: Value,
    /// Why KubeVirt says that it cannot be migrated: reason and message.
    pub immovable: Option<(String, String)>,
    /// A user paused it.
    pub is_paused: bool,
    /// What its pod requests.
    pub needs: Room,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeLayout {
    /// Its name.
    pub name: String,
    /// Namespace and name of its claim.
    pub claim: Option<Name>,
    /// Bytes.
    pub bytes: u64,
    /// How many copies are wanted.
    pub wanted: usize,
    /// The nodes of its whole copies.
    pub copies: Vec<String>,
    /// Where it is attached.
    pub attached: Option<String>,
}

/// A pod of users. It is made again on another node when it is evicted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodLayout {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
    /// The claims that it uses.
    pub claims: Vec<String>,
}
