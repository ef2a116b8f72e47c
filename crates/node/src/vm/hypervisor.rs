//! The interface of the programs to KubeVirt. A rehearsal simulates it; the programs are the same.

use futures::{FutureExt, future::BoxFuture};
use kube::Client;

use super::{
    VmName,
    detector::{self, Found},
    power, subresource,
};
use program::error::{Error, Result};

/// What runs VMs.
pub trait Hypervisor: Send + Sync {
    /// The VMs of a node that cannot move to another one.
    ///
    /// # Errors
    /// It did not answer.
    fn immovable<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<Vec<Found>>>;

    /// Requests that a VM stops. Does not wait until it has.
    ///
    /// # Errors
    /// It refused or was not reached; whether trying again may help, the error says.
    fn stop<'a>(&'a self, vm: &'a VmName) -> BoxFuture<'a, Result<()>>;

    /// Requests that a VM starts. Does not wait until it runs.
    ///
    /// # Errors
    /// It refused or was not reached; whether trying again may help, the error says.
    fn start<'a>(&'a self, vm: &'a VmName) -> BoxFuture<'a, Result<()>>;

    /// Whether it is healthy.
    ///
    /// # Errors
    /// It is not, and why.
    fn is_well(&self) -> BoxFuture<'_, Result<()>>;
}

/// The KubeVirt of a cluster.
pub struct KubeVirt(pub Client);

impl Hypervisor for KubeVirt {
    fn immovable<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<Vec<Found>>> {
        detector::look(&self.0, node).boxed()
    }

    fn stop<'a>(&'a self, vm: &'a VmName) -> BoxFuture<'a, Result<()>> {
        power::stop(&self.0, vm).boxed()
    }

    fn start<'a>(&'a self, vm: &'a VmName) -> BoxFuture<'a, Result<()>> {
        power::start(&self.0, vm).boxed()
    }

    fn is_well(&self) -> BoxFuture<'_, Result<()>> {
        async {
            let answer = subresource::healthz(&self.0).await;
            answer.map_err(|error| Error::api("reach KubeVirt: it is not ready", error))
        }
        .boxed()
    }
}
