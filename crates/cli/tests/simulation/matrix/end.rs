//! What a cluster looks like before and after an upgrade, and what is wrong with it afterwards.

use std::collections::{BTreeMap, BTreeSet};

use api::annotations;
use cli::rehearsal::Rehearsal;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::Value;
use world::Release;

/// What the simulated cluster keeps for itself.
const WORLDS_OWN: &str = "world.upgrade-toolkit/";

/// The setting of Longhorn that a release brings along.
const OF_THE_RELEASE: &str = "default-instance-manager-image";

/// How VMs are to be after an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vms {
    AsBefore,
    /// All of them were stopped for it, and no user requested to start them again.
    Stopped,
}

/// What matters of a cluster.
pub(super) struct Cluster {
    nodes: BTreeMap<String, Node>,
    /// Settings that an upgrade changes and restores, by a name for users.
    settings: BTreeMap<String, Value>,
    /// How each VM is, by `namespace/name`.
    vms: BTreeMap<String, Value>,
    /// What is there only for an upgrade.
    ours: BTreeSet<String>,
    /// What Rancher asks about machines.
    questions: BTreeSet<String>,
}

struct Node {
    system: Value,
    kubelet: Value,
    cordoned: bool,
    ready: bool,
    /// Taints, and the keys of labels and annotations.
    marks: BTreeSet<String>,
}

impl Cluster {
    pub(super) fn of(rehearsal: &Rehearsal) -> Self {
        let nodes = rehearsal.objects("", "nodes");
        let vms = rehearsal.objects("kubevirt.io", "virtualmachines");
        Self {
            nodes: nodes.iter().map(|node| (node.name_any(), Node::of(node))).collect(),
            settings: settings(rehearsal),
            vms: vms
                .iter()
                .map(|vm| (full_name(vm), vm.data["status"]["printableStatus"].clone()))
                .collect(),
            ours: ours(rehearsal),
            questions: questions(rehearsal),
        }
    }
}

impl Cluster {
    /// Namespace and name of each VM that is not stopped.
    pub(super) fn running(&self) -> impl Iterator<Item = (&str, &str)> {
        let running = self.vms.iter().filter(|(_, shown)| *shown != "Stopped");
        running.filter_map(|(name, _)| name.split_once('/'))
    }
}

impl Node {
    fn of(node: &DynamicObject) -> Self {
        let info = &node.data["status"]["nodeInfo"];
        let labels = node.labels().keys().map(|key| format!("label {key}"));
        let annotations = node.annotations().keys().filter(|key| !key.starts_with(WORLDS_OWN));
        let annotations = annotations.map(|key| format!("annotation {key}"));
        let taints = node.data["spec"]["taints"].as_array().into_iter().flatten();
        let taints = taints.map(|taint| format!("taint {}", taint["key"].as_str().unwrap_or_default()));
        let mut conditions = node.data["status"]["conditions"].as_array().into_iter().flatten();
        Self {
            system: info["osImage"].clone(),
            kubelet: info["kubeletVersion"].clone(),
            cordoned: node.data["spec"]["unschedulable"] == true,
            ready: conditions.any(|one| one["type"] == "Ready" && one["status"] == "True"),
            marks: labels.chain(annotations).chain(taints).collect(),
        }
    }
}

fn full_name(object: &DynamicObject) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

fn settings(rehearsal: &Rehearsal) -> BTreeMap<String, Value> {
    let one = |group: &str, plural: &str, namespace: &str, name: &str| {
        let found = rehearsal.server.store().get(group, plural, namespace, name);
        found.map(|object| (*object).clone()).unwrap_or_default()
    };
    let kubevirt = one("kubevirt.io", "kubevirts", "harvester-system", "kubevirt");
    let cluster = one("provisioning.cattle.io", "clusters", "fleet-local", "local");
    let mut settings = BTreeMap::from([
        (
            "KubeVirt's methods".to_owned(),
            kubevirt["spec"]["workloadUpdateStrategy"].clone(),
        ),
        (
            "Rancher's upgradeStrategy".to_owned(),
            cluster["spec"]["rkeConfig"]["upgradeStrategy"].clone(),
        ),
        (
            "the record of Rancher's upgradeStrategy".to_owned(),
            cluster["metadata"]["annotations"][annotations::SAVED_UPGRADE_STRATEGY].clone(),
        ),
    ]);
    let kept = rehearsal.objects("longhorn.io", "settings").into_iter();
    for setting in kept.filter(|setting| setting.name_any() != OF_THE_RELEASE) {
        settings.insert(
            format!("Longhorn's {}", setting.name_any()),
            setting.data["value"].clone(),
        );
    }
    for addon in rehearsal.objects("harvesterhci.io", "addons") {
        let enabled = addon.data["spec"]["enabled"].clone();
        settings.insert(format!("addon {}", full_name(&addon)), enabled);
    }
    for chart in rehearsal.objects("management.cattle.io", "managedcharts") {
        let (name, spec) = (chart.name_any(), &chart.data["spec"]);
        let paused = Value::Bool(spec["paused"] == true);
        settings.insert(format!("chart {name} is paused"), paused);
        let paused_by = chart.annotations().get(annotations::CHART_PAUSED_BY);
        settings.insert(format!("who paused chart {name}"), paused_by.cloned().into());
        let record = chart.annotations().get(annotations::SAVED_CHART_METHODS);
        settings.insert(format!("what is noted on chart {name}"), record.cloned().into());
        let ignores = spec["diff"]["comparePatches"]
            .as_array()
            .is_some_and(|patches| !patches.is_empty());
        settings.insert(format!("chart {name} ignores changes"), Value::Bool(ignores));
        let methods = &spec["values"]["kubevirt"]["spec"]["workloadUpdateStrategy"];
        settings.insert(format!("chart {name} sets KubeVirt's methods"), methods.clone());
    }
    settings
}

