//! What an upgrade runs on: its log, KubeVirt, clocks, the manager itself.

use api::{ProgramWait, Wait, names, quoted::quoted};
use jiff::SignedDuration;
use serde_json::Value;

use super::{
    Leads, Patient, Situation,
    found::{MOST, More, annotation, created, error, found, label, name, namespace, node_ref, warning},
    patient::{condition, condition_since, words},
    workloads::why_not_started,
};
use crate::finding::{Finding, Missing, ObjectRef, Severity, needed};

/// Pods of the log start within this time.
const LOG: SignedDuration = SignedDuration::from_mins(5);
/// KubeVirt is well again within this time.
const KUBEVIRT: SignedDuration = SignedDuration::from_mins(10);
/// Clocks may differ by so much.
const CLOCK: SignedDuration = SignedDuration::from_secs(30);
/// The manager renews its lease every few seconds.
const LEASE: SignedDuration = SignedDuration::from_mins(3);
/// So many restarts are no accident.
const RESTARTS: i32 = 5;

/// Harvester's label on pods of the log of an upgrade.
const LOG_COMPONENT: &str = "harvesterhci.io/upgradeLogComponent";
/// Harvester's annotation on nodes: how their clock is synchronised.
const NTP: &str = "node.harvesterhci.io/ntp-service";
/// On pods of the manager.
const MANAGER: (&str, &str) = ("control-plane", "controller-manager");

/// The log.
pub(super) const D42: Situation = Situation {
    id: "D42",
    symptom: "The log of the upgrade is not ready",
    cause: "A pod of the log does not start: its image or its volume",
    remedy: "Continue without the log, or repair the image or the claim.",
    leads: &[Leads::Plan(Wait::Pod)],
    look: log,
};

/// KubeVirt.
pub(super) const D43: Situation = Situation {
    id: "D43",
    symptom: "VMs do not migrate or start",
    cause: "KubeVirt is not available or degraded, or virt-handler of a node is not ready",
    remedy: "Restart virt-handler.",
    leads: &[
        Leads::Program(ProgramWait::KubeVirt),
        Leads::Program(ProgramWait::KubeVirtVersion),
        Leads::Program(ProgramWait::VmEvacuation),
        Leads::Program(ProgramWait::VmStart),
        Leads::Plan(Wait::RestoreVm),
    ],
    look: kubevirt,
};

/// Clocks.
pub(super) const D45: Situation = Situation {
    id: "D45",
    symptom: "Leases and certificates fail for no visible reason; times jump",
    cause: "The clock of a node is not synchronised",
    remedy: "Set reachable NTP servers (setting ntp-servers).",
    leads: &[Leads::Plan(Wait::Preflight)],
    look: clock,
};

/// The manager.
pub(super) const D46: Situation = Situation {
    id: "D46",
    symptom: "The status of the plan does not change any more",
    cause: "The manager of upgrades does not run, or restarts again and again",
    remedy: "Read its log and restart it: it continues where the status of the plan says.",
    leads: &[],
    look: manager,
};

fn log(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    if patient.active()?.is_none() {
        return Ok(Vec::new());
    }
    let pods = patient
        .pods()?
        .iter()
        .filter(|pod| label(*pod, LOG_COMPONENT).is_some() && !api::pod::has_ended(pod) && !api::pod::is_ready(pod));
    let mut findings = Vec::new();
    for pod in pods.filter(|pod| patient.is_past(created(*pod), LOG)).take(MOST) {
        let events = patient.events_of_pod(pod);
        let event = events.iter().find_map(|event| event.message.as_deref()).map(quoted);
        let why = why_not_started(patient, pod).or(event);
        let message = format!(
            "Pod {} of the upgrade's log is not ready: {}",
            name(pod),
            why.unwrap_or_else(|| "no reason given".to_owned())
        );
        findings.push(
            warning(ObjectRef::of(pod), message)
                .since(created(pod))
                .command("kubectl -n {} describe pod {}", &[namespace(pod), name(pod)]),
        );
    }
    Ok(findings)
}

fn kubevirt(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    if patient.active()?.is_none() {
        return Ok(Vec::new());
    }
    let restart = "kubectl -n harvester-system rollout restart daemonset/virt-handler";
    let mut findings = Vec::new();
    for kubevirt in needed(&patient.snapshot.kubevirts, "kubevirts.kubevirt.io")? {
        let conditions = kubevirt.status.conditions.as_ref();
        let bad = condition(conditions, "Available", "False").or_else(|| condition(conditions, "Degraded", "True"));
        let Some(bad) = bad.filter(|bad| patient.is_past(condition_since(bad), KUBEVIRT)) else {
            continue;
        };
        // While a node is down, KubeVirt is not whole.
        let severity = if patient.all_nodes_ready()? {
            Severity::Error
        } else {
            Severity::Warning
        };
        let message = format!("KubeVirt is not well ({}): {}", bad.type_, words(bad));
        findings.push(
            found(severity, ObjectRef::of(kubevirt), message)
                .since(condition_since(bad))
                .command("kubectl -n harvester-system get kubevirt -o yaml", &[])
                .command(restart, &[]),
        );
    }
    let handlers = patient
        .pods()?
        .iter()
        .filter(|pod| label(*pod, "kubevirt.io") == Some("virt-handler"));
    for pod in handlers {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let unready = conditions
            .into_iter()
            .find(|condition| condition.type_ == "Ready" && condition.status != "True");
        let since = unready
            .and_then(|condition| condition.last_transition_time.as_ref())
            .map(|time| time.0);
        let node = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.as_deref())
            .unwrap_or_default();
        let is_up = patient.node(node)?.is_some_and(api::node::is_ready);
        if !is_up || !patient.is_past(since, KUBEVIRT) || findings.len() == MOST {
            continue;
        }
        let said = unready
            .and_then(|condition| condition.message.as_deref())
            .unwrap_or("no reason given");
        let message = format!("virt-handler of node {node} is not ready: {}", quoted(said));
        findings.push(
            error(ObjectRef::of(pod), message)
                .also(node_ref(node))
                .since(since)
                .command("kubectl -n {} logs {} --tail=50", &[namespace(pod), name(pod)])
                .command("kubectl -n {} delete pod {}", &[namespace(pod), name(pod)]),
        );
    }
    Ok(findings)
}

