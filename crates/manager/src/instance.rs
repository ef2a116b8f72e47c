//! Running VMs as the manager watches them: where they are, and nothing of what their owners have put into them.

use std::borrow::Cow;

use api::foreign::kubevirt::VirtualMachineInstance;
use kube::{Resource, api::ObjectMeta};
use serde::{Deserialize, Deserializer};

use crate::lists::{
    self,
    Keep::{self, All, Fields},
};

/// Objects per page of the first list: each may have 256 KiB of annotations and more of a template.
pub(crate) const PAGE: u32 = 20;

/// Of a running VM, decisions read where it is, and whether it can move.
const KEEP: Keep = Fields(&[
    (
        "metadata",
        Fields(&[
            ("name", All),
            ("namespace", All),
            ("uid", All),
            ("resourceVersion", All),
            ("generation", All),
            ("creationTimestamp", All),
            ("deletionTimestamp", All),
        ]),
    ),
    (
        "spec",
        Fields(&[
            ("evictionStrategy", All),
            // How long a migration takes.
            ("domain", Fields(&[("memory", Fields(&[("guest", All)]))])),
        ]),
    ),
    (
        "status",
        Fields(&[
            ("phase", All),
            ("nodeName", All),
            ("conditions", Fields(&[("type", All), ("status", All)])),
        ]),
    ),
]);

/// A running VM without unused fields: the parser skips them.
#[derive(Clone, Debug)]
pub(crate) struct Instance(VirtualMachineInstance);

impl<'de> Deserialize<'de> for Instance {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        lists::kept(text, KEEP).map(Self)
    }
}

impl From<Instance> for VirtualMachineInstance {
    fn from(instance: Instance) -> Self {
        instance.0
    }
}

impl Resource for Instance {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        VirtualMachineInstance::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        VirtualMachineInstance::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        VirtualMachineInstance::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        VirtualMachineInstance::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}
