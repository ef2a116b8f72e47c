//! The interface of programs to KubeVirt, implemented by the simulated one.

use api::labels;
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{Api, api::PostParams};
use node::vm::{
    Hypervisor, VmName,
    detector::{self, Found},
    power,
};
use program::{Error, Result};
use serde_json::json;

use crate::context::label;

use super::Call;

/// The simulated KubeVirt, as a program sees it.
pub(super) struct SimulatedKubeVirt(pub(super) Call);

impl SimulatedKubeVirt {
    /// The API server authorizes a request before it passes it to KubeVirt.
    async fn may(&self, verb: &str, vm: &VmName) -> Result<()> {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    group: Some("subresources.kubevirt.io".to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("virtualmachines".to_owned()),
                    subresource: Some(verb.to_owned()),
                    namespace: Some(vm.namespace.clone()),
                    name: Some(vm.name.clone()),
                    verb: Some("update".to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.0.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| Error::api(format!("{verb} VM {vm}"), error))?;
        if answer.status.is_some_and(|status| status.allowed) {
            Ok(())
        } else {
            Err(Error::Permanent(format!("failed to {verb} VM {vm}: forbidden")))
        }
    }

    async fn set_strategy(&self, verb: &str, vm: &VmName, strategy: &str) -> Result<()> {
        self.may(verb, vm).await?;
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
