//! What the containers of our Jobs do on a node, as far as others can see it: one file per program.
//!
//! A program may be started again after it was cut off; what it has done already it does not do twice, and its time
//! counts from the start of its pod.

use std::time::Duration;

use api::labels::{self, component, job_type};
use k8s_openapi::api::core::v1::Pod;

use crate::{
    actor::kubelet::started,
    context::{Context, after, label, node_of},
    error::Result,
};

mod clean_images;
mod cluster_upgrade;
mod detector;
mod post_drain;
mod pre_drain;
mod prepare;
mod restore_vm;
mod single_node;
mod skip_manifests;

/// The taint that makes KubeVirt move VMs away.
pub(crate) const DRAIN_TAINT: &str = "kubevirt.io/drain";
/// On an instance: its node.
pub(crate) const NODE_LABEL: &str = labels::VMI_NODE;

/// A pod whose program runs.
pub(crate) struct Call<'a> {
    pub(crate) world: &'a Context,
    pub(crate) pod: &'a Pod,
    pub(crate) plan: &'a str,
    pub(crate) node: &'a str,
}

impl Call<'_> {
    /// Waits until the pod has run that long.
    async fn take(&self, duration: Duration) {
        self.world.clock.sleep_until(after(started(self.pod), duration)).await;
    }
}

/// Runs the program of a pod, chosen by its labels. A pod that is none of ours just succeeds. Programs fail only as
/// [`crate::Troubles`] say; an error means that the API could not be reached, and the program is started again.
pub(crate) async fn run(world: &Context, pod: &Pod) -> Result<()> {
    let text = |key| label(&pod.metadata, key).unwrap_or_default();
    let call = Call {
        world,
        pod,
        plan: text(labels::UPGRADE_PLAN),
        node: node_of(pod),
    };
    match (text(labels::UPGRADE_COMPONENT), text(labels::JOB_TYPE)) {
        (component::IMAGE_PRELOAD, _) => prepare::run(&call).await,
        (component::IMAGE_CLEANUP, _) => clean_images::run(&call).await,
        (component::SKIP_MANIFESTS_APPLY | component::SKIP_MANIFESTS_REMOVE, _) => skip_manifests::run(&call).await,
        (component::CLUSTER_UPGRADE, _) => cluster_upgrade::run(&call).await,
        (component::NODE_UPGRADE, job_type::PRE_DRAIN) => pre_drain::run(&call).await,
        (component::NODE_UPGRADE, job_type::POST_DRAIN) => post_drain::run(&call).await,
        (component::NODE_UPGRADE, job_type::SINGLE_NODE_UPGRADE) => single_node::run(&call).await,
        (component::NODE_UPGRADE, job_type::RESTORE_VM) => restore_vm::run(&call).await,
        _ => Ok(()),
    }
}
