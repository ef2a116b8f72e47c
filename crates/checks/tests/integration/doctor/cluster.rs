//! Small clusters, described as the objects that matter.

use jiff::Timestamp;
use serde_json::{Value, json};
use snapshot::Snapshot;

/// When snapshots are taken.
pub(crate) const NOW: &str = "2026-03-13T12:00:00Z";
/// Longer ago than any rule waits.
pub(crate) const LONG_AGO: &str = "2026-03-13T09:00:00Z";
/// Shorter ago than any rule waits.
pub(crate) const JUST_NOW: &str = "2026-03-13T11:59:00Z";

/// The systems and kubelets before and after.
pub(crate) const OLD: (&str, &str) = ("Harvester v1.7.1", "v1.34.3+rke2r1");
pub(crate) const NEW: (&str, &str) = ("Harvester v1.8.0", "v1.35.2+rke2r1");

/// A cluster under construction.
#[derive(Clone)]
pub(crate) struct Cluster(pub(crate) Snapshot);

impl Cluster {
    /// Nothing but three nodes and their machines.
    pub(crate) fn idle() -> Self {
        let mut cluster = Self(Snapshot::empty(NOW.parse::<Timestamp>().unwrap()));
        for number in 1..=3 {
            cluster = cluster
                .with("nodes", node(number))
                .with("machines", machine(number))
                .with("machine_plans", machine_plan(number, json!({}), json!({})));
        }
        cluster
    }

    /// A plan `up` that has been in a phase for long, with these fields of its status.
    pub(crate) fn in_phase(phase: &str, status: Value) -> Self {
        Self::idle().with("plans", plan(phase, LONG_AGO, status))
    }

    /// A plan that upgrades nodes: node-1 is in this state for long, the others wait for their turn.
    pub(crate) fn node_in(state: &str) -> Self {
        Self::node_since(state, LONG_AGO)
    }

    /// The same since a given time.
    pub(crate) fn node_since(state: &str, since: &str) -> Self {
        let (what, object) = match state {
            "PreDraining" => ("PreDrainJob", "Job harvester-system/up-node-upgrade-pre-drain-node-1"),
            "PreDrained" => ("RancherUpdate", "Node node-1"),
            "PostDraining" => ("PostDrainJob", "Job harvester-system/up-node-upgrade-post-drain-node-1"),
            "WaitingReboot" => ("Reboot", "Node node-1"),
            _ => ("RancherNextNode", "Cluster fleet-local/local"),
        };
        let mut entry = json!({"state": state, "startedAt": since});
        if state == "PostDrained" {
            entry["finishedAt"] = json!(since);
        }
        let status = json!({
            "nodeUpgradeStatuses": {
                "node-1": entry, "node-2": {"state": "ImagePreloaded"}, "node-3": {"state": "ImagePreloaded"},
            },
            "waitingFor": [{"what": what, "object": object, "since": since}],
        });
        Self::idle().with("plans", plan("NodeUpgrading", since, status))
    }

    /// With one more object.
    pub(crate) fn with(mut self, field: &str, object: Value) -> Self {
        let object_text = object.to_string();
        self.0
            .add(field, object)
            .unwrap_or_else(|error| panic!("{field}: {error}: {object_text}"));
        self
    }

    /// With objects of these namespaces only; of the others nothing is known.
    pub(crate) fn only(mut self, namespaces: &[&str]) -> Self {
        self.0.only_namespaces = Some(namespaces.iter().map(|name| (*name).to_owned()).collect());
        self
    }

    /// With a part of an object replaced, by name.
    pub(crate) fn patched(mut self, field: &str, name: &str, patch: Value) -> Self {
        let mut whole = serde_json::to_value(&self.0).unwrap();
        let key = camel(field);
        let list = whole[&key]["Ok"].as_array_mut().unwrap_or_else(|| panic!("no {key}"));
        let object = list
            .iter_mut()
            .find(|object| object["metadata"]["name"] == name)
            .unwrap_or_else(|| panic!("no {name}"));
        merge(object, &patch);
        self.0 = serde_json::from_value(whole).unwrap();
        self
    }

    /// With more about the plan `up`.
    pub(crate) fn plan_with(self, patch: Value) -> Self {
        self.patched("plans", "up", patch)
    }
}

fn camel(field: &str) -> String {
    let mut parts = field.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + &part[..1].to_uppercase() + &part[1..])
}

fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}

pub(crate) fn plan(phase: &str, since: &str, status: Value) -> Value {
    let mut plan = json!({
        "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
        "metadata": {"name": "up", "uid": "u-1", "creationTimestamp": "2026-03-13T03:00:00Z"},
        "spec": {"version": "v1.8.0", "restoreVM": true},
        "status": {
            "currentPhase": phase,
            "phaseTransitionTimestamps": [{"phase": phase, "phaseTransitionTimestamp": since}],
            "releaseMetadata": {"os": NEW.0, "kubernetes": NEW.1},
        },
    });
    merge(&mut plan["status"], &status);
    plan
}

