//! What Rancher gives to the agents of nodes: probes, plans that are not applied, hooks that are not answered.

use std::collections::HashMap;

use api::{NodeState, Phase, Wait, annotations, labels, names, quoted::quoted};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use snapshot::SecretSummary;

use super::{
    Leads, Patient, Situation,
    found::{More, annotation, error, found, name, node_ref},
    patient::{node_waits_since, states},
    planner::{LEADS, PLANNER, messages, rancher_waits},
};
use crate::finding::{Finding, Missing, ObjectRef, Severity, needed};

/// The manager answers a hook within seconds.
const HOOK: SignedDuration = SignedDuration::from_mins(5);
/// An agent applies a plan within this time; the first of an upgrade takes a quarter of an hour.
const APPLY: SignedDuration = SignedDuration::from_mins(30);
/// On the Secret with which Cluster API reaches the cluster.
const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// Certificates.
pub(super) const D23: Situation = Situation {
    id: "D23",
    symptom: "Rancher waits for probes",
    cause: "A certificate of the control plane has expired or was renewed, so that probes fail",
    remedy: "Rotate the certificates of the cluster, then restart rancher-system-agent on the node.",
    leads: LEADS,
    look: probes,
};

/// The agent.
pub(super) const D24: Situation = Situation {
    id: "D24",
    symptom: "Rancher waits for a plan to be applied",
    cause: "rancher-system-agent of a node does not apply its plan",
    remedy: "Restart rancher-system-agent on the node; its log says why: a certificate without the address of the server, a registry, a disk.",
    leads: LEADS,
    look: not_applied,
};

/// The kubeconfig.
pub(super) const D25: Situation = Situation {
    id: "D25",
    symptom: "Cluster API reports Unauthorized",
    cause: "Secret fleet-local/local-kubeconfig lacks the label of its cluster, so that its token is not renewed",
    remedy: "Add the label.",
    leads: LEADS,
    look: kubeconfig,
};

/// Hooks.
pub(super) const D26: Situation = Situation {
    id: "D26",
    symptom: "Rancher does not continue with a node whose Job is complete",
    cause: "The hook of the drain is not answered with its current value",
    remedy: "Restart the manager. If it does not answer, copy the value of the request into the answer.",
    leads: &[
        Leads::Plan(Wait::RancherUpdate),
        Leads::Plan(Wait::RancherNextNode),
        Leads::Plan(Wait::RancherCompletion),
    ],
    look: hooks,
};

