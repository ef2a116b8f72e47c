//! What must never be, looked for at every change of a simulated cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use api::{Component, JobKind, JobType, NodeState, Phase, annotations, labels};
use apiserver::{Change, ChangeKind, Verb};
use cli::rehearsal::{Rehearsal, manager_user};
use manager::tls::managed;
use serde_json::Value;

use crate::trust::Trust;

/// Looks at every change as it is committed.
pub(crate) fn watch(rehearsal: &Rehearsal, retried: bool) -> Arc<Mutex<Vec<String>>> {
    watch_past(rehearsal, retried, BTreeSet::new())
}

/// The same where Rancher lets the machines of some nodes past its limit.
pub(crate) fn watch_past(rehearsal: &Rehearsal, retried: bool, past: BTreeSet<String>) -> Arc<Mutex<Vec<String>>> {
    let violations = Arc::new(Mutex::new(Vec::new()));
    let found = violations.clone();
    let user = manager_user();
    let disrupted = Mutex::new(Disrupted::new(rehearsal, past));
    let created: Mutex<BTreeSet<String>> = Mutex::default();
    let plans = AtomicI64::new(0);
    // What the observer needs of nodes it keeps itself: the store keeps the observer, so the observer must not keep the
    // store, or neither is ever dropped.
    let nodes = rehearsal.server.store().list("", "nodes", None);
    let kubelets: BTreeMap<String, Value> = nodes.iter().map(|node| kubelet(node)).collect();
    let kubelets = Mutex::new(kubelets);
    let trust = Trust::new(rehearsal);
    rehearsal.server.store().observe(move |change| {
        let mut problems = trust.look(change);
        if change.resource.plural == "upgradeplans" && change.kind == ChangeKind::Added {
            plans.fetch_add(1, Ordering::SeqCst);
        }
        match change.resource.plural.as_str() {
            // Another try begins in the phase that failed; what nodes have reached stays.
            "upgradeplans" => problems.extend(went_back(change, retried && failed_before(change))),
            "nodes" => {
                problems.extend(disrupted.lock().unwrap().see_node(change));
                let (name, version) = kubelet(&change.object);
                let mut kubelets = kubelets.lock().unwrap();
                if change.kind == ChangeKind::Deleted {
                    kubelets.remove(&name);
                } else {
                    kubelets.insert(name, version);
                }
            }
            "clusters" if change.resource.group == "provisioning.cattle.io" => {
                problems.extend(opened_the_gate(change, &kubelets.lock().unwrap()));
                problems.extend(started_rancher_too_often(change, plans.load(Ordering::SeqCst)));
            }
            "secrets" => problems.extend(disrupted.lock().unwrap().see_secret(change)),
            "jobs" => problems.extend(of_no_kind(change)),
            _ => {}
        }
        if change.user == user && change.verb == Verb::Create && change.kind == ChangeKind::Added {
            let owned = change.object["metadata"]["ownerReferences"].is_array();
            // The certificate of the webhooks is of the manager, and of no plan.
            let of_manager = change.object["metadata"]["name"] == managed::SECRET;
            if !owned && !of_manager && !["events", "leases"].contains(&change.resource.plural.as_str()) {
                problems.push(format!("{} created without an owner", change.resource.plural));
            }
            let runs_once = ["jobs", "plans"].contains(&change.resource.plural.as_str());
            let name = format!("{} {}", change.resource.plural, change.object["metadata"]["name"]);
            // Another try does again what failed.
            if runs_once && !retried && !created.lock().unwrap().insert(name.clone()) {
                problems.push(format!("{name} created twice"));
            }
        }
        found.lock().unwrap().extend(problems);
    });
    violations
}

/// Every Job of an upgrade is of a kind that is known: the matrix of failures has cases for these, and for no others.
fn of_no_kind(change: &Change) -> Option<String> {
    let metadata = &change.object["metadata"];
    let label = |key: &str| metadata["labels"][key].as_str().unwrap_or_default();
    let (component, job_type) = (label(labels::UPGRADE_COMPONENT), label(labels::JOB_TYPE));
    let is_ours = metadata["ownerReferences"].is_array() && !component.is_empty();
    (is_ours && job_kind(&change.object).is_none())
        .then(|| format!("Job {} is of no kind: {component} {job_type}", metadata["name"]))
}

/// The kind of a Job by its labels. One with an unknown value has none.
pub(crate) fn job_kind(job: &Value) -> Option<JobKind> {
    let label = |key: &str| {
        job["metadata"]["labels"][key]
            .as_str()
            .filter(|value| !value.is_empty())
    };
    let component = Component::parse(label(labels::UPGRADE_COMPONENT)?)?;
    let job_type = match label(labels::JOB_TYPE) {
        None => None,
        Some(value) => Some(JobType::parse(value)?),
    };
    JobKind::of(component, job_type)
}

fn failed_before(change: &Change) -> bool {
    change
        .previous
        .as_ref()
        .is_some_and(|plan| plan["status"]["currentPhase"] == "Failed")
}

