//! Why a node is not drained, or stays cordoned: disruption budgets, nodes that are cordoned together, what a drain left behind.

use api::{
    NodeUpgradeStatus, Phase, ProgramWait, UpgradePlan, Wait, foreign::longhorn::InstanceManager, labels, names, node,
    node_progress::Stage,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use rules::version::kubelet_version;

use super::{
    Leads, Patient, Situation,
    found::{More, annotation, error, found, name, namespace, node_ref},
    patient::{node_waits_since, states},
    selector::selects,
};
use crate::finding::{Finding, Missing, ObjectRef, Severity, needed};

/// A drain that takes longer does not get on.
const DRAIN: SignedDuration = SignedDuration::from_mins(10);
/// Rancher uncordons a node within a minute after its upgrade.
const UNCORDON: SignedDuration = SignedDuration::from_mins(10);
/// Longhorn's budgets of its instance managers begin with this.
const INSTANCE_MANAGER: &str = "instance-manager-";

/// The budget of a Longhorn instance manager.
pub(super) const D01: Situation = Situation {
    id: "D01",
    symptom: "A node stays in PreDrained for more than 10 minutes",
    cause: "The disruption budget of a Longhorn instance manager does not allow its eviction",
    remedy: "Make all attached volumes healthy. Then delete the budget of the instance manager, unless the last healthy replica of a volume is on the node.",
    leads: &[Leads::Plan(Wait::RancherUpdate)],
    look: instance_manager_budget,
};

/// Any other budget.
pub(super) const D02: Situation = Situation {
    id: "D02",
    symptom: "A node stays in PreDrained for more than 10 minutes",
    cause: "A PodDisruptionBudget does not allow the eviction of a pod",
    remedy: "Scale the workload up, or relax its PodDisruptionBudget.",
    leads: &[Leads::Plan(Wait::RancherUpdate), Leads::Plan(Wait::Pod)],
    look: other_budgets,
};

/// Several nodes are cordoned.
pub(super) const D27: Situation = Situation {
    id: "D27",
    symptom: "More than one node is cordoned",
    cause: "Rancher began a second node before the first was done, or an administrator cordoned one",
    remedy: "Finish the first node. Uncordon those that the upgrade has not begun.",
    leads: &[
        Leads::Plan(Wait::Turn),
        Leads::Plan(Wait::RancherNextNode),
        Leads::Plan(Wait::RancherUpdate),
    ],
    look: several_cordoned,
};

/// An upgraded node takes no pods.
pub(super) const D39: Situation = Situation {
    id: "D39",
    symptom: "A node is upgraded and Ready, but stays cordoned or tainted",
    cause: "Rancher or its agent did not undo the drain",
    remedy: "Uncordon the node, and remove the taint kubevirt.io/drain.",
    leads: &[
        Leads::Plan(Wait::RancherNextNode),
        Leads::Plan(Wait::RancherCompletion),
        Leads::Program(ProgramWait::DrainTaint),
    ],
    look: still_cordoned,
};

/// Nodes that Rancher has been draining for too long: the kubelet is updated after the drain.
fn stuck_drains<'a>(
    patient: &Patient<'a>,
    plan: &'a UpgradePlan,
) -> Result<Vec<(&'a str, Option<Timestamp>)>, Missing> {
    let mut stuck = Vec::new();
    for (name, entry) in patient.at(plan, &[Stage::Emptied]) {
        let since = node_waits_since(plan, Wait::RancherUpdate, name);
        let is_drained = patient.node(name)?.is_some_and(|node| has_new_kubelet(plan, node));
        if !is_drained && entry.state() == Some("PreDrained") && patient.is_past(since, DRAIN) {
            stuck.push((name, since));
        }
    }
    Ok(stuck)
}

/// The node's kubelet is that of the new release.
pub(super) fn has_new_kubelet(plan: &UpgradePlan, node: &Node) -> bool {
    let release = plan.status.as_ref().and_then(|status| status.release_metadata.as_ref());
    let wanted = release
        .and_then(|release| release.kubernetes.as_deref())
        .map(kubelet_version);
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    wanted.is_some() && info.map(|info| &info.kubelet_version) == wanted.as_ref()
}

fn allows_nothing(budget: &PodDisruptionBudget) -> bool {
    budget
        .status
        .as_ref()
        .is_none_or(|status| status.disruptions_allowed == 0)
}

