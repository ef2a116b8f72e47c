//! What runs on every node by system-upgrade-controller: a Plan that it lost, a deadline, a disk.

use std::collections::HashSet;

use api::{Phase, UpgradePlan, Wait, foreign::suc::Plan, labels, names, quoted::quoted, reasons};
use jiff::SignedDuration;

use super::{
    Leads, Patient, Situation,
    found::{MOST, More, created, error, found, label, name, namespace, node_ref, warning},
    patient::states,
    workloads::not_rolled_out,
};
use crate::finding::{Finding, Missing, ObjectRef, Severity, needed};

/// A Plan that is not applied by then is not being applied.
const LOST: SignedDuration = SignedDuration::from_mins(30);
/// system-upgrade-controller takes up a Plan within this time.
const TAKEN_UP: SignedDuration = SignedDuration::from_mins(10);
/// Its Deployment is available again within this time.
const CONTROLLER: SignedDuration = SignedDuration::from_mins(10);
/// Older warnings of a kubelet say nothing about now.
const WARNINGS: SignedDuration = SignedDuration::from_mins(60);

/// The name of its Deployment.
const NAME: &str = "system-upgrade-controller";
/// What Kubernetes says of a Job that did not end in time.
const DEADLINE_EXCEEDED: &str = "Job was active longer than specified deadline";
const RETRY: &str = "kubectl annotate upgradeplan {} management.harvesterhci.io/retry=again --overwrite";
/// Its label on Jobs: the Plan.
const SUC_PLAN: &str = "upgrade.cattle.io/plan";

const LEADS: &[Leads] = &[
    Leads::Plan(Wait::ImagePreload),
    Leads::Plan(Wait::ImageCleanup),
    Leads::Plan(Wait::SkipManifestsApply),
    Leads::Plan(Wait::SkipManifestsRemove),
    Leads::Plan(Wait::ToolkitImage),
    Leads::Plan(Wait::FailedJob),
];

/// A Plan that was lost.
pub(super) const D28: Situation = Situation {
    id: "D28",
    symptom: "The preload or the cleanup of images does not move for more than 30 minutes",
    cause: "system-upgrade-controller lost its Plan: it applies it to a node, but there is no Job",
    remedy: "Restart system-upgrade-controller.",
    leads: LEADS,
    look: lost_plan,
};

/// A deadline.
pub(super) const D29: Situation = Situation {
    id: "D29",
    symptom: "The preload or another Job of the upgrade failed",
    cause: "The Job did not end before its deadline",
    remedy: "Remove what makes it slow, or preload on fewer nodes at once (spec.imagePreloadOption.concurrency), and retry the plan.",
    leads: &[
        Leads::Plan(Wait::FailedJob),
        Leads::Plan(Wait::ImagePreload),
        Leads::Plan(Wait::ImageCleanup),
        Leads::Plan(Wait::ClusterUpgradeJob),
    ],
    look: deadline,
};

/// A disk.
pub(super) const D30: Situation = Situation {
    id: "D30",
    symptom: "Images do not stay on a node, or pods are evicted from it",
    cause: "The disk of the node is full",
    remedy: "Remove unused images and files from the disk of the node.",
    leads: &[
        Leads::Plan(Wait::ImagePreload),
        Leads::Plan(Wait::NewImages),
        Leads::Plan(Wait::Preflight),
    ],
    look: disk,
};

fn is_of(plan: &UpgradePlan, suc_plan: &Plan) -> bool {
    label(suc_plan, labels::UPGRADE_PLAN) == Some(name(plan))
}

fn lost_plan(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active()? else {
        return Ok(Vec::new());
    };
    let plans = needed(&patient.snapshot.suc_plans, "plans.upgrade.cattle.io")?;
    let jobs = needed(&patient.snapshot.jobs, "jobs")?;
    let has_job: HashSet<(&str, &str)> = jobs
        .iter()
        .filter_map(|job| Some((label(job, SUC_PLAN)?, label(job, labels::SUC_NODE)?)))
        .collect();
    let restart = "kubectl -n cattle-system rollout restart deployment/system-upgrade-controller";
    let mut findings = Vec::new();
    for suc_plan in plans.iter().filter(|suc_plan| is_of(plan, suc_plan)) {
        let since = created(suc_plan);
        let is_taken_up = suc_plan
            .status
            .latest_hash
            .as_deref()
            .is_some_and(|hash| !hash.is_empty());
        if !is_taken_up && patient.is_past(since, TAKEN_UP) {
            let message = format!("system-upgrade-controller has not taken up Plan {}", name(suc_plan));
            findings.push(
                error(ObjectRef::of(suc_plan), message)
                    .since(since)
                    .command(restart, &[]),
            );
        }
        let applying = suc_plan.status.applying.iter().flatten();
        for node in applying.filter(|node| !has_job.contains(&(name(suc_plan), node.as_str()))) {
            if patient.is_past(since, LOST) && findings.len() < MOST {
                let message = format!(
                    "system-upgrade-controller applies Plan {} to node {node}, but there is no Job for it",
                    name(suc_plan)
                );
                let finding = error(ObjectRef::of(suc_plan), message).also(node_ref(node));
                findings.push(finding.since(since).command(restart, &[]));
            }
        }
    }
    let deployments = needed(&patient.snapshot.deployments, "deployments")?;
    let controller = deployments
        .iter()
        .find(|deployment| namespace(*deployment) == names::CATTLE_NAMESPACE && name(*deployment) == NAME);
    if let Some((deployment, (why, since))) =
        controller.and_then(|deployment| Some((deployment, not_rolled_out(deployment)?)))
        && patient.is_past(since, CONTROLLER)
    {
        let message = format!("Deployment {NAME} is not available: {why}");
        findings.push(
            error(ObjectRef::of(deployment), message)
                .since(since)
                .command(restart, &[]),
        );
    }
    Ok(findings)
}