/// Neither the plan nor a node may ever go back.
fn went_back(change: &Change, tried_again: bool) -> Vec<String> {
    let Some(previous) = &change.previous else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    let phase = |object: &Value| {
        object["status"]["currentPhase"]
            .as_str()
            .and_then(|text| text.parse::<Phase>().ok())
    };
    if let (Some(old), Some(new)) = (phase(previous), phase(&change.object))
        && new < old
        && !tried_again
    {
        problems.push(format!("the plan went back from {old} to {new}"));
    }
    let nodes = previous["status"]["nodeUpgradeStatuses"].as_object();
    for (name, old) in nodes.into_iter().flatten() {
        let stage = |entry: &Value| {
            entry["state"]
                .as_str()
                .and_then(NodeState::parse)
                .map(plan::node::Stage::of)
        };
        let new = &change.object["status"]["nodeUpgradeStatuses"][name];
        if stage(new) < stage(old) {
            problems.push(format!("node {name} went back from {old} to {new}"));
        }
    }
    problems
}

/// Never more than one node is cordoned or down. A machine that Rancher lets past its limit it cordons before it asks us, and
/// no client can prevent that: until that question is answered, and while we have not begun to empty the node, its cordon
/// alone is Rancher's.
struct Disrupted {
    nodes: BTreeMap<String, ObservedNode>,
    /// Nodes whose machines Rancher lets past its limit.
    past: BTreeSet<String>,
    /// The nodes of machine-plan Secrets.
    machines: BTreeMap<String, String>,
    /// Nodes whose first question is answered.
    answered: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ObservedNode {
    is_down: bool,
    is_cordoned: bool,
    is_emptied: bool,
}

impl Disrupted {
    fn new(rehearsal: &Rehearsal, past: BTreeSet<String>) -> Self {
        let machines = rehearsal.server.store().list("cluster.x-k8s.io", "machines", None);
        let machines = machines.iter().map(|machine| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let node = text(&machine["status"]["nodeRef"]["name"]);
            (text(&machine["metadata"]["name"]), node)
        });
        Self {
            nodes: BTreeMap::new(),
            past,
            machines: machines.collect(),
            answered: BTreeSet::new(),
        }
    }

    fn see_node(&mut self, change: &Change) -> Option<String> {
        let object = &change.object;
        let conditions = &object["status"]["conditions"];
        let mut all = conditions.as_array().into_iter().flatten();
        let is_ready = all.any(|c| c["type"] == "Ready" && c["status"] == "True");
        let mut taints = object["spec"]["taints"].as_array().into_iter().flatten();
        let seen = ObservedNode {
            is_down: conditions.is_array() && !is_ready,
            is_cordoned: conditions.is_array() && object["spec"]["unschedulable"] == true,
            is_emptied: taints.any(|taint| taint["key"] == "kubevirt.io/drain"),
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        self.nodes.insert(name.to_owned(), seen);
        self.too_many()
    }

    fn see_secret(&mut self, change: &Change) -> Option<String> {
        let metadata = &change.object["metadata"];
        let machine = metadata["labels"][labels::MACHINE_NAME].as_str()?;
        let node = self.machines.get(machine)?.clone();
        let (question, answer) = (
            &metadata["annotations"][annotations::RKE_PRE_DRAIN],
            &metadata["annotations"][annotations::PRE_HOOK],
        );
        if question.is_string() && question == answer {
            self.answered.insert(node);
        } else {
            self.answered.remove(&node);
        }
        self.too_many()
    }

    fn too_many(&self) -> Option<String> {
        let is_disrupted = |(name, seen): &(&String, &ObservedNode)| {
            let is_ranchers = self.past.contains(*name) && !self.answered.contains(*name) && !seen.is_emptied;
            seen.is_down || (seen.is_cordoned && !is_ranchers)
        };
        let names: Vec<&String> = self.nodes.iter().filter(is_disrupted).map(|(name, _)| name).collect();
        (names.len() > 1).then(|| format!("{} nodes are disrupted at once: {names:?}", names.len()))
    }
}

/// The name of a node, and the version of its kubelet.
fn kubelet(node: &Value) -> (String, Value) {
    let name = node["metadata"]["name"].as_str().unwrap_or_default();
    (name.to_owned(), node["status"]["nodeInfo"]["kubeletVersion"].clone())
}

/// Our hooks are what Rancher stops at before it touches a node.
fn is_gated(cluster: &Value) -> bool {
    let strategy = &cluster["spec"]["rkeConfig"]["upgradeStrategy"];
    let hook = |tier: &str| strategy[tier]["preDrainHooks"][0]["annotation"] == annotations::PRE_HOOK;
    hook("controlPlaneDrainOptions") && hook("workerDrainOptions")
}

/// No write may remove the hooks while Rancher still has nodes left, nor start Rancher without them.
fn opened_the_gate(change: &Change, kubelets: &BTreeMap<String, Value>) -> Option<String> {
    let version = &change.object["spec"]["kubernetesVersion"];
    let behind: Vec<&String> = kubelets
        .iter()
        .filter(|(_, running)| *running != version)
        .map(|(name, _)| name)
        .collect();
    let has_started = change.object["spec"]["rkeConfig"]["provisionGeneration"].as_i64() > Some(0);
    (has_started && !is_gated(&change.object) && !behind.is_empty())
        .then(|| format!("Rancher's gate is open and {behind:?} are not upgraded"))
}

/// Each plan starts Rancher's upgrade at most once.
fn started_rancher_too_often(change: &Change, plans: i64) -> Option<String> {
    let times = change.object["spec"]["rkeConfig"]["provisionGeneration"].as_i64()?;
    (times > plans).then(|| format!("Rancher's upgrade was started {times} times for {plans} plans"))
}
