//! Virtual machines of several kinds, what KubeVirt keeps for those that run, and their Longhorn volumes.

use std::sync::Arc;

use api::{
    foreign::{kubevirt::VirtualMachineInstanceSpec, longhorn::Volume},
    labels, names,
};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::{
    actor::kubevirt::instance_conditions,
    context::{Context, digest},
    inbox::Key,
    index,
};

use super::{Shape, layout::VolumeLayout, platform::DEV_NAMESPACE};

/// On a virt-launcher pod: the VM.
pub(crate) const VM_LABEL: &str = "vm.kubevirt.io/name";
const CREATED_BY: &str = "kubevirt.io/created-by";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variety {
    Migratable,
    HostDevice,
    NodeSelector,
    Stopped,
    Paused,
}

/// The varieties in turn; the seed says where to begin. Most VMs can migrate, as in life.
const VARIETIES: [Variety; 10] = [
    Variety::Migratable,
    Variety::Migratable,
    Variety::HostDevice,
    Variety::Migratable,
    Variety::NodeSelector,
    Variety::Stopped,
    Variety::Migratable,
    Variety::Migratable,
    Variety::Paused,
    Variety::Migratable,
];

/// The memory of VMs in GiB, in turn. The first ten, which small clusters have, are all alike.
const MEMORY: [u64; 10] = [2, 4, 2, 8, 2, 4, 2, 16, 4, 2];

const ROLES: [&str; 10] = [
    "web", "db", "ml", "cache", "lab", "gateway", "mail", "build", "desktop", "files",
];

pub(super) fn objects(shape: &Shape) -> Vec<Value> {
    let nodes = shape.data_nodes();
    let turn = usize::try_from(shape.seed % 10).unwrap_or_default();
    let mut rng = fastrand::Rng::with_seed(shape.seed);
    let mut objects = Vec::new();
    for index in 0..shape.vms {
        let Some(node) = nodes.get(index % nodes.len().max(1)) else {
            break;
        };
        let variety = VARIETIES[(index + turn) % VARIETIES.len()];
        let namespace = if index % 3 == 2 {
            DEV_NAMESPACE
        } else {
            names::DEFAULT_NAMESPACE
        };
        let name = format!("{}-{}", ROLES[index % ROLES.len()], index + 1);
        let gigabytes = 10 * (1 + rng.u64(..8));
        let memory = if index < MEMORY.len() {
            2
        } else {
            MEMORY[index % MEMORY.len()]
        };
        let mut spec = json!({
            "domain": {"cpu": {"cores": 1 + rng.u64(..4)}, "memory": {"guest": format!("{memory}Gi")}, "devices": {"disks": [{"name": "disk-0", "disk": {"bus": "virtio"}}]}},
            "evictionStrategy": "LiveMigrateIfPossible", "terminationGracePeriodSeconds": 120,
            "volumes": [{"name": "disk-0", "persistentVolumeClaim": {"claimName": claim_name(&name)}}],
        });
        match variety {
            Variety::HostDevice => {
                spec["domain"]["devices"]["hostDevices"] = json!([{"name": "nic", "deviceName": "intel.com/82599"}]);
            }
            Variety::NodeSelector => spec["nodeSelector"] = json!({"kubernetes.io/hostname": node}),
            _ => {}
        }
        let runs = variety != Variety::Stopped;
        let paused = variety == Variety::Paused;
        let shown = match variety {
            Variety::Stopped => "Stopped",
            Variety::Paused => "Paused",
            _ => "Running",
        };
        objects.push(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name, "namespace": namespace, "labels": {"harvesterhci.io/creator": "harvester"}},
            "spec": {
                "runStrategy": if runs { "Always" } else { "Halted" },
                "template": {"metadata": {"labels": {"harvesterhci.io/vmName": name}}, "spec": spec},
            },
            "status": vm_status(shown),
        }));
        if runs {
            let instance = Instance {
                namespace,
                name: &name,
                node,
                migratable: variety != Variety::HostDevice,
                paused,
                spec,
                vm_uid: "",
            };
            objects.push(instance.vmi());
            objects.push(instance.running_pod());
            if instance.migratable {
                objects.push(instance.budget());
            }
        }
        objects.extend(volume(
            &nodes,
            index,
            namespace,
            &name,
            runs.then_some(node.as_str()),
            gigabytes,
        ));
    }
    objects
}

