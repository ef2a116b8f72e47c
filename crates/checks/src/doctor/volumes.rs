//! Volumes that keep a node from being emptied: the last replica, rebuilds, replicas without a place, stale attachments.

use std::collections::BTreeSet;

use api::{
    ProgramWait, UpgradePlan, Wait, annotations,
    foreign::longhorn::{Engine, Volume},
    names,
    node_progress::Stage,
    quoted::quoted,
};
use jiff::{SignedDuration, Timestamp};
use rules::longhorn_health::{ALWAYS_ALLOW, DRAIN_POLICY, claims_in_use, skipped};

use super::{
    Leads, Patient, Situation,
    found::{MOST, More, error, found, info, name, node_ref, warning},
    patient::{condition, condition_since, node_waits_since, started, waits_since, words},
};
use crate::finding::{Finding, Missing, ObjectRef, Severity, all_known, needed};

/// VMs that use a volume need so long to leave, at least.
const LAST_REPLICA: SignedDuration = SignedDuration::from_mins(5);
/// A failed rebuild is begun again within this time.
const REBUILD: SignedDuration = SignedDuration::from_mins(30);
/// A replica finds a place, or a backing image is there, within this time.
const PLACE: SignedDuration = SignedDuration::from_mins(10);
/// A volume is detached within this time after what used it has ended.
const DETACH: SignedDuration = SignedDuration::from_mins(5);
/// Without a wait that says since when, a stale attachment counts after this time.
const SILENT: SignedDuration = SignedDuration::from_mins(15);

const LEADS: &[Leads] = &[
    Leads::Program(ProgramWait::LonghornVolume),
    Leads::Program(ProgramWait::VolumesLeft),
    Leads::Plan(Wait::PreDrainJob),
];

/// The last replica is on the node.
pub(super) const D03: Situation = Situation {
    id: "D03",
    symptom: "A node stays in PreDraining or PreDrained",
    cause: "The only replica of a volume that is used on another node is on this node",
    remedy: "Add a replica on another node and wait until the volume is healthy, or stop what uses the volume.",
    leads: &[
        Leads::Program(ProgramWait::LonghornVolume),
        Leads::Program(ProgramWait::VolumesLeft),
        Leads::Plan(Wait::PreDrainJob),
        Leads::Plan(Wait::RancherUpdate),
    ],
    look: last_replica,
};

/// A rebuild.
pub(super) const D04: Situation = Situation {
    id: "D04",
    symptom: "A node stays in PreDraining; volumes are not healthy",
    cause: "A replica is being rebuilt",
    remedy: "Wait until the rebuild is complete.",
    leads: LEADS,
    look: rebuild,
};

/// A replica without a place.
pub(super) const D05: Situation = Situation {
    id: "D05",
    symptom: "A node stays in PreDraining; volumes are not healthy",
    cause: "A replica cannot be scheduled",
    remedy: "Free disk space, add a disk, enable scheduling on the Longhorn node, or delete snapshots where there are too many.",
    leads: LEADS,
    look: no_place,
};

/// A backing image.
pub(super) const D06: Situation = Situation {
    id: "D06",
    symptom: "A node stays in PreDraining; volumes are not healthy",
    cause: "A volume waits for its backing image",
    remedy: "Repair the BackingImage: its status shows which copy failed.",
    leads: LEADS,
    look: backing_image,
};

/// A stale attachment.
pub(super) const D07: Situation = Situation {
    id: "D07",
    symptom: "A node stays in PreDraining or PreDrained",
    cause: "A volume is attached to the node although no pod uses it",
    remedy: "Detach the volume in Longhorn, or remove its tickets from the VolumeAttachment.",
    leads: &[
        Leads::Program(ProgramWait::StaleAttachment),
        Leads::Program(ProgramWait::VolumesLeft),
        Leads::Plan(Wait::PreDrainJob),
        Leads::Plan(Wait::RancherUpdate),
    ],
    look: stale_attachment,
};