fn instance_manager_budget(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active()? else {
        return Ok(Vec::new());
    };
    let stuck = stuck_drains(patient, plan)?;
    if stuck.is_empty() {
        return Ok(Vec::new());
    }
    let budgets = needed(&patient.snapshot.budgets, "poddisruptionbudgets")?;
    let managers = needed(&patient.snapshot.instance_managers, "instancemanagers.longhorn.io")?;
    let is_ours = |budget: &&PodDisruptionBudget| {
        namespace(*budget) == names::LONGHORN_NAMESPACE && name(*budget).starts_with(INSTANCE_MANAGER)
    };
    let mut findings = Vec::new();
    for (node, since) in stuck {
        for pod in patient.pods_on(node)? {
            let mut guards = budgets.iter().filter(is_ours);
            let Some(budget) = guards.find(|budget| name(*budget) == name(*pod) && allows_nothing(budget)) else {
                continue;
            };
            let manager = managers.iter().find(|manager| name(*manager) == name(budget));
            findings.push(blocked_by_longhorn(patient, node, budget, manager)?.since(since));
        }
    }
    Ok(findings)
}

fn blocked_by_longhorn(
    patient: &Patient<'_>,
    node: &str,
    budget: &PodDisruptionBudget,
    manager: Option<&InstanceManager>,
) -> Result<Finding, Missing> {
    let engines = needed(&patient.snapshot.engines, "engines.longhorn.io")?;
    let volumes = needed(&patient.snapshot.volumes, "volumes.longhorn.io")?;
    let mut why = Vec::new();
    let listed = manager.and_then(|manager| manager.status.instance_engines.as_ref());
    for engine in listed.into_iter().flat_map(|engines| engines.keys()) {
        let found = engines.iter().find(|found| name(*found) == engine);
        let state = found
            .and_then(|engine| engine.status.current_state.as_deref())
            .unwrap_or_default();
        why.push(match found {
            None => format!("engine {engine} runs there, and Longhorn does not know it"),
            Some(engine) if engine.spec.node_id.as_deref().unwrap_or_default().is_empty() => {
                format!("engine {} runs there, and belongs to no node", name(engine))
            }
            Some(_) if state != "running" => format!("engine {engine} is {}", api::quoted::quoted(state)),
            Some(_) => format!("engine {engine} still serves a volume there"),
        });
    }
    if why.is_empty() {
        why.push("Longhorn counts a replica there as needed".to_owned());
    }
    let unhealthy = volumes.iter().find(|volume| {
        let is_attached = volume.status.state.as_deref() == Some("attached");
        is_attached && volume.status.robustness.as_deref() != Some("healthy")
    });
    let message = format!(
        "PodDisruptionBudget {} keeps the instance manager on node {node}: {}",
        name(budget),
        api::quoted::plain(&why.join("; "), api::quoted::LONGEST_MESSAGE),
    );
    let finding = error(ObjectRef::of(budget), message)
        .also(node_ref(node))
        .command(
            "kubectl -n longhorn-system get instancemanager {} -o yaml",
            &[name(budget)],
        )
        .command("kubectl -n longhorn-system get volumes.longhorn.io", &[]);
    Ok(match unhealthy {
        Some(volume) => finding.remedy(format!(
            "Volume {} is not healthy. Wait until all attached volumes are, and do not delete the budget before.",
            name(volume)
        )),
        None => finding.command("kubectl -n longhorn-system delete pdb {}", &[name(budget)]),
    })
}

/// A drain evicts the pod.
fn is_evicted(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    let stays = owners
        .into_iter()
        .any(|owner| matches!(owner.kind.as_str(), "DaemonSet" | "Node"));
    !stays && annotation(pod, "kubernetes.io/config.mirror").is_none() && !api::pod::has_ended(pod)
}

fn other_budgets(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active()? else {
        return Ok(Vec::new());
    };
    let stuck = stuck_drains(patient, plan)?;
    if stuck.is_empty() {
        return Ok(Vec::new());
    }
    let budgets = needed(&patient.snapshot.budgets, "poddisruptionbudgets")?;
    let mut findings = Vec::new();
    for (node, since) in stuck {
        for pod in patient.pods_on(node)?.iter().filter(|pod| is_evicted(pod)) {
            let guards = budgets.iter().filter(|budget| {
                let is_longhorns =
                    namespace(*budget) == names::LONGHORN_NAMESPACE && name(*budget).starts_with(INSTANCE_MANAGER);
                let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
                namespace(*budget) == namespace(*pod)
                    && !is_longhorns
                    && allows_nothing(budget)
                    && selector.is_some_and(|selector| selects(selector, pod.metadata.labels.as_ref()))
            });
            for budget in guards {
                let message = format!(
                    "PodDisruptionBudget {} allows no eviction of pod {} on node {node}",
                    name(budget),
                    name(*pod)
                );
                let finding = error(ObjectRef::of(budget), message)
                    .also(ObjectRef::of(*pod))
                    .also(node_ref(node))
                    .since(since)
                    .command("kubectl -n {} get pdb {} -o yaml", &[namespace(budget), name(budget)])
                    .command("kubectl -n {} get pod {} -o wide", &[namespace(*pod), name(*pod)]);
                findings.push(finding);
            }
        }
    }
    Ok(findings)
}

