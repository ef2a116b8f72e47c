//! What the caches drop of an object before they keep it: only what decisions read stays.

use api::{
    annotations,
    foreign::{capi, kubevirt, longhorn},
};
use k8s_openapi::api::{
    apps::v1::ReplicaSet,
    batch::v1::{Job, JobStatus},
    core::v1::{ContainerStatus, Node, Pod, PodStatus, Secret},
};

use crate::blockers;

/// Of most kinds everything is kept.
pub(super) fn nothing<K>(_: &mut K) {}

/// A node's list of images is long and no decision reads it; its heartbeats change nothing.
pub(super) fn prune_node(node: &mut Node) {
    if let Some(status) = &mut node.status {
        status.images = None;
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
        status.volumes_attached = None;
        status.volumes_in_use = None;
    }
}

/// Of a Job, decisions read its metadata, whether it is suspended, its conditions, and how many of its pods have failed.
pub(super) fn prune_job(job: &mut Job) {
    if let Some(spec) = &mut job.spec {
        spec.template = Default::default();
    }
    job.status = job.status.take().map(|status| JobStatus {
        conditions: status.conditions,
        failed: status.failed,
        ..JobStatus::default()
    });
}

/// Of a ReplicaSet, decisions read whose it is.
pub(super) fn prune_replica_set(set: &mut ReplicaSet) {
    set.spec = None;
    set.status = None;
}

/// Of a pod, decisions read its labels, why it does not start, what its program says that it waits for, and why it failed.
/// A program that has ended waits for nothing, whatever it said last.
pub(crate) fn prune_pod(pod: &mut Pod) {
    pod.spec = None;
    let ended = api::pod::has_ended(pod);
    if let Some(kept) = &mut pod.metadata.annotations {
        kept.retain(|key, _| key == annotations::WAITING_FOR && !ended);
    }
    let Some(status) = pod.status.take() else { return };
    pod.status = Some(PodStatus {
        phase: status.phase.filter(|_| ended),
        conditions: status
            .conditions
            .map(|all| all.into_iter().filter(blockers::is_unschedulable).collect()),
        container_statuses: status.container_statuses.map(with_problem_only),
        init_container_statuses: status.init_container_statuses.map(with_problem_only),
        ..PodStatus::default()
    });
}

/// Containers that cannot start, and those whose termination message matters.
fn with_problem_only(statuses: Vec<ContainerStatus>) -> Vec<ContainerStatus> {
    let tells = |one: &ContainerStatus| {
        blockers::stuck(one).is_some()
            || blockers::termination_message(one).is_some()
            || blockers::ended_without_reboot(one)
            || blockers::armed_in(one).is_some()
    };
    statuses.into_iter().filter(tells).collect()
}

/// Of a volume, decisions read whether it is healthy and whom it serves.
pub(super) fn prune_volume(volume: &mut longhorn::Volume) {
    volume.spec = longhorn::VolumeSpec::default();
    volume.other.clear();
    volume.status.other.clear();
    volume.status.conditions = None;
    volume.status.state = None;
    volume.status.current_node_id = None;
    volume.metadata.annotations = None;
    volume.metadata.labels = None;
}

/// Of a machine, decisions read what the API of this project knows.
pub(super) fn prune_machine(machine: &mut capi::Machine) {
    machine.other.clear();
}

/// Of the conditions of a running VM, decisions read one.
pub(super) fn prune_instance(instance: &mut kubevirt::VirtualMachineInstance) {
    let conditions = instance.status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ == blockers::LIVE_MIGRATABLE);
}

/// Rancher's plans are long and full of secrets; we only ever need their annotations.
pub(super) fn prune_secret(secret: &mut Secret) {
    secret.data = None;
    secret.string_data = None;
}
