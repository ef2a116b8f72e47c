//! Nodes that do not come back from their reboot, come back with the old system, or left the cluster.

use api::{
    NodeUpgradeStatus, Phase, UpgradePlan, Wait, annotations, labels, names, node, node_progress::Stage, quoted::quoted,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::{
    Leads, Patient, Situation,
    found::{MOST, More, annotation, error, label, name, namespace, node_ref, warning},
    patient::{node_waits_since, states, waits_since},
};
use crate::finding::{Finding, Missing, ObjectRef};

/// Large servers take ten minutes to boot.
const REBOOT: SignedDuration = SignedDuration::from_mins(15);
/// etcd is ready within this time after its node is back.
const ETCD: SignedDuration = SignedDuration::from_mins(10);

const LEADS: &[Leads] = &[
    Leads::Plan(Wait::Reboot),
    Leads::Plan(Wait::SingleNodeJob),
    Leads::Plan(Wait::PostDrainJob),
    Leads::Plan(Wait::RancherUpdate),
];

/// Away.
pub(super) const D37: Situation = Situation {
    id: "D37",
    symptom: "A node stays in WaitingReboot for more than 15 minutes",
    cause: "The node is down, or has not rebooted",
    remedy: "Look at the console of the node: whether it boots, and whether its network interfaces still have their names.",
    leads: LEADS,
    look: away,
};

/// The old system.
pub(super) const D38: Situation = Situation {
    id: "D38",
    symptom: "A node is back from its reboot, with the old operating system",
    cause: "The new image did not boot, and the node fell back to the passive one",
    remedy: "On the node, look at /oem/grubenv, the size of partition COS_STATE and the log of the boot. Then retry the plan: the system is installed again.",
    leads: LEADS,
    look: old_system,
};

/// etcd.
pub(super) const D40: Situation = Situation {
    id: "D40",
    symptom: "A control-plane node is not Ready after its reboot",
    cause: "etcd of the node does not come up: it is still a learner, or has remains of an earlier member",
    remedy: "On another control-plane node, list the members of etcd; remove the learner of this node, and restart rke2-server on it (harvester#11359).",
    leads: LEADS,
    look: etcd,
};

/// Gone.
pub(super) const D44: Situation = Situation {
    id: "D44",
    symptom: "A node of the plan is not in the cluster",
    cause: "The node was removed during the upgrade",
    remedy: "Nothing, if that was intended: the plan continues without it. Otherwise join it again with the new version.",
    leads: &[
        Leads::Plan(Wait::Nodes),
        Leads::Plan(Wait::RancherNextNode),
        Leads::Plan(Wait::RancherUpdate),
    ],
    look: gone,
};

fn boot_id(node: &Node) -> Option<&str> {
    Some(node.status.as_ref()?.node_info.as_ref()?.boot_id.as_str())
}

/// The node has booted since its upgrade began; nothing where that is not recorded.
fn has_rebooted(node: &Node) -> Option<bool> {
    let before = annotation(node, annotations::BOOT_ID_BEFORE_UPGRADE)?;
    Some(boot_id(node) != Some(before))
}

/// Since when the node is not ready.
fn unready_since(node: &Node) -> Option<Timestamp> {
    let ready = node::ready_condition(node).filter(|ready| ready.status != "True")?;
    Some(ready.last_transition_time.as_ref()?.0)
}

fn away(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active_in(&[Phase::NodeUpgrading])? else {
        return Ok(Vec::new());
    };
    let mut findings = Vec::new();
    for (name, entry) in states(plan) {
        let Some(node) = patient.node(name)? else {
            continue;
        };
        let waits = node_waits_since(plan, Wait::Reboot, name);
        let is_rebooting = entry.progress().stage() == Stage::Rebooting;
        let unready = unready_since(node);
        let (message, since) = if patient.is_past(unready, REBOOT) {
            let ready = node::ready_condition(node);
            let said = ready
                .and_then(|ready| ready.message.as_deref())
                .unwrap_or("no reason given");
            let booted = match has_rebooted(node) {
                Some(true) => "; it has booted since its upgrade began",
                Some(false) => "; no boot is recorded since its upgrade began",
                None => "",
            };
            (format!("Node {name} is not ready: {}{booted}", quoted(said)), unready)
        } else if is_rebooting
            && unready.is_none()
            && has_rebooted(node) == Some(false)
            && patient.is_past(waits, REBOOT)
        {
            (format!("Node {name} is ready, but has not rebooted"), waits)
        } else {
            continue;
        };
        findings.push(
            error(node_ref(name), message)
                .since(since)
                .command("kubectl describe node {}", &[name])
                .command(
                    "kubectl -n harvester-system get pods -o wide --field-selector spec.nodeName={}",
                    &[name],
                ),
        );
    }
    Ok(findings)
}

/// The operating system that a node is to have.
fn wanted_system<'a>(plan: &'a UpgradePlan, node: &'a Node) -> Option<&'a str> {
    let release = plan.status.as_ref().and_then(|status| status.release_metadata.as_ref());
    annotation(node, annotations::PENDING_OS_IMAGE).or_else(|| release?.os.as_deref())
}

fn fell_back(plan: &UpgradePlan, node: &Node, entry: &NodeUpgradeStatus) -> Option<String> {
    let info = node.status.as_ref()?.node_info.as_ref()?;
    let wanted = wanted_system(plan, node)?;
    let is_old = info.os_image != wanted;
    let is_recorded = entry.reason.as_deref() == Some(api::reasons::OLD_OS_IMAGE);
    let has_come_back = entry.progress().stage() == Stage::Rebooting && has_rebooted(node) == Some(true);
    (is_old && node::is_ready(node) && (is_recorded || has_come_back))
        .then(|| format!("runs {} and not {}", quoted(&info.os_image), quoted(wanted)))
}

fn old_system(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.subject()? else {
        return Ok(Vec::new());
    };
    let mut findings = Vec::new();
    for (name, entry) in states(plan) {
        let Some(why) = patient.node(name)?.and_then(|node| fell_back(plan, node, entry)) else {
            continue;
        };
        findings.push(
            error(
                node_ref(name),
                format!("Node {name} is back from its reboot, but {why}"),
            )
            .since(node_waits_since(plan, Wait::Reboot, name))
            .command("ssh rancher@{} cat /oem/grubenv /run/cos/*_mode", &[name])
            .command("ssh rancher@{} sudo blkid -L COS_STATE", &[name])
            .command(
                "kubectl annotate upgradeplan {} management.harvesterhci.io/retry=again --overwrite",
                &[super::found::name(plan)],
            ),
        );
    }
    Ok(findings)
}

fn etcd(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active_in(&[Phase::NodeUpgrading])? else {
        return Ok(Vec::new());
    };
    let stages = [Stage::Emptied, Stage::Installing, Stage::Rebooting, Stage::Ended];
    let mut findings = Vec::new();
    for (node_name, _) in patient.at(plan, &stages) {
        let Some(node) = patient.node(node_name)? else {
            continue;
        };
        if label(node, labels::ETCD).is_none() && label(node, labels::CONTROL_PLANE).is_none() {
            continue;
        }
        let pod = patient
            .pods_on(node_name)?
            .iter()
            .find(|pod| namespace(**pod) == names::KUBE_SYSTEM_NAMESPACE && label(**pod, "component") == Some("etcd"));
        let Some(pod) = pod else {
            continue;
        };
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let unready = conditions
            .into_iter()
            .find(|condition| condition.type_ == "Ready" && condition.status != "True");
        let since = unready
            .and_then(|condition| condition.last_transition_time.as_ref())
            .map(|time| time.0);
        if has_rebooted(node) == Some(false) || !patient.is_past(since, ETCD) {
            continue;
        }
        let said = unready
            .and_then(|condition| condition.message.as_deref())
            .unwrap_or("no reason given");
        let message = format!(
            "etcd of control-plane node {node_name} is not ready since its reboot: {}",
            quoted(said)
        );
        findings.push(
            error(ObjectRef::of(*pod), message)
                .also(node_ref(node_name))
                .since(since)
                .command("kubectl -n kube-system get pods -l component=etcd -o wide", &[])
                .command("kubectl -n kube-system logs {} --tail=50", &[name(*pod)]),
        );
    }
    Ok(findings)
}

fn gone(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active()? else {
        return Ok(Vec::new());
    };
    let mut findings = Vec::new();
    for (name, entry) in states(plan) {
        if patient.node(name)?.is_some() {
            continue;
        }
        let state = entry.state().unwrap_or_default();
        let message = format!("Node {name} is in the plan ({}), but not in the cluster", quoted(state));
        let since = waits_since(plan, Wait::Nodes.as_str(), Some(&format!("Node {name}")));
        findings.push(removed(name, message).since(since));
    }
    // The manager drops a node that is gone from the plan; its Machine stays until it is deleted.
    let machines = patient.snapshot.machines.as_deref().unwrap_or_default();
    for machine in machines.iter().filter(|one| one.metadata.deletion_timestamp.is_none()) {
        let node = machine.status.node_ref.as_ref().and_then(|node| node.name.as_deref());
        let Some(node) = node else { continue };
        if patient.node(node)?.is_some() || states(plan).any(|(name, _)| name == node) {
            continue;
        }
        let message = format!(
            "Node {node} of Machine {}/{} is not in the cluster: the plan continues without it",
            namespace(machine),
            name(machine)
        );
        findings.push(removed(node, message).also(ObjectRef::of(machine)));
    }
    findings.truncate(MOST);
    Ok(findings)
}

fn removed(node: &str, message: String) -> Finding {
    warning(node_ref(node), message)
        .command("kubectl get nodes", &[])
        .command("kubectl -n fleet-local get machines.cluster.x-k8s.io", &[])
}