fn clock(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    if patient.active()?.is_none() {
        return Ok(Vec::new());
    }
    let leases = needed(&patient.snapshot.leases, "leases")?;
    let mut findings = Vec::new();
    for lease in leases.iter().filter(|lease| namespace(*lease) == "kube-node-lease") {
        let renewed = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.renew_time.as_ref())
            .map(|time| time.0);
        let Some(ahead) = renewed
            .map(|renewed| renewed.duration_since(patient.now))
            .filter(|ahead| *ahead > CLOCK)
        else {
            continue;
        };
        let message = format!("The clock of node {} is {} s ahead", name(lease), ahead.as_secs());
        findings.push(
            warning(node_ref(name(lease)), message)
                .command("kubectl -n kube-node-lease get lease {} -o yaml", &[name(lease)]),
        );
    }
    for node in patient.nodes()? {
        let Some(text) = annotation(node, NTP) else {
            continue;
        };
        let said: Value = serde_json::from_str(text).unwrap_or_default();
        let status = said.get("ntpSyncStatus").and_then(Value::as_str).unwrap_or("unknown");
        if status == "synced" {
            continue;
        }
        let message = format!(
            "The clock of node {} is not synchronised: {}",
            name(node),
            quoted(status)
        );
        findings.push(
            warning(node_ref(name(node)), message)
                .command("kubectl get settings.harvesterhci.io ntp-servers -o yaml", &[])
                .command("ssh rancher@{} timedatectl timesync-status", &[name(node)]),
        );
    }
    findings.truncate(MOST);
    Ok(findings)
}

fn manager(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    if patient.active()?.is_none() {
        return Ok(Vec::new());
    }
    let log = "kubectl -n harvester-system logs deployment/harvester-upgrade-manager-controller-manager --tail=50";
    let restart = "kubectl -n harvester-system rollout restart deployment/harvester-upgrade-manager-controller-manager";
    let leases = needed(&patient.snapshot.leases, "leases")?;
    let mut findings = Vec::new();
    let ours = leases
        .iter()
        .find(|lease| namespace(*lease) == names::HARVESTER_NAMESPACE && name(*lease) == names::LEASE);
    if let Some(lease) = ours {
        let spec = lease.spec.as_ref();
        let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        // Where hours are to pass in no time, a lease lasts long and is renewed rarely.
        if patient.is_past(renewed, LEASE.max(SignedDuration::from_secs(i64::from(seconds)) * 3)) {
            let holder = spec
                .and_then(|spec| spec.holder_identity.as_deref())
                .filter(|holder| !holder.is_empty());
            let message = match holder {
                Some(holder) => format!("The manager of upgrades, {}, does not renew its lease", quoted(holder)),
                None => "No manager of upgrades runs: its lease has no holder".to_owned(),
            };
            findings.push(
                error(ObjectRef::of(lease), message)
                    .since(renewed)
                    .command(log, &[])
                    .command(restart, &[]),
            );
        }
    }
    let pods = patient.pods()?.iter().filter(|pod| {
        namespace(*pod) == names::HARVESTER_NAMESPACE
            && label(*pod, MANAGER.0) == Some(MANAGER.1)
            && name(*pod).contains("upgrade-manager")
    });
    for pod in pods {
        let statuses = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        let Some(container) = statuses
            .into_iter()
            .find(|container| container.restart_count >= RESTARTS)
        else {
            continue;
        };
        let ended = container
            .last_state
            .as_ref()
            .and_then(|state| state.terminated.as_ref());
        let reason = ended
            .and_then(|ended| ended.reason.as_deref())
            .unwrap_or("no reason given");
        let message = format!(
            "The manager's pod {} was restarted {} times: {}",
            name(pod),
            container.restart_count,
            quoted(reason)
        );
        findings.push(
            warning(ObjectRef::of(pod), message)
                .since(ended.and_then(|ended| ended.finished_at.as_ref()).map(|time| time.0))
                .command("kubectl -n harvester-system logs {} --previous --tail=50", &[name(pod)]),
        );
    }
    Ok(findings)
}