/// Nodes that are being emptied or drained, and since when.
fn leaving<'a>(patient: &Patient<'a>, plan: &'a UpgradePlan) -> Vec<(&'a str, Option<Timestamp>)> {
    let nodes = patient.at(plan, &[Stage::Emptying, Stage::Emptied]);
    nodes.into_iter().map(|(name, entry)| (name, started(entry))).collect()
}

fn is_attached(volume: &Volume) -> bool {
    volume.status.state.as_deref() == Some("attached")
}

/// The volume, and the claim that people know it by.
fn shown(volume: &Volume) -> String {
    match claim(volume) {
        Some(claim) => format!("Volume {} of claim {claim}", name(volume)),
        None => format!("Volume {}", name(volume)),
    }
}

fn claim(volume: &Volume) -> Option<String> {
    let status = volume.status.kubernetes_status.as_ref()?;
    let (claim, namespace) = status.pvc_name.as_deref().zip(status.namespace.as_deref())?;
    (!claim.is_empty()).then(|| format!("{namespace}/{claim}"))
}

fn of(volume: &Volume) -> ObjectRef {
    ObjectRef::new("Volume", Some(names::LONGHORN_NAMESPACE), name(volume))
}

fn last_replica(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active()? else {
        return Ok(Vec::new());
    };
    let leaving = leaving(patient, plan);
    if leaving.is_empty() {
        return Ok(Vec::new());
    }
    let volumes = needed(&patient.snapshot.volumes, "volumes.longhorn.io")?;
    let replicas = needed(&patient.snapshot.replicas, "replicas.longhorn.io")?;
    let settings = patient.snapshot.longhorn_settings.as_deref().unwrap_or_default();
    let policy = settings.iter().find(|setting| name(*setting) == DRAIN_POLICY);
    if policy.is_some_and(|policy| policy.value == ALWAYS_ALLOW) {
        return Ok(Vec::new());
    }
    let left_out = skipped(plan.annotation(annotations::SKIP_VOLUMES));
    let single = volumes.iter().filter(|volume| {
        volume.spec.number_of_replicas == Some(1) && is_attached(volume) && !left_out.contains(name(*volume))
    });
    let mut findings = Vec::new();
    for volume in single {
        let of_volume = replicas
            .iter()
            .find(|replica| replica.spec.volume_name.as_deref() == Some(name(volume)));
        let on = of_volume.and_then(|replica| replica.spec.node_id.as_deref());
        let user = volume.status.current_node_id.as_deref();
        let Some((node, since)) = leaving
            .iter()
            .find(|(node, _)| Some(*node) == on && Some(*node) != user)
        else {
            continue;
        };
        if !patient.is_past(*since, LAST_REPLICA) {
            continue;
        }
        let message = format!(
            "{} has one replica, which is on node {node}, and is used on {}",
            shown(volume),
            user.unwrap_or("another node")
        );
        let patch = r#"kubectl -n longhorn-system patch volumes.longhorn.io {} --type merge -p '{"spec":{"numberOfReplicas":2}}'"#;
        findings.push(
            error(of(volume), message)
                .also(node_ref(node))
                .since(*since)
                .command(patch, &[name(volume)]),
        );
    }
    findings.truncate(MOST);
    Ok(findings)
}

fn engine_of<'a>(engines: &'a [Engine], volume: &Volume) -> Option<&'a Engine> {
    let mut of_volume = engines
        .iter()
        .filter(|engine| engine.spec.volume_name.as_deref() == Some(name(volume)));
    of_volume.find(|engine| engine.status.current_state.as_deref() == Some("running"))
}