/// An instance, from which everything that belongs to it follows.
pub(crate) struct Instance<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) node: &'a str,
    pub(crate) migratable: bool,
    pub(crate) paused: bool,
    pub(crate) spec: Value,
    /// Uid of the VM; empty in a generated cluster, where it is not known yet.
    pub(crate) vm_uid: &'a str,
}

impl Instance<'_> {
    fn id(&self) -> String {
        digest(&format!("{}/{}", self.namespace, self.name), 12)
    }

    /// The instance with its status.
    pub(crate) fn vmi(&self) -> Value {
        let mut metadata = json!({
            "name": self.name, "namespace": self.namespace,
            "labels": {labels::VMI_NODE: self.node, "harvesterhci.io/vmName": self.name, VM_LABEL: self.name},
        });
        if !self.vm_uid.is_empty() {
            metadata["ownerReferences"] = json!([{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": self.name, "uid": self.vm_uid,
                "controller": true, "blockOwnerDeletion": true,
            }]);
        }
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": self.spec,
            "status": {
                "phase": "Running", "nodeName": self.node,
                "conditions": instance_conditions(self.migratable, self.paused),
            },
        })
    }

    /// The pod that runs the instance.
    pub(crate) fn pod(&self) -> Value {
        // The pod mounts what the VM has its disks on.
        let volumes = self.spec["volumes"].as_array().into_iter().flatten();
        let claims: Vec<&Value> = volumes
            .filter(|volume| volume.get("persistentVolumeClaim").is_some())
            .collect();
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("virt-launcher-{}-0", self.name), "namespace": self.namespace,
                "labels": {"kubevirt.io": "virt-launcher", VM_LABEL: self.name, CREATED_BY: self.id()},
                "annotations": {"kubevirt.io/domain": self.name},
            },
            "spec": {
                "nodeName": self.node, "restartPolicy": "Never",
                "containers": [{"name": "compute", "image": "registry.suse.com/suse/sles/15.7/virt-launcher:1.7.0"}],
                "volumes": claims,
            },
        })
    }

    /// The pod, as it is when it has been running for long.
    pub(super) fn running_pod(&self) -> Value {
        let mut pod = self.pod();
        pod["status"] = json!({
            "phase": "Running", "startTime": super::nodes::INSTALLED,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": super::nodes::INSTALLED}],
            "containerStatuses": [{
                "name": "compute", "image": pod["spec"]["containers"][0]["image"], "imageID": "", "ready": true, "restartCount": 0,
            }],
        });
        pod
    }

    /// The budget that forbids the eviction of an instance that can migrate.
    pub(crate) fn budget(&self) -> Value {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": budget_name(self.name), "namespace": self.namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {CREATED_BY: self.id()}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1},
        })
    }
}

/// The name of an instance's budget.
pub(crate) fn budget_name(vmi: &str) -> String {
    format!("kubevirt-disruption-budget-{vmi}")
}

/// The instance's hardware can move.
pub(crate) fn is_migratable(spec: &VirtualMachineInstanceSpec) -> bool {
    let devices = spec.domain.as_ref().and_then(|domain| domain.devices.as_ref());
    let none = |list: Option<&Vec<Value>>| list.is_none_or(Vec::is_empty);
    devices.is_none_or(|devices| none(devices.host_devices.as_ref()) && none(devices.gpus.as_ref()))
}

/// The pods of an instance: one, or two while it migrates.
pub(crate) fn launchers(world: &Context, key: &Key) -> Vec<Arc<Pod>> {
    world.pods.found(&index::of_instance(key))
}

/// The status of a VM that users see.
pub(crate) fn vm_status(shown: &str) -> Value {
    let created = !matches!(shown, "Stopped" | "Starting" | "ErrorUnschedulable");
    json!({"printableStatus": shown, "ready": shown == "Running", "created": created})
}

/// What the claim of a VM's disk ends with.
const DISK: &str = "-disk-0";

fn claim_name(vm: &str) -> String {
    format!("{vm}{DISK}")
}

/// The volume of a VM.
fn volume_name(namespace: &str, vm: &str) -> String {
    format!("pvc-{}", digest(&format!("{namespace}/{}", claim_name(vm)), 12))
}

/// The VM of a volume.
pub(crate) fn vm_of(volume: &Volume) -> Option<Key> {
    let claim = volume.status.kubernetes_status.as_ref()?;
    let vm = claim.pvc_name.as_ref()?.strip_suffix(DISK)?;
    Some((claim.namespace.clone()?, vm.to_owned()))
}