fn deadline(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.subject()? else {
        return Ok(Vec::new());
    };
    let jobs = needed(&patient.snapshot.jobs, "jobs")?;
    let of_plan = jobs
        .iter()
        .filter(|job| label(*job, labels::UPGRADE_PLAN) == Some(name(plan)));
    let mut findings = Vec::new();
    for job in of_plan {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
        let failed = conditions.into_iter().flatten().find(|condition| {
            condition.type_ == "Failed"
                && condition.status == "True"
                && condition.reason.as_deref() == Some("DeadlineExceeded")
        });
        let Some(failed) = failed.filter(|_| findings.len() < MOST) else {
            continue;
        };
        let said = failed.message.as_deref().unwrap_or("DeadlineExceeded");
        let message = format!("Job {} did not end before its deadline: {}", name(job), quoted(said));
        let finding = error(ObjectRef::of(job), message)
            .since(failed.last_transition_time.as_ref().map(|time| time.0))
            .command("kubectl -n {} logs job/{} --tail=50", &[namespace(job), name(job)])
            .command(RETRY, &[name(plan)]);
        let node = label(job, labels::SUC_NODE).or_else(|| label(job, labels::NODE));
        findings.push(match node {
            Some(node) => finding.also(node_ref(node)),
            None => finding,
        });
    }
    if findings.is_empty() {
        findings.extend(failed_by_deadline(plan));
    }
    Ok(findings)
}

/// A plan that has failed removes its Plans, and system-upgrade-controller their Jobs. Why they failed is in the plan, in the
/// Jobs' own words.
fn failed_by_deadline(plan: &UpgradePlan) -> Option<Finding> {
    let condition = plan
        .condition(reasons::PROGRESSING)
        .filter(|_| plan.phase() == Some(Phase::Failed))
        .filter(|condition| condition.message.contains(DEADLINE_EXCEEDED))?;
    let message = format!(
        "A Job of the upgrade did not end before its deadline: {}",
        quoted(&condition.message)
    );
    let finding = error(ObjectRef::of(plan), message)
        .since(Some(condition.last_transition_time.0))
        .command("kubectl describe upgradeplan {}", &[name(plan)])
        .command(RETRY, &[name(plan)]);
    let failed = states(plan).filter(|(_, entry)| entry.state().is_some_and(|state| state.ends_with("Failed")));
    Some(
        failed
            .take(MOST)
            .fold(finding, |finding, (node, _)| finding.also(node_ref(node))),
    )
}

fn disk(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.subject()? else {
        return Ok(Vec::new());
    };
    let needs_room = plan
        .phase()
        .is_none_or(|phase| phase < Phase::CleaningUp || phase == Phase::Failed);
    let mut findings = Vec::new();
    for node in patient.nodes()? {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let pressure = conditions
            .into_iter()
            .find(|condition| condition.type_ == "DiskPressure" && condition.status == "True");
        let events = patient.events("Node", "", name(node));
        let warned = events.iter().find(|event| {
            let at = event.last_timestamp.as_ref().map(|time| time.0);
            matches!(event.reason.as_deref(), Some("FreeDiskSpaceFailed" | "ImageGCFailed"))
                && at.is_some_and(|at| patient.now.duration_since(at) < WARNINGS)
        });
        let usage = patient
            .snapshot
            .kubelet_disks
            .get(name(node))
            .and_then(|disk| disk.as_ref().ok());
        let full = usage.filter(|disk| {
            disk.capacity_bytes > 0
                && disk.used_bytes as f64 * 100.0 >= disk.capacity_bytes as f64 * disk.image_gc_high_threshold_percent
        });
        let finding = if let Some(pressure) = pressure {
            let said = pressure.message.as_deref().unwrap_or("DiskPressure");
            let message = format!("The disk of node {} is full: {}", name(node), quoted(said));
            error(node_ref(name(node)), message).since(pressure.last_transition_time.as_ref().map(|time| time.0))
        } else if let Some(warned) = warned {
            let said = warned.message.as_deref().unwrap_or("FreeDiskSpaceFailed");
            let message = format!(
                "The kubelet of node {} cannot free disk space: {}",
                name(node),
                quoted(said)
            );
            warning(node_ref(name(node)), message).since(warned.last_timestamp.as_ref().map(|time| time.0))
        } else if let Some(disk) = full.filter(|_| needs_room) {
            let message = format!(
                "The disk of node {} is {} % full: above {} % the kubelet removes images",
                name(node),
                disk.used_bytes.saturating_mul(100) / disk.capacity_bytes,
                disk.image_gc_high_threshold_percent
            );
            found(Severity::Warning, node_ref(name(node)), message)
        } else {
            continue;
        };
        findings.push(
            finding
                .command("kubectl describe node {}", &[name(node)])
                .command("ssh rancher@{} sudo crictl rmi --prune", &[name(node)]),
        );
    }
    findings.truncate(MOST);
    Ok(findings)
}
