//! What programs ask of KubeVirt, answered by the simulated one.

use api::labels;
use futures::{FutureExt, future::BoxFuture};
use node::vm::{
    Hypervisor, VmName,
    detector::{self, Found},
    power,
};
use program::Result;
use serde_json::json;

use crate::context::label;

use super::Call;

/// The simulated KubeVirt, as a program sees it.
pub(super) struct SimulatedKubeVirt(pub(super) Call);

impl SimulatedKubeVirt {
    async fn set_strategy(&self, verb: &str, vm: &VmName, strategy: &str) -> Result<()> {
        let key = (vm.namespace.clone(), vm.name.clone());
        let patch = json!({"spec": {"runStrategy": strategy}});
        let patched = self.0.world.vms.patch(&key, &patch).await?;
        patched.map(drop).ok_or_else(|| power::absent(verb, vm))
    }
}

impl Hypervisor for SimulatedKubeVirt {
    fn immovable<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<Vec<Found>>> {
        let world = &self.0.world;
        let nodes = world.nodes.list();
        let vmis = world
            .vmis
            .select(|vmi| label(&vmi.metadata, labels::VMI_NODE) == Some(node));
        let found = detector::decide(nodes.iter().map(AsRef::as_ref), vmis.iter().map(AsRef::as_ref));
        std::future::ready(Ok(found)).boxed()
    }

    fn stop<'a>(&'a self, vm: &'a VmName) -> BoxFuture<'a, Result<()>> {
        self.set_strategy("stop", vm, "Halted").boxed()
    }

    fn start<'a>(&'a self, vm: &'a VmName) -> BoxFuture<'a, Result<()>> {
        self.set_strategy("start", vm, "Always").boxed()
    }

    fn is_well(&self) -> BoxFuture<'_, Result<()>> {
        self.0.take(self.0.world.durations.restore_vm).map(Ok).boxed()
    }
}
