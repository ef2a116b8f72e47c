//! Who steers an upgrade, looked at with every change of a simulated cluster: only what the plan owns, and only images that
//! are allowed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use api::{Component, JobType, annotations, labels};
use apiserver::Change;
use cli::rehearsal::{Rehearsal, manager_user};
use serde_json::Value;

/// What was seen so far.
#[derive(Default)]
pub(crate) struct Trust {
    manager: String,
    /// The repositories that images may come from.
    repositories: BTreeSet<String>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    plans: BTreeSet<String>,
    /// UIDs of Plans of system-upgrade-controller that an UpgradePlan owns.
    suc_plans: BTreeSet<String>,
    /// Components whose own Job or Plan is through.
    through: BTreeSet<String>,
    /// Steps of nodes whose own Job is through.
    steps: BTreeSet<(String, String)>,
    /// Nodes, by machine.
    nodes: BTreeMap<String, String>,
    /// All VMs that were ever on a restore list.
    listed: BTreeSet<String>,
}

impl Trust {
    pub(crate) fn new(rehearsal: &Rehearsal) -> Self {
        let trust = Self {
            manager: manager_user(),
            repositories: [plan::observed::Settings::default().own_image.repository].into(),
            ..Self::default()
        };
        let machines = rehearsal.server.store().list("cluster.x-k8s.io", "machines", None);
        trust
            .state
            .lock()
            .unwrap()
            .nodes
            .extend(machines.iter().filter_map(|machine| machine_node(machine)));
        trust
    }

    /// What a change shows that must not be.
    pub(crate) fn look(&self, change: &Change) -> Vec<String> {
        let mut state = self.state.lock().unwrap();
        let object = &change.object;
        let by_manager = change.user == self.manager;
        match (change.resource.group.as_str(), change.resource.plural.as_str()) {
            ("management.harvesterhci.io", "upgradeplans") => {
                state.plans.insert(text(&object["metadata"]["uid"]));
                return state.advanced(change);
            }
            ("upgrade.cattle.io", "plans") => {
                state.suc_plan(object);
                return if by_manager { self.images(object) } else { Vec::new() };
            }
            ("batch", "jobs") => {
                state.job(object);
                return if by_manager { self.images(object) } else { Vec::new() };
            }
            ("apps", "deployments") => {
                state.deployment(object);
                return if by_manager { self.images(object) } else { Vec::new() };
            }
            ("cluster.x-k8s.io", "machines") => state.nodes.extend(machine_node(object)),
            ("", "configmaps") if is_owned(object, &state.plans) => {
                let lists = object["data"].as_object().into_iter().flatten();
                for (_, list) in lists {
                    let vms = list.as_str().unwrap_or_default().split(',');
                    state.listed.extend(vms.map(|vm| vm.trim().to_owned()));
                }
            }
            ("", "secrets") if by_manager => return state.answered(change),
            ("kubevirt.io", "virtualmachines") => return state.stopped(change),
            _ => {}
        }
        Vec::new()
    }

    /// Every image that an object runs comes from an allowed repository.
    fn images(&self, object: &Value) -> Vec<String> {
        let pod = &object["spec"]["template"]["spec"];
        let containers = ["initContainers", "containers"].into_iter();
        let containers = containers.flat_map(|field| pod[field].as_array().into_iter().flatten());
        let images = containers.map(|one| &one["image"]);
        let images = images.chain(["prepare", "upgrade"].map(|part| &object["spec"][part]["image"]));
        let images = images.filter_map(Value::as_str);
        let foreign = images.filter(|image| !self.repositories.contains(repository(image)));
        foreign
            .map(|image| format!("image {image} comes from a repository that is not allowed"))
            .collect()
    }
}

impl State {
    fn suc_plan(&mut self, plan: &Value) {
        if !is_owned(plan, &self.plans) {
            return;
        }
        self.suc_plans.insert(text(&plan["metadata"]["uid"]));
        if has_condition(plan, "Complete") {
            self.through.insert(label(plan, labels::UPGRADE_COMPONENT));
        }
    }

