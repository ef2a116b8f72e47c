//! VMs that cannot leave a node at all, or that only seem to be there.

use std::collections::{HashMap, HashSet};

use api::{
    OnMigrationFailure, ProgramWait, UpgradePlan, Wait,
    foreign::kubevirt::{VirtualMachineInstance, VirtualMachineInstanceMigration},
    node_progress::Stage,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use rules::migration::{denial, has_ended, has_labels, hosts};

use super::{
    Leads, Patient, Situation,
    found::{MOST, More, created, error, info, label, name, namespace, node_ref, warning},
    migration::{LEADS, emptying, instances},
    patient::{node_waits_since, waits_since},
};
use crate::finding::{Finding, Missing, ObjectRef, needed};

/// The first step of a node's Job shuts down what cannot move; that takes less.
const SHUTDOWN: SignedDuration = SignedDuration::from_mins(15);
/// Where the plan itself says that a VM keeps it, less is enough.
const SAID: SignedDuration = SignedDuration::from_mins(5);
/// An instance goes within this time after it ended or was deleted.
const ZOMBIE: SignedDuration = SignedDuration::from_mins(10);
/// Budgets of migrations go with them.
const BUDGET: SignedDuration = SignedDuration::from_mins(10);

/// KubeVirt's budget of an evacuation begins with this.
const EVACUATION_BUDGET: &str = "kubevirt-migration-pdb-kubevirt-evacuation-";
/// Labels by which the pod of a VM asks for the CPU that the VM has.
const CPU_LABELS: [&str; 3] = [
    "cpu-feature.node.kubevirt.io/",
    "cpu-model.node.kubevirt.io/",
    "cpu-model-migration.node.kubevirt.io/",
];
/// KubeVirt's, on the pod of a VM: the name of the VM.
const VM_NAME: &str = "vm.kubevirt.io/name";
/// KubeVirt's, on the pod of a VM: the uid of the running VM.
const CREATED_BY: &str = "kubevirt.io/created-by";

/// Not migratable.
pub(super) const D11: Situation = Situation {
    id: "D11",
    symptom: "A node stays in PreDraining; a VM does not leave",
    cause: "The VM cannot be live-migrated",
    remedy: "Shut the VM down; with spec.restoreVM: true it is started again after the upgrade of its node.",
    leads: &[
        Leads::Program(ProgramWait::VmEvacuation),
        Leads::Program(ProgramWait::VmsLeft),
        Leads::Program(ProgramWait::VmShutdown),
        Leads::Plan(Wait::ImmovableVms),
        Leads::Plan(Wait::PreDrainJob),
    ],
    look: not_migratable,
};

/// The CPU.
pub(super) const D12: Situation = Situation {
    id: "D12",
    symptom: "A node stays in PreDraining; a VM does not leave",
    cause: "No other node has the CPU model or the CPU features that the VM was started with",
    remedy: "Give the VM a CPU model that all nodes have and restart it, or shut it down for the upgrade of its node.",
    leads: LEADS,
    look: cpu,
};

/// A zombie.
pub(super) const D13: Situation = Situation {
    id: "D13",
    symptom: "A node stays in PreDraining; it seems to have VMs that do not run",
    cause: "A VirtualMachineInstance has ended, or its virt-launcher pod is gone, and the object is still there",
    remedy: "Delete the VirtualMachineInstance. If it stays, remove its finalizers.",
    leads: LEADS,
    look: zombie,
};

/// A budget of another node's VM.
pub(super) const D14: Situation = Situation {
    id: "D14",
    symptom: "A disruption budget of a migration exists while a node is emptied",
    cause: "The budget guards a VM that is not on the node",
    remedy: "Nothing: the budget does not concern this node. One whose migration is over can be deleted.",
    leads: &[Leads::Program(ProgramWait::EvacuationBudget)],
    look: foreign_budget,
};

type Nodes<'a> = HashMap<&'a str, Option<Timestamp>>;

fn plan_and_nodes<'a>(patient: &Patient<'a>) -> Result<Option<(&'a UpgradePlan, Nodes<'a>)>, Missing> {
    let Some(plan) = patient.active()? else {
        return Ok(None);
    };
    let nodes = emptying(patient, plan);
    Ok((!nodes.is_empty()).then_some((plan, nodes)))
}

fn object(instance: &VirtualMachineInstance) -> ObjectRef {
    ObjectRef::of(instance)
}