fn several_cordoned(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active_in(&[Phase::NodeUpgrading])? else {
        return Ok(Vec::new());
    };
    let nodes = patient.nodes()?;
    let cordoned: Vec<&Node> = nodes.iter().filter(|node| node::is_cordoned(node)).collect();
    if cordoned.len() < 2 {
        return Ok(Vec::new());
    }
    let machines = needed(&patient.snapshot.machine_plans, "machine-plan secrets")?;
    let entry = |node: &str| states(plan).find(|(name, _)| *name == node).map(|(_, entry)| entry);
    let began = |entry: &NodeUpgradeStatus| entry.started_at.as_ref().map(|time| time.0);
    // The one that began first is the one to finish.
    let first = states(plan)
        .filter(|(_, entry)| entry.progress().stage().is_in_flight())
        .min_by_key(|(_, entry)| began(entry))
        .map(|(name, _)| name);
    let mut findings = Vec::new();
    for node in cordoned {
        let node = name(node);
        let stage = entry(node).map(|entry| entry.progress().stage()).unwrap_or_default();
        // A node that is done has a situation of its own; one that is paused was cordoned before it was paused.
        if Some(node) == first || stage >= Stage::Ended || stage == Stage::Paused {
            continue;
        }
        let machine = patient
            .node(node)?
            .and_then(|node| annotation(node, api::annotations::MACHINE));
        let drains = machines.iter().any(|secret| {
            secret.label(labels::MACHINE_NAME) == machine
                && machine.is_some()
                && ["rke.cattle.io/drain-options", api::annotations::RKE_PRE_DRAIN]
                    .iter()
                    .any(|key| secret.annotation(key).is_some())
        });
        let is_early = drains || stage.is_in_flight();
        let severity = if is_early { Severity::Error } else { Severity::Warning };
        let who = if is_early {
            "Rancher is draining it too"
        } else {
            "it is not the turn of this node"
        };
        let first_named = first.unwrap_or("another node");
        let message = format!("Node {node} is cordoned while {first_named} is being upgraded: {who}");
        let finding = found(severity, node_ref(node), message).command("kubectl get nodes", &[]);
        findings.push(if stage.is_in_flight() {
            finding.remedy(format!(
                "Finish the upgrade of {first_named} first. Do not uncordon {node}: its upgrade has begun."
            ))
        } else {
            finding.command("kubectl uncordon {}", &[node])
        });
    }
    Ok(findings)
}

fn still_cordoned(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.subject()? else {
        return Ok(Vec::new());
    };
    let mut findings = Vec::new();
    for (name, entry) in patient.at(plan, &[Stage::Ended, Stage::Cleaning, Stage::Cleaned]) {
        let finished = entry.finished_at.as_ref().map(|time| time.0);
        let Some(node) = patient
            .node(name)?
            .filter(|node| node::is_ready(node) && has_new_kubelet(plan, node))
        else {
            continue;
        };
        if !patient.is_past(finished, UNCORDON) {
            continue;
        }
        let mut left = Vec::new();
        if node::is_cordoned(node) {
            left.push(("is cordoned", "kubectl uncordon {}"));
        }
        if node::has_drain_taint(node) {
            left.push((
                "has the taint kubevirt.io/drain",
                "kubectl taint node {} kubevirt.io/drain-",
            ));
        }
        if left.is_empty() {
            continue;
        }
        let what: Vec<&str> = left.iter().map(|(what, _)| *what).collect();
        let message = format!("Node {name} is upgraded and ready, but {}", what.join(" and "));
        let finding = error(node_ref(name), message).since(finished);
        findings.push(
            left.iter()
                .fold(finding, |finding, (_, command)| finding.command(command, &[name])),
        );
    }
    Ok(findings)
}
