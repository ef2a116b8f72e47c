//! Who steers an upgrade, looked at with every change of a simulated cluster: only what the plan owns, and only images that
//! are allowed.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use api::{Component, JobType, annotations, foreign::kubevirt::VirtualMachineInstance, labels};
use apiserver::{Change, ChangeKind};
use cli::rehearsal::{Rehearsal, manager_user};
use rules::migration::unlisted;
use serde_json::Value;

/// Instead of the phase of a plan that is not there any more.
const GONE: &str = "gone";

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
    /// Their phases, by UID.
    plans: BTreeMap<String, String>,
    /// What a plan has made, by its UID: components of Plans of system-upgrade-controller.
    made: BTreeSet<(String, String)>,
    /// Components whose own Job or Plan is through, by the UID of the plan that owns it: one vouches for no other.
    through: BTreeSet<(String, String)>,
    /// Steps of nodes whose own Job is through: UID of the plan, step, node.
    steps: BTreeSet<(String, String, String)>,
    /// Nodes, by machine.
    nodes: BTreeMap<String, String>,
    /// Which system and which Kubernetes nodes had when they were seen first.
    had: BTreeMap<String, (String, String)>,
    /// All VMs that were ever on a restore list.
    listed: BTreeSet<String>,
    /// VMs that are on no list when they are stopped: as they are now, no request to start them exists.
    unlisted: BTreeSet<String>,
}

impl Trust {
    pub(crate) fn new(rehearsal: &Rehearsal) -> Self {
        let trust = Self {
            manager: manager_user(),
            repositories: [plan::observed::Settings::default().own_image.repository].into(),
            ..Self::default()
        };
        let machines = rehearsal.server.store().list("cluster.x-k8s.io", "machines", None);
        let nodes = rehearsal.server.store().list("", "nodes", None);
        let mut state = trust.state.lock().unwrap();
        state
            .nodes
            .extend(machines.iter().filter_map(|machine| machine_node(machine)));
        nodes.iter().for_each(|node| state.see_node(node));
        let store = rehearsal.server.store();
        let instances = store.list("kubevirt.io", "virtualmachineinstances", None);
        instances.iter().for_each(|instance| state.see_instance(instance));
        drop(state);
        trust
    }

