//! What the tests of this crate share: a healthy cluster, a plan for it, and ways to spoil them.

use api::{UpgradePlan, names};
use checks::{Cluster, FieldError, admission, refusal};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The Version that plans name.
pub(crate) const VERSION: &str = "v1.8.0";

/// Reads an object of any kind.
pub(crate) fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// A plan for [`VERSION`].
pub(crate) fn plan() -> UpgradePlan {
    plan_with(json!({"version": VERSION}))
}

/// A plan of a specification.
pub(crate) fn plan_with(spec: Value) -> UpgradePlan {
    read(
        json!({"apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
        "metadata": {"name": "up"}, "spec": spec}),
    )
}

/// The plan with an annotation of ours.
pub(crate) fn annotated(mut plan: UpgradePlan, key: &str, value: &str) -> UpgradePlan {
    let annotations = plan.metadata.annotations.get_or_insert_default();
    annotations.insert(format!("management.harvesterhci.io/{key}"), value.to_owned());
    plan
}

/// Another plan with a phase and, if given, a Progressing condition.
pub(crate) fn other(name: &str, phase: &str, progressing: Option<&str>) -> UpgradePlan {
    let conditions: Vec<Value> = progressing
        .map(|status| {
            json!({"type": "Progressing", "status": status, "reason": "R", "message": "",
                "lastTransitionTime": "2026-03-13T03:57:09Z"})
        })
        .into_iter()
        .collect();
    read(
        json!({"metadata": {"name": name}, "spec": {"version": VERSION}, "status": {
        "currentPhase": phase, "conditions": conditions}}),
    )
}

/// Names of nodes are `node-1`, `node-2`, …
pub(crate) fn node(number: usize) -> Value {
    json!({
        "metadata": {"name": format!("node-{number}"), "labels": {"harvesterhci.io/managed": "true"},
            "annotations": {"cluster.x-k8s.io/machine": format!("machine-{number}")}},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// The machine of the node of that number.
pub(crate) fn machine(number: usize) -> Value {
    json!({
        "metadata": {"name": format!("machine-{number}"), "namespace": names::FLEET_NAMESPACE},
        "status": {"phase": "Running", "nodeRef": {"name": format!("node-{number}")}},
    })
}

/// A cluster of that many nodes on which nothing is wrong.
pub(crate) fn healthy(nodes: usize) -> Cluster {
    let mut cluster = Cluster::empty();
    cluster.nodes = Ok((1..=nodes).map(|number| read(node(number))).collect());
    cluster.machines = Ok((1..=nodes).map(|number| read(machine(number))).collect());
    let spec = json!({"isoURL": "https://releases.example.com/v1.8.0.iso"});
    cluster.versions = Ok(vec![named(names::HARVESTER_NAMESPACE, VERSION, json!({"spec": spec}))]);
    let ready = json!({"status": {"ready": true}});
    cluster.rancher_clusters = Ok(vec![named(names::FLEET_NAMESPACE, "local", ready)]);
    cluster
}

/// An object with a namespace, a name and the given fields.
pub(crate) fn named<K: DeserializeOwned>(namespace: &str, name: &str, fields: Value) -> K {
    let mut object = fields;
    object["metadata"] = json!({"namespace": namespace, "name": name});
    read(object)
}

/// A Longhorn volume that serves `default/<name>-data`.
pub(crate) fn volume(name: &str, replicas: i64, state: &str, robustness: &str) -> api::foreign::longhorn::Volume {
    let claim = json!({"namespace": "default", "pvcName": format!("{name}-data")});
    let fields = json!({"spec": {"numberOfReplicas": replicas},
        "status": {"state": state, "robustness": robustness, "kubernetesStatus": claim}});
    named(names::LONGHORN_NAMESPACE, name, fields)
}

/// A VM that runs on node-1.
pub(crate) fn vmi(name: &str, spec: Value) -> api::foreign::kubevirt::VirtualMachineInstance {
    named(
        "default",
        name,
        json!({"spec": spec, "status": {"nodeName": "node-1", "phase": "Running"}}),
    )
}

/// An image that holds an upgrade ISO, as the product and Harvester's UI make it.
pub(crate) fn upgrade_image(name: &str) -> api::foreign::harvester::VirtualMachineImage {
    read(json!({
        "metadata": {"namespace": names::HARVESTER_NAMESPACE, "name": name,
            "annotations": {"harvesterhci.io/os-upgrade-image": "True"}},
        "spec": {"backend": "cdi"},
    }))
}

/// What is wrong with creating the plan, as texts.
pub(crate) fn create(plan: &UpgradePlan, cluster: &Cluster) -> Vec<String> {
    texts(&admission::create(plan, cluster))
}

/// Errors as texts.
pub(crate) fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// The message of the refusal.
pub(crate) fn message(plan: &UpgradePlan, cluster: &Cluster) -> String {
    let name = plan.metadata.name.clone().unwrap_or_default();
    refusal::status(&name, &admission::create(plan, cluster))
        .unwrap()
        .message
}
