//! The cluster generator: the objects of a settled Harvester cluster, from a few numbers and a seed.
//!
//! Pure: the same shape gives the same objects.

mod install;
pub mod layout;
mod layout_objects;
pub(crate) mod management;
mod nodes;
pub(crate) mod platform;
pub(crate) mod vms;

pub use install::{Definitions, define_foreign, install, install_by};
pub use layout_objects::added_copy;

use std::sync::Arc;

use cluster_upgrade::version_line::is_at_least;
use serde_json::Value;

use crate::{Release, release::Installed};

use layout::{Layout, NodeLayout};

/// What a generated cluster is like.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// How many nodes: 1 is a single-node cluster; 2 are one control-plane node and one worker; from 3 on, three are
    /// control-plane nodes and the rest workers.
    pub nodes: usize,
    /// The third node is a witness: a member of etcd that carries no workload. Needs three nodes.
    pub witness: bool,
    /// How many virtual machines.
    pub vms: usize,
    /// The Harvester version that runs.
    pub from: String,
    /// The Harvester version to upgrade to: a Version object of that name exists.
    pub to: String,
    /// Name of an ISO image that was uploaded already.
    pub image: Option<String>,
    /// Which of the virtual machines are of which kind; machine names.
    pub seed: u64,
    /// A cluster that was seen, which this one is to be like: its nodes and VMs are used instead of generated ones.
    pub layout: Option<Arc<Layout>>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            nodes: 3,
            witness: false,
            vms: 6,
            from: "v1.7.1".to_owned(),
            to: "v1.8.0".to_owned(),
            image: None,
            seed: 0,
            layout: None,
        }
    }
}

impl Shape {
    /// The release that the cluster is upgraded to.
    #[must_use]
    pub fn release(&self) -> Release {
        Release::of(&self.to)
    }

    /// What runs before the upgrade: the parts of the release itself where the cluster is upgraded to what it is.
    pub(crate) fn installed(&self) -> Installed {
        if self.from == self.to {
            Installed::of(&self.release())
        } else {
            Installed::before()
        }
    }

    /// Fleet has its charts applied by the server: those that a Harvester from v1.8 on was installed with. Others are
    /// merged by the client for good.
    pub(crate) fn is_applied_by_server(&self) -> bool {
        is_at_least(&self.from, 1, 8)
    }

    /// Names of all nodes.
    #[must_use]
    pub fn node_names(&self) -> Vec<String> {
        match &self.layout {
            Some(layout) => layout.nodes.iter().map(|node| node.name.clone()).collect(),
            None => (1..=self.nodes).map(|number| format!("node-{number}")).collect(),
        }
    }

    /// All nodes.
    fn node_layouts(&self) -> Vec<NodeLayout> {
        match &self.layout {
            Some(layout) => layout.nodes.clone(),
            None => nodes::generated(self),
        }
    }

    /// The node is the witness, counted from zero.
    fn is_witness(&self, index: usize) -> bool {
        self.witness && self.nodes >= 3 && index == 2
    }

    /// The node runs the control plane, counted from zero.
    fn is_control_plane(&self, index: usize) -> bool {
        index == 0 || (self.nodes >= 3 && index < 3)
    }

    /// Nodes that carry workload and data.
    fn data_nodes(&self) -> Vec<String> {
        let nodes = self.node_layouts().into_iter();
        nodes.filter(|node| !node.is_witness()).map(|node| node.name).collect()
    }

    /// All objects of the cluster, with their status.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        let mut objects = platform::namespaces();
        objects.extend(nodes::objects(self));
        objects.extend(platform::objects(self));
        objects.extend(management::objects(self));
        match &self.layout {
            Some(layout) => {
                layout_objects::change(layout, &self.installed(), &mut objects);
                objects.extend(layout_objects::objects(layout));
            }
            None => objects.extend(vms::objects(self)),
        }
        objects
    }
}