fn rebuild(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active()? else {
        return Ok(Vec::new());
    };
    let leaving = leaving(patient, plan);
    if leaving.is_empty() {
        return Ok(Vec::new());
    }
    let volumes = needed(&patient.snapshot.volumes, "volumes.longhorn.io")?;
    let engines = needed(&patient.snapshot.engines, "engines.longhorn.io")?;
    let unhealthy = volumes.iter().filter(|volume| {
        is_attached(volume)
            && volume
                .status
                .robustness
                .as_deref()
                .is_some_and(|robustness| robustness != "healthy")
    });
    let mut findings = Vec::new();
    for volume in unhealthy.take(MOST) {
        let Some(engine) = engine_of(engines, volume) else {
            continue;
        };
        let since: Option<Timestamp> = volume.status.last_degraded_at.as_deref().and_then(|at| at.parse().ok());
        let rebuilds = engine
            .status
            .rebuild_status
            .iter()
            .flat_map(|rebuilds| rebuilds.values());
        let (mut percent, mut trouble) = (None, None);
        for rebuild in rebuilds {
            if rebuild.is_rebuilding == Some(true) || rebuild.state.as_deref() == Some("in_progress") {
                percent = Some(rebuild.progress.unwrap_or_default());
            }
            trouble = trouble.or(rebuild.error.as_deref().filter(|error| !error.is_empty()));
        }
        let finding = match (percent, trouble) {
            (Some(percent), _) => info(of(volume), format!("{} is being rebuilt: {percent} %", shown(volume))),
            (None, Some(trouble)) => {
                let is_long = patient.is_past(since, REBUILD);
                let severity = if is_long { Severity::Error } else { Severity::Warning };
                let message = format!("A rebuild of {} failed: {}", shown(volume), quoted(trouble));
                found(severity, of(volume), message)
                    .remedy("Longhorn begins the rebuild again. If it fails each time, repair the disk or the node that the error names.")
            }
            (None, None) => continue,
        };
        findings.push(finding.since(since).command(
            "kubectl -n longhorn-system get engines.longhorn.io {} -o yaml",
            &[name(engine)],
        ));
    }
    Ok(findings)
}

fn no_place(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active()? else {
        return Ok(Vec::new());
    };
    let volumes = needed(&patient.snapshot.volumes, "volumes.longhorn.io")?;
    // While a node is down, its replicas have no place, and get it back with the node.
    let is_down = !patient.at(plan, &[Stage::Installing, Stage::Rebooting]).is_empty() || !patient.all_nodes_ready()?;
    let severity = if is_down { Severity::Info } else { Severity::Error };
    let mut findings = Vec::new();
    for volume in volumes {
        let conditions = volume.status.conditions.as_ref();
        let unscheduled =
            condition(conditions, "Scheduled", "False").map(|condition| (condition, "has a replica without a place"));
        let snapshots =
            condition(conditions, "TooManySnapshots", "True").map(|condition| (condition, "has too many snapshots"));
        let is_unhealthy = volume.status.robustness.as_deref() != Some("healthy");
        let Some((condition, what)) = unscheduled.or(snapshots.filter(|_| is_unhealthy)) else {
            continue;
        };
        let since = condition_since(condition);
        if findings.len() == MOST || !patient.is_past(since, PLACE) {
            continue;
        }
        let mut message = format!("{} {what}: {}", shown(volume), words(condition));
        if let Some(disk) = full_disk(patient) {
            message.push_str(&format!("; {disk}"));
        }
        findings.push(
            found(severity, of(volume), message)
                .since(since)
                .command("kubectl -n longhorn-system get nodes.longhorn.io -o wide", &[])
                .command(
                    "kubectl -n longhorn-system get volumes.longhorn.io {} -o yaml",
                    &[name(volume)],
                ),
        );
    }
    Ok(findings)
}

/// A disk that takes no replicas, in Longhorn's words.
fn full_disk(patient: &Patient<'_>) -> Option<String> {
    let nodes = patient.snapshot.longhorn_nodes.as_deref().unwrap_or_default();
    nodes.iter().find_map(|node| {
        let mut disks = node.status.disk_status.iter().flatten();
        disks.find_map(|(disk, status)| {
            let condition = condition(status.conditions.as_ref(), "Schedulable", "False")?;
            Some(format!(
                "disk {disk} of node {} takes no replicas: {}",
                name(node),
                words(condition)
            ))
        })
    })
}