fn secret_ref(secret: &SecretSummary) -> ObjectRef {
    let metadata = &secret.metadata;
    ObjectRef::new(
        "Secret",
        metadata.namespace.as_deref(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

/// The nodes by their Machine.
fn node_of_machine<'a>(patient: &Patient<'a>) -> Result<HashMap<&'a str, &'a str>, Missing> {
    let nodes = patient.nodes()?.iter();
    Ok(nodes
        .filter_map(|node| Some((annotation(node, annotations::MACHINE)?, name(node))))
        .collect())
}

/// The probes of a machine that are not healthy, by name.
fn unhealthy(secret: &SecretSummary) -> Vec<String> {
    let text = ["probe-statuses", "probe-status"]
        .into_iter()
        .find_map(|key| secret.progress.get(key));
    let probes: Value = text
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let probes = probes.as_object().into_iter().flatten();
    probes
        .filter(|(_, status)| status.get("healthy").and_then(Value::as_bool) != Some(true))
        .map(|(probe, _)| api::quoted::plain(probe, api::quoted::LONGEST_NAME))
        .collect()
}

fn probes(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active()? else {
        return Ok(Vec::new());
    };
    let mut findings = Vec::new();
    for (address, ends) in &patient.snapshot.certificates {
        if let Ok(ends) = ends
            && *ends <= patient.now
        {
            let message = format!("The certificate of the API server at {address} expired at {ends}");
            let object = ObjectRef::new(
                "EndpointSlice",
                Some(names::DEFAULT_NAMESPACE),
                names::KUBERNETES_SERVICE,
            );
            findings.push(
                error(object, message)
                    .since(Some(*ends))
                    .command("kubectl get nodes -o wide", &[]),
            );
        }
    }
    let since = rancher_waits(plan);
    if plan.phase() != Some(Phase::NodeUpgrading) || !patient.is_past(since, PLANNER) {
        return Ok(findings);
    }
    let said = messages(patient)?;
    let Some((object, condition)) = said.iter().find(|(_, condition)| {
        condition
            .message
            .as_deref()
            .is_some_and(|message| message.contains("waiting for probes"))
    }) else {
        return Ok(findings);
    };
    let machines = needed(&patient.snapshot.machine_plans, "machine-plan secrets")?;
    let nodes = node_of_machine(patient)?;
    let mut finding = error(
        object.clone(),
        format!(
            "Rancher waits: {}",
            quoted(condition.message.as_deref().unwrap_or_default())
        ),
    )
    .since(since)
    .command(
        "kubectl -n fleet-local get secrets --field-selector type=rke.cattle.io/machine-plan",
        &[],
    );
    for secret in machines {
        let unhealthy = unhealthy(secret);
        let node = secret
            .label(labels::MACHINE_NAME)
            .and_then(|machine| nodes.get(machine));
        if let Some(node) = node.filter(|_| !unhealthy.is_empty()) {
            finding
                .message
                .push_str(&format!("; not healthy on node {node}: {}", unhealthy.join(", ")));
            finding = finding.also(node_ref(node));
        }
    }
    findings.push(finding);
    Ok(findings)
}

fn not_applied(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active_in(&[Phase::ClusterUpgrading, Phase::ClusterUpgraded, Phase::NodeUpgrading])?
    else {
        return Ok(Vec::new());
    };
    let machines = needed(&patient.snapshot.machine_plans, "machine-plan secrets")?;
    let nodes = node_of_machine(patient)?;
    let mut findings = Vec::new();
    for secret in machines {
        let Some(node) = secret
            .label(labels::MACHINE_NAME)
            .and_then(|machine| nodes.get(machine))
            .copied()
        else {
            continue;
        };
        let value = |key: &str| {
            secret
                .progress
                .get(key)
                .map(String::as_str)
                .filter(|value| !value.is_empty())
        };
        let failures: i64 = value("failure-count").and_then(|count| count.parse().ok()).unwrap_or(0);
        let waits = node_waits_since(plan, Wait::RancherUpdate, node);
        let since: Option<Timestamp> = waits.or_else(|| rancher_waits(plan));
        // An agent that is waited for until it has rebooted its node is no trouble.
        let is_ready = patient.node(node)?.is_some_and(api::node::is_ready);
        let has_failed = failures > 0 && secret.is_applied != Some(true) && value("failed-checksum").is_some();
        let is_late = secret.is_applied == Some(false) && is_ready && patient.is_past(since, APPLY);
        if !has_failed && !is_late {
            continue;
        }
        let why = if has_failed {
            let last = value("last-apply-time").map(|at| format!(", last at {}", quoted(at)));
            format!("has failed to apply it {failures} times{}", last.unwrap_or_default())
        } else {
            "has not applied it".to_owned()
        };
        findings.push(
            error(
                node_ref(node),
                format!("Node {node}: rancher-system-agent got a new plan and {why}"),
            )
            .also(secret_ref(secret))
            .since(since)
            .command("ssh rancher@{} sudo journalctl -u rancher-system-agent -n 50", &[node])
            .command("ssh rancher@{} sudo systemctl restart rancher-system-agent", &[node]),
        );
    }
    Ok(findings)
}

fn kubeconfig(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let is_running = patient.active()?.is_some();
    let secrets = needed(
        &patient.snapshot.kubeconfig_secrets,
        "secret fleet-local/local-kubeconfig",
    )?;
    let lacking = secrets
        .iter()
        .filter(|secret| secret.label(CLUSTER_LABEL) != Some(names::LOCAL_CLUSTER));
    let found = lacking.map(|secret| {
        let severity = if is_running { Severity::Error } else { Severity::Warning };
        let message = format!("Secret fleet-local/local-kubeconfig lacks the label {CLUSTER_LABEL}=local");
        found(severity, secret_ref(secret), message).command(
            "kubectl -n fleet-local label secret local-kubeconfig cluster.x-k8s.io/cluster-name=local --overwrite",
            &[],
        )
    });
    Ok(found.collect())
}

fn hooks(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active_in(&[Phase::NodeUpgrading])? else {
        return Ok(Vec::new());
    };
    let machines = needed(&patient.snapshot.machine_plans, "machine-plan secrets")?;
    let nodes = node_of_machine(patient)?;
    let mut findings = Vec::new();
    for secret in machines {
        let node = secret
            .label(labels::MACHINE_NAME)
            .and_then(|machine| nodes.get(machine))
            .copied();
        let Some((node, entry)) = node.and_then(|node| states(plan).find(|(name, _)| *name == node)) else {
            continue;
        };
        let (asked, answered, since) = if entry.is(NodeState::PreDrained) {
            let since = node_waits_since(plan, Wait::RancherUpdate, node);
            (annotations::RKE_PRE_DRAIN, annotations::PRE_HOOK, since)
        } else if entry.is(NodeState::PostDrained) {
            let since = entry.finished_at.as_ref().map(|time| time.0);
            (annotations::RKE_POST_DRAIN, annotations::POST_HOOK, since)
        } else {
            continue;
        };
        let Some(token) = secret.annotation(asked).filter(|token| !token.is_empty()) else {
            continue;
        };
        if secret.annotation(answered) == Some(token) || !patient.is_past(since, HOOK) {
            continue;
        }
        let message = format!(
            "Node {node} is done, but Secret {} has no answer {answered} to {asked}",
            secret_ref(secret).name
        );
        findings.push(
            error(secret_ref(secret), message)
                .also(node_ref(node))
                .since(since)
                .command("kubectl -n harvester-system rollout restart deployment/harvester-upgrade-manager-controller-manager", &[]),
        );
    }
    Ok(findings)
}