/// Since when the plan says that a VM keeps a node.
fn said(plan: &UpgradePlan, instance: &VirtualMachineInstance, node: &str) -> Option<Timestamp> {
    let object = object(instance).to_string();
    let waits = [ProgramWait::VmEvacuation, ProgramWait::VmShutdown];
    let of_vm = waits
        .into_iter()
        .find_map(|wait| waits_since(plan, wait.as_str(), Some(&object)));
    of_vm.or_else(|| node_waits_since(plan, Wait::ImmovableVms, node))
}

fn not_migratable(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active()? else {
        return Ok(Vec::new());
    };
    let mut nodes = emptying(patient, plan);
    // Nodes that have not begun because of such VMs: the plan names them.
    for (name, entry) in patient.at(plan, &[Stage::Preloaded, Stage::Paused]) {
        if node_waits_since(plan, Wait::ImmovableVms, name).is_some() {
            nodes.insert(name, entry.started_at.as_ref().map(|time| time.0));
        }
    }
    // VMs are shut down when the volumes are healthy: before that, their turn has not come.
    let waits_for_volumes = waits_since(plan, ProgramWait::LonghornVolume.as_str(), None).is_some();
    let mut findings = Vec::new();
    for (instance, node) in instances(patient, &nodes)? {
        let Some(why) = denial(instance) else {
            continue;
        };
        let said = said(plan, instance, node);
        let began = nodes.get(node).copied().flatten().filter(|_| !waits_for_volumes);
        if findings.len() == MOST || !(patient.is_past(said, SAID) || patient.is_past(began, SHUTDOWN)) {
            continue;
        }
        let policy = plan.spec.on_migration_failure.unwrap_or_default();
        let also = if policy == OnMigrationFailure::Stop {
            ""
        } else {
            " With spec.onMigrationFailure: Stop, the plan does that itself."
        };
        let message = format!(
            "VM {} on node {node} cannot be live-migrated: {}",
            name(instance),
            api::quoted::quoted(&why)
        );
        findings.push(
            error(object(instance), message)
                .also(node_ref(node))
                .since(said.or(began))
                .remedy(format!("{}{also}", D11.remedy))
                .command("virtctl stop -n {} {}", &[namespace(instance), name(instance)]),
        );
    }
    Ok(findings)
}

/// The labels of CPUs that the pod of a VM asks for.
fn cpu_labels(pod: &Pod) -> Vec<(&String, &String)> {
    let selector = pod.spec.iter().flat_map(|spec| spec.node_selector.iter().flatten());
    selector
        .filter(|(key, _)| CPU_LABELS.iter().any(|prefix| key.starts_with(prefix)))
        .collect()
}

/// Labels that a node must have.
type Labels<'a> = Vec<(&'a String, &'a String)>;