/// Objects that are there only for an upgrade. Jobs and images of a plan that failed stay with it; Jobs that start VMs
/// stay in any case.
fn ours(rehearsal: &Rehearsal) -> BTreeSet<String> {
    let mut ours = BTreeSet::new();
    for (group, plural) in [
        ("upgrade.cattle.io", "plans"),
        ("apps", "deployments"),
        ("", "services"),
    ] {
        let objects = rehearsal.objects(group, plural);
        ours.extend(objects.iter().map(|object| format!("{plural} {}", full_name(object))));
    }
    let running = |job: &&DynamicObject| job.data["status"]["active"].as_i64() > Some(0);
    let jobs = rehearsal.objects("batch", "jobs");
    ours.extend(
        jobs.iter()
            .filter(running)
            .map(|job| format!("running Job {}", full_name(job))),
    );
    ours
}

fn questions(rehearsal: &Rehearsal) -> BTreeSet<String> {
    let asks = |secret: &DynamicObject| {
        let keys = [annotations::RKE_PRE_DRAIN, annotations::RKE_POST_DRAIN];
        let asked = |key: &&str| secret.annotations().get(*key).is_some_and(|token| !token.is_empty());
        keys.into_iter()
            .filter(asked)
            .map(|key| format!("{key} of {}", secret.name_any()))
            .collect::<Vec<_>>()
    };
    rehearsal.objects("", "secrets").iter().flat_map(asks).collect()
}

/// Everything that is not as it should be after an upgrade to a release.
pub(super) fn shortcomings(before: &Cluster, after: &Cluster, to: &Release, vms: Vms) -> Vec<String> {
    let mut wrong = Vec::new();
    let gone = before.nodes.keys().filter(|name| !after.nodes.contains_key(*name));
    wrong.extend(gone.map(|name| format!("{name} is gone")));
    for (name, node) in &after.nodes {
        if node.system != to.os.as_str() {
            wrong.push(format!("{name} runs {}", node.system));
        }
        if node.kubelet != to.kubernetes.as_str() {
            wrong.push(format!("{name} has kubelet {}", node.kubelet));
        }
        if node.cordoned {
            wrong.push(format!("{name} is cordoned"));
        }
        if !node.ready {
            wrong.push(format!("{name} is not ready"));
        }
        let marks = before.nodes.get(name).map(|node| &node.marks);
        let new = node
            .marks
            .iter()
            .filter(|mark| !marks.is_some_and(|marks| marks.contains(*mark)));
        wrong.extend(new.map(|mark| format!("{name} has {mark}")));
    }
    for (name, was) in &before.settings {
        let is = after.settings.get(name).unwrap_or(&Value::Null);
        if is != was {
            wrong.push(format!("{name}: {was} became {is}"));
        }
    }
    for (name, was) in &before.vms {
        let is = after.vms.get(name).unwrap_or(&Value::Null);
        let stopped = Value::from("Stopped");
        let wanted = match vms {
            Vms::AsBefore => was,
            Vms::Stopped => &stopped,
        };
        if is != wanted {
            wrong.push(format!("VM {name}: {was} became {is}"));
        }
    }
    wrong.extend(
        after
            .ours
            .difference(&before.ours)
            .map(|left| format!("{left} is left")),
    );
    wrong.extend(after.questions.iter().map(|asked| format!("unanswered: {asked}")));
    wrong
}