fn backing_image(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    if patient.active()?.is_none() {
        return Ok(Vec::new());
    }
    let volumes = needed(&patient.snapshot.volumes, "volumes.longhorn.io")?;
    let waiting = volumes.iter().filter_map(|volume| {
        let condition = condition(volume.status.conditions.as_ref(), "WaitForBackingImage", "True")?;
        let since = condition_since(condition);
        patient.is_past(since, PLACE).then_some((volume, condition, since))
    });
    let found = waiting.take(MOST).map(|(volume, condition, since)| {
        let image = volume
            .spec
            .other
            .get("backingImage")
            .and_then(|image| image.as_str())
            .unwrap_or_default();
        let message = format!("{} waits for BackingImage {image}: {}", shown(volume), words(condition));
        error(of(volume), message)
            .also(ObjectRef::new("BackingImage", Some(names::LONGHORN_NAMESPACE), image))
            .since(since)
            .command(
                "kubectl -n longhorn-system get backingimages.longhorn.io {} -o yaml",
                &[image],
            )
    });
    Ok(found.collect())
}

fn stale_attachment(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = patient.active()? else {
        return Ok(Vec::new());
    };
    let leaving = leaving(patient, plan);
    if leaving.is_empty() {
        return Ok(Vec::new());
    }
    let volumes = needed(&patient.snapshot.volumes, "volumes.longhorn.io")?;
    let used: BTreeSet<String> = claims_in_use(patient.pods()?);
    let (mut findings, mut unknown) = (Vec::new(), BTreeSet::new());
    for volume in volumes.iter().filter(|volume| is_attached(volume)) {
        let on = volume.status.current_node_id.as_deref();
        let Some((node, began)) = leaving.iter().find(|(node, _)| Some(*node) == on) else {
            continue;
        };
        let Some(claim) = claim(volume).filter(|claim| !used.contains(claim)) else {
            continue;
        };
        // Pods of a namespace that is not known may use it.
        let namespace = claim.split('/').next().unwrap_or_default();
        if !patient.snapshot.knows_namespace(namespace) {
            unknown.insert(namespace.to_owned());
            continue;
        }
        let object = of(volume).to_string();
        let said = waits_since(plan, ProgramWait::StaleAttachment.as_str(), Some(&object));
        let drained = node_waits_since(plan, Wait::RancherUpdate, node);
        let is_long =
            patient.is_past(said, DETACH) || patient.is_past(drained, DETACH) || patient.is_past(*began, SILENT);
        if !is_long || findings.len() == MOST {
            continue;
        }
        let message = format!(
            "Volume {} is attached to node {node}, but no pod uses claim {claim}",
            name(volume)
        );
        findings.push(
            error(of(volume), message)
                .also(node_ref(node))
                .since(said.or(drained))
                .command(
                    "kubectl -n longhorn-system get volumeattachments.longhorn.io {} -o yaml",
                    &[name(volume)],
                ),
        );
    }
    findings.extend(undeleted(patient, &leaving)?);
    all_known(findings, &unknown, "pods")
}

/// Attachments that Kubernetes wants to be gone, and that are not.
fn undeleted(patient: &Patient<'_>, leaving: &[(&str, Option<Timestamp>)]) -> Result<Vec<Finding>, Missing> {
    let attachments = needed(&patient.snapshot.attachments, "volumeattachments.storage.k8s.io")?;
    let stuck = attachments.iter().filter_map(|attachment| {
        let since = attachment.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        let node = leaving.iter().find(|(node, _)| *node == attachment.spec.node_name)?.0;
        patient.is_past(since, DETACH).then_some((attachment, node, since))
    });
    let found = stuck.take(MOST).map(|(attachment, node, since)| {
        let message = format!(
            "VolumeAttachment {} of node {node} is being deleted and does not go",
            name(attachment)
        );
        warning(ObjectRef::of(attachment), message)
            .also(node_ref(node))
            .since(since)
            .command(
                "kubectl get volumeattachments.storage.k8s.io {} -o yaml",
                &[name(attachment)],
            )
    });
    Ok(found.collect())
}