fn cpu(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some((_, nodes)) = plan_and_nodes(patient)? else {
        return Ok(Vec::new());
    };
    let hosts: Vec<&Node> = hosts(patient.nodes()?);
    if hosts.len() < 2 {
        return Ok(Vec::new());
    }
    // VMs of the same kind ask for the same CPU: each answer is found once.
    let mut known: HashMap<(Labels<'_>, &str), bool> = HashMap::new();
    let mut findings = Vec::new();
    let launchers = patient
        .pods()?
        .iter()
        .filter(|pod| label(*pod, "kubevirt.io") == Some("virt-launcher"));
    let wanted: HashMap<(&str, &str), Labels<'_>> = launchers
        .filter(|pod| !api::pod::has_ended(pod))
        .filter_map(|pod| Some(((namespace(pod), label(pod, VM_NAME)?), cpu_labels(pod))))
        .filter(|(_, labels)| !labels.is_empty())
        .collect();
    for (instance, node) in instances(patient, &nodes)? {
        let Some(labels) = wanted.get(&(namespace(instance), name(instance))) else {
            continue;
        };
        let fits = *known.entry((labels.clone(), node)).or_insert_with(|| {
            let mut others = hosts.iter().filter(|host| name(**host) != node);
            others.any(|host| has_labels(host, labels.iter().copied()))
        });
        if fits || findings.len() == MOST {
            continue;
        }
        let shown: Vec<&str> = labels.iter().take(5).map(|(key, _)| key.as_str()).collect();
        let message = format!(
            "VM {} cannot leave node {node}: no other node has {}",
            name(instance),
            api::quoted::plain(&shown.join(", "), api::quoted::LONGEST_MESSAGE)
        );
        findings.push(
            error(object(instance), message)
                .also(node_ref(node))
                .command("kubectl get nodes --show-labels", &[])
                .command("virtctl stop -n {} {}", &[namespace(instance), name(instance)]),
        );
    }
    Ok(findings)
}

fn zombie(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some((_, nodes)) = plan_and_nodes(patient)? else {
        return Ok(Vec::new());
    };
    let launchers = patient
        .pods()?
        .iter()
        .filter(|pod| label(*pod, "kubevirt.io") == Some("virt-launcher"));
    let mut by_name: HashSet<(&str, &str)> = HashSet::new();
    for pod in launchers.filter(|pod| !api::pod::has_ended(pod)) {
        let names = [
            label(pod, VM_NAME),
            label(pod, CREATED_BY),
            super::found::annotation(pod, "kubevirt.io/domain"),
        ];
        by_name.extend(names.into_iter().flatten().map(|name| (namespace(pod), name)));
    }
    let mut findings = Vec::new();
    for (instance, node) in instances(patient, &nodes)? {
        let uid = instance.metadata.uid.as_deref().unwrap_or_default();
        let has_pod = [name(instance), uid]
            .iter()
            .any(|key| by_name.contains(&(namespace(instance), *key)));
        let deleted = instance.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        let began = nodes.get(node).copied().flatten();
        let (finding, since) = if has_ended(instance) {
            let phase = instance.status.phase.as_deref().unwrap_or_default();
            let message = format!(
                "VirtualMachineInstance {} on node {node} has ended ({phase})",
                name(instance)
            );
            (warning(object(instance), message), began)
        } else if !has_pod {
            let message = format!(
                "VirtualMachineInstance {} says that it runs on node {node}, but has no pod there",
                name(instance)
            );
            (error(object(instance), message), began)
        } else if deleted.is_some() {
            let message = format!(
                "VirtualMachineInstance {} on node {node} is being deleted and does not go",
                name(instance)
            );
            (error(object(instance), message), deleted)
        } else {
            continue;
        };
        if findings.len() == MOST || !patient.is_past(since, ZOMBIE) || !patient.is_past(created(instance), ZOMBIE) {
            continue;
        }
        findings.push(finding.also(node_ref(node)).since(since).command(
            "kubectl -n {} delete vmi {} --wait=false",
            &[namespace(instance), name(instance)],
        ));
    }
    Ok(findings)
}

fn foreign_budget(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some((_, nodes)) = plan_and_nodes(patient)? else {
        return Ok(Vec::new());
    };
    let budgets = needed(&patient.snapshot.budgets, "poddisruptionbudgets")?;
    let migrations = needed(&patient.snapshot.migrations, "virtualmachineinstancemigrations")?;
    let open: HashMap<(&str, &str), &VirtualMachineInstanceMigration> = migrations
        .iter()
        .filter(|migration| !rules::evacuation::is_over(migration))
        .map(|migration| ((namespace(migration), name(migration)), migration))
        .collect();
    let here: HashSet<(&str, &str)> = instances(patient, &nodes)?
        .into_iter()
        .map(|(instance, _)| (namespace(instance), name(instance)))
        .collect();
    let mut findings = Vec::new();
    for budget in budgets {
        let Some(migration) = name(budget).strip_prefix("kubevirt-migration-pdb-") else {
            continue;
        };
        if !name(budget).starts_with(EVACUATION_BUDGET) || !patient.is_past(created(budget), BUDGET) {
            continue;
        }
        let guarded = open.get(&(namespace(budget), migration));
        let owners = budget.metadata.owner_references.iter().flatten();
        let mut vms = owners
            .filter(|owner| owner.kind == "VirtualMachineInstance")
            .map(|owner| owner.name.as_str())
            .chain(guarded.and_then(|migration| migration.spec.vmi_name.as_deref()));
        let is_here = vms.any(|vm| here.contains(&(namespace(budget), vm)));
        if is_here || findings.len() == MOST {
            continue;
        }
        let message = match guarded {
            Some(_) => format!(
                "PodDisruptionBudget {} guards a VM that is on no node that is being emptied",
                name(budget)
            ),
            None => format!("PodDisruptionBudget {} guards a migration that is over", name(budget)),
        };
        findings.push(
            info(ObjectRef::of(budget), message)
                .since(created(budget))
                .command("kubectl -n {} get pdb {} -o yaml", &[namespace(budget), name(budget)]),
        );
    }
    Ok(findings)
}
