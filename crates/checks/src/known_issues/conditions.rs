//! Conditions of known issues: what must hold of a cluster for an issue to concern it.

use api::{
    foreign::kubevirt::{Devices, VirtualMachineInstance},
    labels,
};
use k8s_openapi::api::core::v1::Node;
use kube::{Resource, ResourceExt};
use rules::migration;

use super::Condition;
use crate::{
    finding::{Missing, ObjectRef, needed},
    preflight::Question,
};

type Applies = Result<Option<Vec<ObjectRef>>, Missing>;

/// All conditions, by the name that entries use.
pub const CONDITIONS: [(&str, Condition); 16] = [
    ("backing-images", |question| {
        Ok(any(needed(&question.snapshot.backing_images, "backingimages")?.iter()))
    }),
    ("backup-target-without-interval", backup_target_without_interval),
    ("host-device-vms", |question| vms(question, has_device)),
    ("monitoring-addon", |question| addon(question, "rancher-monitoring")),
    ("multi-thread-vms", |question| vms(question, has_threads)),
    ("recurring-jobs", |question| {
        Ok(any(needed(&question.snapshot.recurring_jobs, "recurringjobs")?.iter()))
    }),
    ("restart-required", restart_required),
    ("running-vms", |question| vms(question, |_| true)),
    ("seeder-addon", |question| addon(question, "harvester-seeder")),
    ("several-control-planes", several_control_planes),
    ("several-hosts", |question| hosts(question, |count| count > 1)),
    ("shared-volumes", |question| {
        Ok(any(needed(&question.snapshot.share_managers, "sharemanagers")?.iter()))
    }),
    ("storage-network", storage_network),
    ("storage-network-and-shared-volumes", |question| {
        let shared = needed(&question.snapshot.share_managers, "sharemanagers")?;
        Ok(storage_network(question)?.and_then(|_| any(shared.iter())))
    }),
    ("two-hosts", |question| hosts(question, |count| count == 2)),
    ("container-disk-vms", |question| vms(question, has_container_disk)),
];

/// All of them, if there are any.
fn any<'a, K: Resource<DynamicType = ()> + 'a>(objects: impl Iterator<Item = &'a K>) -> Option<Vec<ObjectRef>> {
    let objects: Vec<ObjectRef> = objects.map(ObjectRef::of).collect();
    (!objects.is_empty()).then_some(objects)
}

fn vms(question: &Question<'_>, concerns: fn(&VirtualMachineInstance) -> bool) -> Applies {
    let vmis = needed(&question.snapshot.vmis, "virtualmachineinstances")?;
    let running = vmis.iter().filter(|vmi| !migration::has_ended(vmi) && concerns(vmi));
    Ok(any(running))
}

fn devices(vmi: &VirtualMachineInstance) -> Option<&Devices> {
    vmi.spec.domain.as_ref()?.devices.as_ref()
}

fn has_device(vmi: &VirtualMachineInstance) -> bool {
    devices(vmi).is_some_and(|devices| {
        let mut lists = [&devices.gpus, &devices.host_devices].into_iter().flatten();
        lists.any(|list| !list.is_empty())
    })
}

fn has_threads(vmi: &VirtualMachineInstance) -> bool {
    let cpu = vmi.spec.domain.as_ref().and_then(|domain| domain.cpu.as_ref());
    cpu.and_then(|cpu| cpu.threads).is_some_and(|threads| threads > 1)
}

fn has_container_disk(vmi: &VirtualMachineInstance) -> bool {
    let mut volumes = vmi.spec.volumes.iter().flatten();
    volumes.any(|volume| volume.other.contains_key("containerDisk"))
}

fn addon(question: &Question<'_>, name: &str) -> Applies {
    let addons = needed(&question.snapshot.addons, "addons")?;
    let enabled = addons
        .iter()
        .filter(|addon| addon.name_any() == name && addon.spec.enabled == Some(true));
    Ok(any(enabled))
}

fn hosts(question: &Question<'_>, wanted: fn(usize) -> bool) -> Applies {
    let nodes = needed(&question.snapshot.nodes, "nodes")?;
    Ok(wanted(migration::hosts(nodes).len()).then(Vec::new))
}

fn several_control_planes(question: &Question<'_>) -> Applies {
    let nodes = needed(&question.snapshot.nodes, "nodes")?;
    let planes: Vec<&Node> = nodes
        .iter()
        .filter(|node| node.labels().contains_key(labels::CONTROL_PLANE))
        .collect();
    Ok((planes.len() > 1).then(Vec::new))
}

fn storage_network(question: &Question<'_>) -> Applies {
    let settings = needed(&question.snapshot.settings, "settings")?;
    let setting = settings
        .iter()
        .filter(|setting| setting.name_any() == "storage-network" && !matches!(setting.value.as_str(), "" | "null"));
    Ok(any(setting))
}

fn restart_required(question: &Question<'_>) -> Applies {
    let vms = needed(&question.snapshot.vms, "virtualmachines")?;
    let changed = vms.iter().filter(|vm| {
        let conditions = vm.status.conditions.as_deref().unwrap_or_default();
        api::foreign::condition_is(conditions, "RestartRequired") == Some(true)
    });
    Ok(any(changed))
}

fn backup_target_without_interval(question: &Question<'_>) -> Applies {
    let targets = needed(&question.snapshot.backup_targets, "backuptargets")?;
    let without = targets.iter().filter(|target| {
        let url = target.spec.backup_target_url.as_deref().unwrap_or_default();
        let interval = target.spec.poll_interval.as_deref().unwrap_or_default();
        !url.is_empty() && matches!(interval, "" | "0" | "0s")
    });
    Ok(any(without))
}
