//! Disks that were plugged into running VMs in the old way: KubeVirt's declarative hotplug, which new releases use, does not
//! understand what is left of it. A VM with an unserved request is never reconciled again; a disk that only the running
//! instance knows is unplugged. Both are over once the VM has been stopped.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    UpgradePlan,
    foreign::kubevirt::{InstanceVolume, VirtualMachine, VirtualMachineInstance},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{Cluster, FieldError};
use rules::migration;

use super::{SPEC, all, full_name, restores_vms, vms};

/// With one host, and with `restoreVM: true`, VMs are stopped for the upgrade anyway.
pub(super) fn leaves_nothing(plan: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    if restores_vms(plan) || migration::hosts(all(&cluster.nodes, "nodes")?).len() <= 1 {
        return Ok(Vec::new());
    }
    let known = all(&cluster.vms, "virtualmachines")?;
    let instances = all(&cluster.vmis, "virtualmachineinstances")?;
    let mut errors = Vec::new();
    let mut report = |text: &str, found: Vec<String>, remedy: &str| {
        if !found.is_empty() {
            let text = format!("{text}: {}; {remedy}, {}", found.join(", "), vms::REMEDY);
            errors.push(FieldError::forbidden(SPEC, text));
        }
    };
    let unserved = known.iter().filter(|vm| has_requests(vm)).map(full_name);
    report(
        "there are VMs with unserved requests to plug disks in or out (status.volumeRequests)",
        unserved.collect(),
        "stop and start them",
    );
    // An instance without a VM is left alone by the declarative hotplug.
    let by_name: BTreeMap<_, &VirtualMachine> = known.iter().map(|vm| (place(&vm.metadata), vm)).collect();
    let foreign = instances.iter().filter_map(|instance| {
        let vm = by_name.get(&place(&instance.metadata))?;
        let volumes = unknown_volumes(vm, instance);
        (!volumes.is_empty()).then(|| format!("{} (volume {})", full_name(instance), volumes.join(", ")))
    });
    report(
        "there are running VMs with hot-plugged volumes that are not in the VM's specification",
        foreign.collect(),
        "unplug these volumes, add them to the VM, or restart or stop the VM",
    );
    Ok(errors)
}

fn has_requests(vm: &VirtualMachine) -> bool {
    vm.status
        .volume_requests
        .as_ref()
        .is_some_and(|requests| !requests.is_empty())
}

/// A VM and its instance have the same one.
fn place(metadata: &ObjectMeta) -> (Option<&str>, Option<&str>) {
    (metadata.namespace.as_deref(), metadata.name.as_deref())
}

/// The hot-plugged volumes of a running instance that its VM does not have.
fn unknown_volumes(vm: &VirtualMachine, instance: &VirtualMachineInstance) -> Vec<String> {
    if instance.status.phase.as_deref() != Some("Running") {
        return Vec::new();
    }
    let template = vm.spec.template.as_ref().and_then(|template| template.spec.as_ref());
    let in_template: BTreeSet<Option<&str>> = template
        .and_then(|spec| spec.volumes.as_ref())
        .into_iter()
        .flatten()
        .map(|volume| volume.name.as_deref())
        .collect();
    let plugged = instance.spec.volumes.iter().flatten().filter(|volume| is_hot(volume));
    let unknown = plugged.filter(|volume| !in_template.contains(&volume.name.as_deref()));
    unknown.filter_map(|volume| volume.name.clone()).collect()
}

fn is_hot(volume: &InstanceVolume) -> bool {
    let sources = [&volume.persistent_volume_claim, &volume.data_volume];
    sources
        .into_iter()
        .flatten()
        .any(|source| source.hotpluggable == Some(true))
}