/// A copy of a volume.
pub(crate) fn replica_name(volume: &str, number: i64) -> String {
    format!("{volume}-r-{number}")
}

/// What serves a volume.
pub(crate) fn engine_name(volume: &str) -> String {
    format!("{volume}-e-0")
}

/// The volume of a generated VM: its copies are on the next nodes in turn.
fn volume(
    nodes: &[String],
    index: usize,
    namespace: &str,
    vm: &str,
    attached: Option<&str>,
    gigabytes: u64,
) -> Vec<Value> {
    let copies = nodes.len().min(3);
    volume_objects(&VolumeLayout {
        name: volume_name(namespace, vm),
        claim: Some((namespace.to_owned(), claim_name(vm))),
        bytes: gigabytes << 30,
        // The default class asks for three everywhere: on a single node they are one, and the volume is degraded for ever.
        wanted: if nodes.len() == 1 { 3 } else { copies },
        copies: (0..copies)
            .map(|copy| nodes[(index + copy) % nodes.len()].clone())
            .collect(),
        attached: attached.map(str::to_owned),
    })
}

/// A volume with its engine and its copies. The names of these two follow from that of the volume.
pub(super) fn volume_objects(volume: &VolumeLayout) -> Vec<Value> {
    let name = &volume.name;
    let in_longhorn = |kind: &str, of: &str, spec: Value, status: Value| {
        json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": kind,
            "metadata": {"name": of, "namespace": names::LONGHORN_NAMESPACE, "labels": {"longhornvolume": name}},
            "spec": spec, "status": status,
        })
    };
    let copies = volume.copies.len();
    let (state, robustness) = match &volume.attached {
        Some(_) if copies == 0 => ("attached", "faulted"),
        Some(_) if copies < volume.wanted => ("attached", "degraded"),
        Some(_) => ("attached", "healthy"),
        None => ("detached", "unknown"),
    };
    let node = volume.attached.as_deref().unwrap_or_default();
    let mut status = json!({"state": state, "robustness": robustness, "currentNodeID": node});
    if let Some((namespace, claim)) = &volume.claim {
        status["kubernetesStatus"] = json!({
            "namespace": namespace, "pvcName": claim, "pvStatus": "Bound",
            "workloadsStatus": workloads(volume.attached.as_ref().map(|_| claim.as_str())),
        });
    }
    let mut objects = vec![
        in_longhorn(
            "Volume",
            name,
            json!({"numberOfReplicas": volume.wanted, "nodeID": node, "size": volume.bytes.to_string(), "frontend": "blockdev", "accessMode": "rwx", "migratable": true}),
            status,
        ),
        in_longhorn(
            "Engine",
            &engine_name(name),
            json!({"volumeName": name, "nodeID": node}),
            json!({
                "currentState": if volume.attached.is_some() { "running" } else { "stopped" },
                "replicaModeMap": if volume.attached.is_some() { whole_copies(name, copies) } else { json!({}) },
            }),
        ),
    ];
    for (number, on) in (0_i64..).zip(&volume.copies) {
        objects.push(in_longhorn(
            "Replica",
            &replica_name(name, number),
            json!({"volumeName": name, "nodeID": on, "healthyAt": super::nodes::INSTALLED}),
            json!({"currentState": "running"}),
        ));
    }
    objects
}

/// The claim of a volume.
pub(crate) fn claim_of(volume: &Volume) -> Option<&str> {
    volume.status.kubernetes_status.as_ref()?.pvc_name.as_deref()
}

/// Who uses an attached volume, as Longhorn finds out from pods: the VM of its claim.
pub(crate) fn workloads(claim: Option<&str>) -> Value {
    let used_by = |claim: &str| {
        let vm = claim.strip_suffix(DISK).unwrap_or(claim);
        json!({
            "podName": format!("virt-launcher-{vm}-0"), "podStatus": "Running",
            "workloadName": vm, "workloadType": "VirtualMachineInstance",
        })
    };
    claim.map(used_by).into_iter().collect()
}

/// What an engine says of copies that are all whole.
fn whole_copies(volume: &str, copies: usize) -> Value {
    let names = (0_i64..).take(copies).map(|number| replica_name(volume, number));
    names.map(|replica| (replica, json!("RW"))).collect()
}
