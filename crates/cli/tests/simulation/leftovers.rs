//! What an upgrade may not leave behind, and what it must have brought.

use std::collections::{BTreeMap, BTreeSet};

use api::{annotations, labels};
use cli::rehearsal::Rehearsal;
use kube::ResourceExt;
use serde_json::{Value, json};

/// What a cluster was like before its upgrade.
pub(crate) struct Before {
    /// Settings, charts and whatever else an upgrade changes on its way, by name.
    settings: BTreeMap<&'static str, Value>,
    /// VMs that run.
    running: BTreeSet<String>,
}

fn one(rehearsal: &Rehearsal, group: &str, plural: &str, namespace: &str, name: &str) -> Value {
    let found = rehearsal.server.store().get(group, plural, namespace, name);
    found.map(|object| (*object).clone()).unwrap_or_default()
}

fn settings(rehearsal: &Rehearsal) -> BTreeMap<&'static str, Value> {
    let one = |group: &str, plural: &str, namespace: &str, name: &str| one(rehearsal, group, plural, namespace, name);
    let interval = one(
        "longhorn.io",
        "settings",
        "longhorn-system",
        "replica-replenishment-wait-interval",
    );
    let kubevirt = one("kubevirt.io", "kubevirts", "harvester-system", "kubevirt");
    let cluster = one("provisioning.cattle.io", "clusters", "fleet-local", "local");
    let descheduler = one("harvesterhci.io", "addons", "kube-system", "descheduler");
    BTreeMap::from([
        ("Longhorn's replenishment interval", interval["value"].clone()),
        (
            "KubeVirt's workloadUpdateMethods",
            kubevirt["spec"]["workloadUpdateStrategy"]["workloadUpdateMethods"].clone(),
        ),
        (
            "the upgradeStrategy",
            cluster["spec"]["rkeConfig"]["upgradeStrategy"].clone(),
        ),
        ("the descheduler", descheduler["spec"]["enabled"].clone()),
    ])
}

fn running(rehearsal: &Rehearsal) -> BTreeSet<String> {
    let vms = rehearsal.objects("kubevirt.io", "virtualmachines");
    let running = vms
        .iter()
        .filter(|vm| vm.data["status"]["printableStatus"] == "Running");
    running.map(ResourceExt::name_any).collect()
}

/// What a cluster is like now.
pub(crate) fn of(rehearsal: &Rehearsal) -> Before {
    Before {
        settings: settings(rehearsal),
        running: running(rehearsal),
    }
}

/// What is not as it should be after an upgrade.
pub(crate) fn after(rehearsal: &Rehearsal, before: &Before) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, now) in settings(rehearsal) {
        if before.settings[name] != now {
            problems.push(format!("{name} was {} and is {now}", before.settings[name]));
        }
    }
    let stopped: Vec<_> = before.running.difference(&running(rehearsal)).cloned().collect();
    if !stopped.is_empty() {
        problems.push(format!("VMs do not run again: {}", stopped.join(", ")));
    }
    for node in rehearsal.objects("", "nodes") {
        problems.extend(of_node(&node.name_any(), &node.data, &node.metadata));
    }
    for chart in rehearsal.objects("management.cattle.io", "managedcharts") {
        if chart.data["spec"]["paused"] == true {
            problems.push(format!("ManagedChart {} is paused", chart.name_any()));
        }
    }
    for (group, plural) in [
        ("upgrade.cattle.io", "plans"),
        ("harvesterhci.io", "virtualmachineimages"),
    ] {
        let left = rehearsal.objects(group, plural);
        // The image of a plan that failed stays for another try, and goes with its plan.
        let left = left
            .iter()
            .filter(|object| plural == "plans" || object.owner_references().is_empty());
        problems.extend(left.map(|object| format!("{plural} {} is left", object.name_any())));
    }
    problems
}

fn of_node(
    name: &str,
    node: &Value,
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Vec<String> {
    let mut problems = Vec::new();
    let info = &node["status"]["nodeInfo"];
    if info["osImage"] != "Harvester v1.8.0" || info["kubeletVersion"] != "v1.35.2+rke2r1" {
        problems.push(format!(
            "{name} runs {} and {}",
            info["osImage"], info["kubeletVersion"]
        ));
    }
    if node["spec"]["unschedulable"] == json!(true) {
        problems.push(format!("{name} is cordoned"));
    }
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    if taints.into_iter().any(|taint| taint["key"] == labels::DRAIN_TAINT) {
        problems.push(format!("{name} has the drain taint"));
    }
    let keys =
        |all: &Option<BTreeMap<String, String>>| all.iter().flat_map(|all| all.keys().cloned()).collect::<Vec<_>>();
    let ours = [annotations::PENDING_OS_IMAGE, annotations::BOOT_ID_BEFORE_UPGRADE];
    let left = keys(&metadata.annotations)
        .into_iter()
        .filter(|key| ours.contains(&key.as_str()));
    problems.extend(left.map(|key| format!("{name} has the annotation {key}")));
    let left = keys(&metadata.labels)
        .into_iter()
        .filter(|key| key.starts_with(labels::SUC_NODE_PLAN_PREFIX));
    problems.extend(left.map(|key| format!("{name} has the label {key}")));
    problems
}
