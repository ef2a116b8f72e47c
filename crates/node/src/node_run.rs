//! What a program on a node works with: who it is, the node, the cluster, the repository.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use api::{UpgradePlan, names};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use release::{
    bundle::{Bundle, Promise},
    release_file::ReleaseFile,
};

use crate::host::{HostRoot, HostTools};
use program::{
    error::{Error, Result},
    step::StepContext,
};

/// The container of our Jobs that does a step of a node.
pub const CONTAINER: &str = "apply";

/// Files of the upgrade repository, by their path in the ISO.
pub trait Repository: Send + Sync {
    /// A small text.
    ///
    /// # Errors
    /// When it does not come.
    fn text<'a>(&'a self, path: &'a str, largest: u64) -> BoxFuture<'a, Result<String>>;

    /// Makes a file be there, whole: what has come of it before is not fetched again, and under its name it is never
    /// half there.
    ///
    /// # Errors
    /// When it does not come.
    fn save<'a>(&'a self, path: &'a str, to: &'a Path, ctx: StepContext<'a>) -> BoxFuture<'a, Result<()>>;

    /// What is on record about a file; nothing where nothing is on record at all.
    ///
    /// # Errors
    /// When what is on record does not come, is not what it should be, or does not have the file.
    fn promise<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Promise>>>;
}

/// The pod that the program runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The container in it.
    pub container: String,
}

/// What a program on a node works with.
pub struct NodeRun {
    /// The cluster.
    pub client: Client,
    /// The plan's name.
    pub plan: String,
    /// The node's name.
    pub node: String,
    /// The pod of this program.
    pub pod: OwnPod,
    /// The node's files.
    pub root: HostRoot,
    /// The node's programs.
    pub tools: Arc<dyn HostTools>,
    /// The release.
    pub repository: Arc<dyn Repository>,
    /// `elemental` in the container.
    pub elemental: PathBuf,
    /// What the repository says, once it has been asked.
    pub release: OnceLock<Release>,
}

/// What the repository says about the release.
#[derive(Clone, Debug)]
pub struct Release {
    /// Its versions.
    pub file: ReleaseFile,
    /// Its images.
    pub bundle: Bundle,
}

impl NodeRun {
    /// What the repository says about the release.
    ///
    /// # Errors
    /// When it has not been asked, which is a mistake in the order of steps.
    pub fn release(&self) -> Result<&Release> {
        self.release
            .get()
            .ok_or_else(|| Error::Permanent("the release was not read from the repository".to_owned()))
    }

    /// The plan as it is now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read_plan(&self) -> Result<UpgradePlan> {
        let plans: Api<UpgradePlan> = Api::all(self.client.clone());
        let plan = plans.get(&self.plan).await;
        plan.map_err(|error| Error::api(format!("read UpgradePlan {}", self.plan), error))
    }

    /// The node as it is now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read_node(&self) -> Result<Node> {
        let node = self.nodes().get(&self.node).await;
        node.map_err(|error| Error::api(format!("read Node {}", self.node), error))
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// The objects of a kind in Longhorn's namespace.
    pub(crate) fn longhorn<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), names::LONGHORN_NAMESPACE)
    }
}
