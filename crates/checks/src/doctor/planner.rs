//! Why Rancher begins no node: Cluster API is paused, a Machine is not well, its planner waits.

use std::collections::HashSet;

use api::{Phase, UpgradePlan, Wait, annotations, foreign::ForeignCondition, names};
use jiff::{SignedDuration, Timestamp};

use super::{
    Leads, Patient, Situation,
    found::{MOST, More, annotation, created, error, name, node_ref, warning},
    patient::{phase_since, waits_since, words},
};
use crate::finding::{Finding, Missing, ObjectRef, needed};

/// A new Machine or node is complete within this time.
const JOIN: SignedDuration = SignedDuration::from_mins(10);
/// Rancher takes up to a quarter of an hour before its first step.
pub(super) const PLANNER: SignedDuration = SignedDuration::from_mins(30);

pub(super) const LEADS: &[Leads] = &[
    Leads::Plan(Wait::RancherNextNode),
    Leads::Plan(Wait::RancherUpdate),
    Leads::Plan(Wait::RancherCompletion),
    Leads::Plan(Wait::Cluster),
];

/// Paused.
pub(super) const D20: Situation = Situation {
    id: "D20",
    symptom: "No node starts",
    cause: "The cluster of Cluster API is paused",
    remedy: "Resume it.",
    leads: LEADS,
    look: paused,
};

/// A machine.
pub(super) const D21: Situation = Situation {
    id: "D21",
    symptom: "No node starts",
    cause: "A Machine has no node or does not run, or a node has no Machine",
    remedy: "Delete a Machine whose node is gone; complete the join or the removal of the node.",
    leads: LEADS,
    look: machines,
};

/// The planner.
pub(super) const D22: Situation = Situation {
    id: "D22",
    symptom: "No node starts, or Rancher does not continue with a node",
    cause: "Rancher's planner waits",
    remedy: "Its message says for what: see D23 for probes, D24 for a plan that is not applied, D25 for Unauthorized.",
    leads: LEADS,
    look: planner,
};

fn paused(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let phases = [Phase::ClusterUpgraded, Phase::NodeUpgrading];
    let Some(plan) = patient.active_in(&phases)? else {
        return Ok(Vec::new());
    };
    let clusters = needed(&patient.snapshot.capi_clusters, "clusters.cluster.x-k8s.io")?;
    let paused = clusters.iter().filter(|cluster| cluster.spec.paused == Some(true));
    let found = paused.map(|cluster| {
        let patch =
            r#"kubectl -n fleet-local patch clusters.cluster.x-k8s.io {} --type merge -p '{"spec":{"paused":false}}'"#;
        error(
            ObjectRef::of(cluster),
            format!(
                "Cluster {} of Cluster API is paused, so that Rancher begins no node",
                name(cluster)
            ),
        )
        .since(rancher_waits(plan).or_else(|| phase_since(plan)))
        .command(patch, &[name(cluster)])
    });
    Ok(found.collect())
}

/// Since when the plan waits for Rancher.
pub(super) fn rancher_waits(plan: &UpgradePlan) -> Option<Timestamp> {
    let waits = [Wait::RancherNextNode, Wait::RancherUpdate, Wait::RancherCompletion];
    waits
        .into_iter()
        .find_map(|wait| waits_since(plan, wait.as_str(), None))
}

fn machines(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    if patient.active()?.is_none() {
        return Ok(Vec::new());
    }
    let machines = needed(&patient.snapshot.machines, "machines.cluster.x-k8s.io")?;
    let mut findings = Vec::new();
    for machine in machines
        .iter()
        .filter(|machine| patient.is_past(created(*machine), JOIN))
    {
        let phase = machine.status.phase.as_deref().unwrap_or_default();
        let node = machine.status.node_ref.as_ref().and_then(|node| node.name.as_deref());
        let deleted = machine.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        let why = if deleted.is_some() {
            "is being deleted".to_owned()
        } else if let Some(node) = node {
            if patient.node(node)?.is_none() {
                format!("is of node {node}, which does not exist")
            } else if phase == "Running" {
                continue;
            } else {
                format!("is in phase {}", api::quoted::quoted(phase))
            }
        } else {
            "has no node".to_owned()
        };
        let finding = error(ObjectRef::of(machine), format!("Machine {} {why}", name(machine)))
            .since(deleted)
            .command("kubectl -n fleet-local get machines.cluster.x-k8s.io -o wide", &[]);
        // Deleting the Machine of a node that exists removes the node.
        findings.push(match node {
            Some(node) if patient.node(node)?.is_some() => finding.also(node_ref(node)),
            _ => finding.command(
                "kubectl -n fleet-local delete machines.cluster.x-k8s.io {}",
                &[name(machine)],
            ),
        });
    }
    let known: HashSet<&str> = machines.iter().map(name).collect();
    for node in patient.nodes()?.iter().filter(|node| api::node::is_managed(node)) {
        let machine = annotation(node, annotations::MACHINE);
        if machine.is_none_or(|machine| !known.contains(machine)) && patient.is_past(created(node), JOIN) {
            let message = format!(
                "Node {} has no Machine, so that Rancher does not upgrade it",
                name(node)
            );
            let finding = error(node_ref(name(node)), message).since(created(node));
            findings.push(finding.command("kubectl -n fleet-local get machines.cluster.x-k8s.io -o wide", &[]));
        }
    }
    findings.truncate(MOST);
    Ok(findings)
}

/// What Rancher's planner says that it waits for: the object, and the condition.
pub(super) fn messages<'a>(patient: &Patient<'a>) -> Result<Vec<(ObjectRef, &'a ForeignCondition)>, Missing> {
    const TYPES: [&str; 3] = ["Updated", "Provisioned", "Ready"];
    let clusters = needed(&patient.snapshot.rancher_clusters, "clusters.provisioning.cattle.io")?;
    let planes = needed(&patient.snapshot.control_planes, "rkecontrolplanes.rke.cattle.io")?;
    let clusters = clusters
        .iter()
        .filter(|cluster| name(*cluster) == names::LOCAL_CLUSTER)
        .map(|cluster| (ObjectRef::of(cluster), cluster.status.conditions.as_ref()));
    let planes = planes
        .iter()
        .map(|plane| (ObjectRef::of(plane), plane.status.conditions.as_ref()));
    let said = planes.chain(clusters).flat_map(|(object, conditions)| {
        let conditions = conditions.into_iter().flatten();
        conditions
            .filter(|condition| {
                TYPES.contains(&condition.type_.as_str())
                    && condition.status.as_deref() != Some("True")
                    && condition.message.as_deref().is_some_and(|message| !message.is_empty())
            })
            .map(move |condition| (object.clone(), condition))
    });
    Ok(said.collect())
}

fn planner(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active_in(&[Phase::NodeUpgrading])? else {
        return Ok(Vec::new());
    };
    let since = rancher_waits(plan);
    if !patient.is_past(since, PLANNER) {
        return Ok(Vec::new());
    }
    // The first is the most exact; the others repeat it.
    let said = messages(patient)?.into_iter().next();
    let found = said.map(|(object, condition)| {
        let message = format!("Rancher waits: {} ({})", words(condition), condition.type_);
        warning(object, message)
            .since(since)
            .command(
                "kubectl -n fleet-local get clusters.provisioning.cattle.io local -o yaml",
                &[],
            )
            .command("kubectl -n cattle-system logs deployment/rancher --tail=100", &[])
    });
    Ok(found.into_iter().collect())
}