pub(crate) fn node(number: usize) -> Value {
    json!({
        "metadata": {
            "name": format!("node-{number}"), "creationTimestamp": LONG_AGO,
            "labels": {"harvesterhci.io/managed": "true", "node-role.kubernetes.io/etcd": "true"},
            "annotations": {
                "cluster.x-k8s.io/machine": format!("machine-{number}"),
                "management.harvesterhci.io/bootIDBeforeUpgrade": "boot-1",
            },
        },
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}],
            "nodeInfo": node_info(OLD, "boot-1"),
        },
    })
}

pub(crate) fn node_info(release: (&str, &str), boot: &str) -> Value {
    json!({
        "osImage": release.0, "kubeletVersion": release.1, "bootID": boot, "architecture": "amd64",
        "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "",
        "operatingSystem": "linux", "systemUUID": "",
    })
}

pub(crate) fn machine(number: usize) -> Value {
    json!({
        "metadata": {"name": format!("machine-{number}"), "namespace": "fleet-local", "creationTimestamp": LONG_AGO},
        "status": {"phase": "Running", "nodeRef": {"name": format!("node-{number}")}},
    })
}

/// The Secret in which Rancher says what a node's agent is to do.
pub(crate) fn machine_plan(number: usize, annotations: Value, data: Value) -> Value {
    let encode = |text: &str| -> String {
        // Base64 of what the agent writes, without another crate: a Secret's stringData is data for our reader.
        base64(text.as_bytes())
    };
    let data: serde_json::Map<String, Value> = data
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), json!(encode(value.as_str().unwrap_or_default()))))
        .collect();
    json!({
        "metadata": {
            "name": format!("machine-{number}-plan"), "namespace": "fleet-local", "annotations": annotations,
            "labels": {"rke.cattle.io/machine-name": format!("machine-{number}")},
        },
        "type": "rke.cattle.io/machine-plan", "data": data,
    })
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

pub(crate) fn pod(namespace: &str, name: &str, node: &str, labels: Value, status: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "creationTimestamp": LONG_AGO},
        "spec": {"nodeName": node, "containers": [{"name": "c"}]}, "status": status,
    })
}

/// A pod that no node takes.
pub(crate) fn pending(mut pod: Value, message: &str) -> Value {
    pod["spec"]["nodeName"] = Value::Null;
    pod["status"] = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message},
    ]});
    pod
}

/// A pod whose container waits.
pub(crate) fn waiting(reason: &str) -> Value {
    json!({"phase": "Pending", "containerStatuses": [{
        "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": "pull access denied"}},
    }]})
}

/// A condition of a pod, a node or a Deployment.
pub(crate) fn condition(type_: &str, status: &str, since: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "lastTransitionTime": since, "message": message, "reason": "R"})
}

pub(crate) fn volume(status: Value) -> Value {
    let mut volume = json!({
        "metadata": {"name": "pvc-1", "namespace": "longhorn-system"},
        "spec": {"numberOfReplicas": 3},
        "status": {
            "state": "attached", "robustness": "healthy", "currentNodeID": "node-2",
            "kubernetesStatus": {"namespace": "default", "pvcName": "disk-1"},
        },
    });
    merge(&mut volume["status"], &status);
    volume
}

pub(crate) fn replica(node: &str) -> Value {
    json!({
        "metadata": {"name": "pvc-1-r-1", "namespace": "longhorn-system"},
        "spec": {"volumeName": "pvc-1", "nodeID": node}, "status": {"currentState": "running"},
    })
}

pub(crate) fn vmi(status: Value) -> Value {
    let mut vmi = json!({
        "metadata": {"name": "vm-1", "namespace": "default", "uid": "vmi-1", "creationTimestamp": LONG_AGO},
        "spec": {}, "status": {"phase": "Running", "nodeName": "node-1"},
    });
    merge(&mut vmi["status"], &status);
    vmi
}

pub(crate) fn launcher() -> Value {
    let labels =
        json!({"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": "vm-1", "kubevirt.io/created-by": "vmi-1"});
    pod(
        "default",
        "virt-launcher-vm-1-x",
        "node-1",
        labels,
        json!({"phase": "Running"}),
    )
}

pub(crate) fn migration(phase: &str) -> Value {
    json!({
        "metadata": {"name": "kubevirt-evacuation-x", "namespace": "default", "uid": "m-1", "creationTimestamp": LONG_AGO},
        "spec": {"vmiName": "vm-1"}, "status": {"phase": phase},
    })
}

pub(crate) fn deployment(namespace: &str, name: &str, status: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": LONG_AGO},
        "spec": {"selector": {}, "template": {}}, "status": status,
    })
}

pub(crate) fn slice(namespace: &str, service: &str, ready: &[bool]) -> Value {
    let endpoints: Vec<Value> = ready
        .iter()
        .map(|ready| json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}))
        .collect();
    json!({
        "metadata": {"name": format!("{service}-1"), "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "endpoints": endpoints,
    })
}