    fn deployment(&mut self, deployment: &Value) {
        let is_there = deployment["status"]["availableReplicas"].as_i64() > Some(0);
        if is_there && is_owned(deployment, &self.plans) {
            self.through.insert(label(deployment, labels::UPGRADE_COMPONENT));
        }
    }

    fn job(&mut self, job: &Value) {
        if !is_owned(job, &self.plans) || !has_condition(job, "Complete") {
            return;
        }
        self.through.insert(label(job, labels::UPGRADE_COMPONENT));
        let step = (label(job, labels::JOB_TYPE), label(job, labels::NODE));
        self.steps.insert(step);
    }

    /// A phase ends only by an object of the plan.
    fn advanced(&self, change: &Change) -> Vec<String> {
        let mut problems = Vec::new();
        let phase = |plan: &Value| text(&plan["status"]["currentPhase"]);
        let before = change.previous.as_ref().map(|plan| phase(plan)).unwrap_or_default();
        let now = phase(&change.object);
        let needed: &[Component] = match now.as_str() {
            "RepoCreated" => &[Component::Repo],
            "ImagePreloaded" => &[Component::ImagePreload, Component::ImageCheck],
            "ClusterUpgraded" => &[Component::ClusterUpgrade],
            // Where no image is stale, there is nothing to clean up.
            _ => &[],
        };
        if before != now && !needed.is_empty() && !needed.iter().any(|part| self.through.contains(part.as_str())) {
            problems.push(format!("{now} although nothing of the plan did it"));
        }
        let status = change.object["status"].to_string();
        if status.contains("evil.test") || status.contains("not-stopped") {
            problems.push(format!("the plan repeats what a stranger says: {status}"));
        }
        problems
    }

    /// A hook is answered only after the Job of the plan for that node is through.
    fn answered(&self, change: &Change) -> Vec<String> {
        let machine = label(&change.object, labels::MACHINE_NAME);
        let node = self.nodes.get(&machine).cloned().unwrap_or_default();
        let hooks = [
            (annotations::PRE_HOOK, JobType::PreDrain),
            (annotations::POST_HOOK, JobType::PostDrain),
        ];
        let answer = |secret: &Value, hook: &str| secret["metadata"]["annotations"][hook].clone();
        let wrong = hooks.into_iter().filter(|(hook, step)| {
            let before = change.previous.as_ref().map(|secret| answer(secret, hook));
            let now = answer(&change.object, hook);
            now.is_string() && before.as_ref() != Some(&now) && !self.steps.contains(&(step.to_string(), node.clone()))
        });
        wrong
            .map(|(hook, _)| format!("{hook} of node {node} is answered without its Job"))
            .collect()
    }

    /// No VM is stopped that is not on the list of those to start again.
    fn stopped(&self, change: &Change) -> Vec<String> {
        let strategy = |vm: &Value| text(&vm["spec"]["runStrategy"]);
        let was = change.previous.as_ref().map(|vm| strategy(vm)).unwrap_or_default();
        let meta = &change.object["metadata"];
        let name = format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]));
        let stops = strategy(&change.object) == "Halted" && !was.is_empty() && was != "Halted";
        if stops && !self.listed.contains(&name) {
            return vec![format!("VM {name} is stopped and on no list")];
        }
        Vec::new()
    }
}

fn machine_node(machine: &Value) -> Option<(String, String)> {
    let node = machine["status"]["nodeRef"]["name"].as_str()?;
    Some((text(&machine["metadata"]["name"]), node.to_owned()))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn label(object: &Value, key: &str) -> String {
    text(&object["metadata"]["labels"][key])
}

fn has_condition(object: &Value, type_: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|condition| condition["type"] == type_ && condition["status"] == "True")
}

fn is_owned(object: &Value, uids: &BTreeSet<String>) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.into_iter().any(|owner| uids.contains(&text(&owner["uid"])))
}

/// An image without its tag and digest.
fn repository(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => image,
    }
}