    /// What a change shows that must not be.
    pub(crate) fn look(&self, change: &Change) -> Vec<String> {
        let mut state = self.state.lock().unwrap();
        let object = &change.object;
        let by_manager = change.user == self.manager;
        match (change.resource.group.as_str(), change.resource.plural.as_str()) {
            ("management.harvesterhci.io", "upgradeplans") => {
                let phase = match change.kind {
                    ChangeKind::Deleted => GONE.to_owned(),
                    _ => text(&object["status"]["currentPhase"]),
                };
                state.plans.insert(text(&object["metadata"]["uid"]), phase);
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
            ("cluster.x-k8s.io", "machines") if change.kind == ChangeKind::Deleted => {
                state.nodes.remove(&text(&object["metadata"]["name"]));
            }
            ("cluster.x-k8s.io", "machines") => state.nodes.extend(machine_node(object)),
            ("", "configmaps") if state.owner(object).is_some() => {
                let lists = object["data"].as_object().into_iter().flatten();
                for (_, list) in lists {
                    let vms = list.as_str().unwrap_or_default().split(',');
                    state.listed.extend(vms.map(|vm| vm.trim().to_owned()));
                }
            }
            ("", "nodes") => state.see_node(object),
            ("", "secrets") if by_manager => return state.answered(change),
            ("kubevirt.io", "virtualmachines") => return state.stopped(change),
            ("kubevirt.io", "virtualmachineinstances") => {
                let problems = state.ended(change);
                state.see_instance(object);
                return problems;
            }
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
    /// The UID of the plan that an object belongs to.
    fn owner(&self, object: &Value) -> Option<String> {
        let owners = object["metadata"]["ownerReferences"].as_array()?;
        let mut uids = owners.iter().map(|owner| text(&owner["uid"]));
        uids.find(|uid| self.plans.contains_key(uid))
    }

    fn suc_plan(&mut self, plan: &Value) {
        let Some(owner) = self.owner(plan) else { return };
        let part = (owner, label(plan, labels::UPGRADE_COMPONENT));
        self.made.insert(part.clone());
        if has_condition(plan, "Complete") {
            self.through.insert(part);
        }
    }

    fn deployment(&mut self, deployment: &Value) {
        let is_there = deployment["status"]["availableReplicas"].as_i64() > Some(0);
        if let Some(owner) = self.owner(deployment).filter(|_| is_there) {
            self.through
                .insert((owner, label(deployment, labels::UPGRADE_COMPONENT)));
        }
    }

    fn job(&mut self, job: &Value) {
        let Some(owner) = self.owner(job).filter(|_| has_condition(job, "Complete")) else {
            return;
        };
        self.through
            .insert((owner.clone(), label(job, labels::UPGRADE_COMPONENT)));
        let step = (owner, label(job, labels::JOB_TYPE), label(job, labels::NODE));
        self.steps.insert(step);
    }

    fn see_node(&mut self, node: &Value) {
        let info = &node["status"]["nodeInfo"];
        let runs = (text(&info["osImage"]), text(&info["kubeletVersion"]));
        let name = text(&node["metadata"]["name"]);
        // Nodes are created before their kubelets say anything.
        if !runs.0.is_empty() {
            self.had.entry(name).or_insert(runs);
        }
    }

    fn see_instance(&mut self, instance: &Value) {
        let Ok(typed) = serde_json::from_value::<VirtualMachineInstance>(instance.clone()) else {
            return;
        };
        let name = name_of(instance);
        if unlisted(&typed).is_some() {
            self.unlisted.insert(name);
        } else {
            self.unlisted.remove(&name);
        }
    }

    /// Whether a VM may be stopped.
    fn may_stop(&self, name: &str) -> bool {
        self.listed.contains(name) || self.unlisted.contains(name)
    }

    /// A node had the system and the Kubernetes of the release all along: nothing is to be done with it.
    fn had_release(&self, plan: &Value, node: &str) -> bool {
        let release = &plan["status"]["releaseMetadata"];
        let wanted = (text(&release["os"]), text(&release["kubernetes"]));
        self.had.get(node) == Some(&wanted)
    }

    /// A node is through by a Job of this plan, or by one of a plan that came so far with it and has ended.
    fn is_through(&self, plan: &str, node: &str) -> bool {
        let last = [JobType::PostDrain, JobType::SingleNodeUpgrade].map(JobType::as_str);
        let counts = |uid: &str| uid == plan || self.plans.get(uid).is_some_and(|phase| !is_at_work(phase));
        let mut steps = self.steps.iter();
        steps.any(|(uid, step, of)| of == node && last.contains(&step.as_str()) && counts(uid))
    }

    /// What must have been done for a phase to be entered, and was not.
    fn lacking(&self, plan: &Value, phase: &str) -> Vec<String> {
        let uid = text(&plan["metadata"]["uid"]);
        let is_done = |part: &Component| self.through.contains(&(uid.clone(), part.to_string()));
        let any_of = |parts: &[Component]| {
            let none = !parts.iter().any(is_done);
            let names: Vec<&str> = parts.iter().map(|part| part.as_str()).collect();
            none.then(|| names.join(" or ")).into_iter().collect()
        };
        match phase {
            "RepoCreated" => any_of(&[Component::Repo]),
            "ImagePreloaded" => any_of(&[Component::ImagePreload, Component::ImageCheck]),
            "ClusterUpgraded" => any_of(&[Component::ClusterUpgrade]),
            "NodeUpgraded" => {
                let here: BTreeSet<&String> = self.nodes.values().collect();
                let nodes = plan["status"]["nodeUpgradeStatuses"].as_object().into_iter().flatten();
                // Nodes that were removed meanwhile are through with everything.
                let nodes = nodes.map(|(name, _)| name).filter(|name| here.contains(name));
                let lacks = |node: &&String| !self.is_through(&uid, node) && !self.had_release(plan, node);
                let single = plan["status"]["singleNode"].as_str().map(str::to_owned);
                let single = single.filter(|node| lacks(&node));
                nodes.filter(lacks).cloned().chain(single).collect()
            }
            // Where no image is stale, there is nothing to clean up.
            "CleanedUp" => {
                let cleanup = Component::ImageCleanup;
                let is_begun = self.made.contains(&(uid.clone(), cleanup.to_string()));
                if is_begun { any_of(&[cleanup]) } else { Vec::new() }
            }
            _ => Vec::new(),
        }
    }

    /// A phase ends only by an object of the plan.
    fn advanced(&self, change: &Change) -> Vec<String> {
        let mut problems = Vec::new();
        let phase = |plan: &Value| text(&plan["status"]["currentPhase"]);
        let before = change.previous.as_ref().map(|plan| phase(plan)).unwrap_or_default();
        let now = phase(&change.object);
        if before != now {
            let lacking = self.lacking(&change.object, &now);
            let lacking = lacking
                .iter()
                .map(|what| format!("{now} although nothing of the plan did it: {what}"));
            problems.extend(lacking);
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
            let is_done = match step {
                // A plan that is deleted between its last Job and its answer leaves the answer to the next one, which finds
                // the node done.
                JobType::PostDrain => self.is_through("", &node),
                _ => false,
            };
            let is_done = is_done || self.is_done_by_one_at_work(step.as_str(), &node);
            now.is_string() && before.as_ref() != Some(&now) && !is_done
        });
        wrong
            .map(|(hook, _)| format!("{hook} of node {node} is answered without its Job"))
            .collect()
    }

    /// A Job of a plan that is at work has done a step of a node. The last answer follows the phase after it.
    fn is_done_by_one_at_work(&self, step: &str, node: &str) -> bool {
        let at_work = self.plans.iter().filter(|(_, phase)| is_at_work(phase));
        let mut uids = at_work.map(|(uid, _)| uid.clone());
        uids.any(|uid| self.steps.contains(&(uid, step.to_owned(), node.to_owned())))
    }

    /// An instance that goes while its VM stays is a VM that was stopped, however that was asked for.
    fn ended(&self, change: &Change) -> Vec<String> {
        let meta = &change.object["metadata"];
        let was = change
            .previous
            .as_ref()
            .map(|vmi| vmi["metadata"]["deletionTimestamp"].clone());
        let goes = change.kind == ChangeKind::Deleted || meta["deletionTimestamp"].is_string();
        let is_news = was.is_none_or(|was| was.is_null());
        let name = name_of(&change.object);
        if goes && is_news && !self.may_stop(&name) {
            return vec![format!("the instance of VM {name} ends, and it is on no list")];
        }
        Vec::new()
    }

    /// No VM is stopped that is not on the list of those to start again. KubeVirt halts those that always run; others it
    /// only notes the request on.
    fn stopped(&self, change: &Change) -> Vec<String> {
        let is_asked_to_stop = |vm: &Value| {
            let mut requests = vm["status"]["stateChangeRequests"].as_array().into_iter().flatten();
            requests.any(|request| request["action"] == "Stop")
        };
        let was_asked = change.previous.as_ref().is_some_and(|vm| is_asked_to_stop(vm));
        let strategy = |vm: &Value| text(&vm["spec"]["runStrategy"]);
        let was = change.previous.as_ref().map(|vm| strategy(vm)).unwrap_or_default();
        let name = name_of(&change.object);
        let is_halted = strategy(&change.object) == "Halted" && !was.is_empty() && was != "Halted";
        let stops = is_halted || (is_asked_to_stop(&change.object) && !was_asked);
        if stops && !self.may_stop(&name) {
            return vec![format!("VM {name} is stopped and on no list")];
        }
        Vec::new()
    }
}

/// A plan in that phase has begun and not ended.
fn is_at_work(phase: &str) -> bool {
    !["", "Succeeded", "Failed", GONE].contains(&phase)
}

fn name_of(object: &Value) -> String {
    let meta = &object["metadata"];
    format!("{}/{}", text(&meta["namespace"]), text(&meta["name"]))
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

/// An image without its tag and digest.
fn repository(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => image,
    }
}
