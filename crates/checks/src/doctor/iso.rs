//! The import of the ISO: its pod, its scratch space, its source.

use api::{Phase, UpgradePlan, Wait, names, quoted::quoted};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;

use super::{
    Leads, Patient, Situation,
    found::{More, created, error, name, namespace},
    patient::{condition, condition_since, words},
};
use crate::finding::{Finding, Missing, ObjectRef, needed};

/// So many restarts are no accident.
const RESTARTS: i64 = 3;
/// A claim is bound within this time.
const BIND: SignedDuration = SignedDuration::from_mins(5);

const LEADS: &[Leads] = &[Leads::Plan(Wait::IsoImport)];

/// The importer crashes.
pub(super) const D31: Situation = Situation {
    id: "D31",
    symptom: "The import of the ISO stays at a percentage",
    cause: "The importer pod crashes, most often because it runs out of memory",
    remedy: "Raise podResourceRequirements of CDI, then delete the importer pod.",
    leads: LEADS,
    look: importer,
};

/// The scratch claim.
pub(super) const D32: Situation = Situation {
    id: "D32",
    symptom: "The import of the ISO stays at a percentage",
    cause: "The scratch claim of the importer is denied or stays pending",
    remedy: "Repair the storage class, or raise the ResourceQuota of namespace harvester-system.",
    leads: LEADS,
    look: scratch,
};

/// The source.
pub(super) const D33: Situation = Situation {
    id: "D33",
    symptom: "The import of the ISO fails",
    cause: "The URL cannot be reached, the checksum differs, or a proxy interferes",
    remedy: "Correct the URL, the checksum or the proxy, then create a new plan.",
    leads: LEADS,
    look: source,
};

/// The plan that imports its ISO, or failed doing so.
fn importing<'a>(patient: &Patient<'a>) -> Result<Option<&'a UpgradePlan>, Missing> {
    let phases = [Phase::Initialized, Phase::ISODownloading, Phase::Failed];
    let plan = patient.subject()?;
    Ok(plan.filter(|plan| plan.phase().is_some_and(|phase| phases.contains(&phase))))
}

/// The name of the image that holds the ISO.
fn image(plan: &UpgradePlan) -> String {
    let recorded = plan.status.as_ref().and_then(|status| status.iso_image_id.clone());
    let named = recorded.or_else(|| plan.spec.image.clone());
    let image = named.unwrap_or_else(|| names::iso_image(name(plan)));
    image.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Why a container of the pod ended last, when it ended badly.
fn crash(pod: &Pod) -> Option<(String, i32)> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find_map(|container| {
        let ended = container
            .last_state
            .as_ref()
            .and_then(|state| state.terminated.as_ref());
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        let is_looping = waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"));
        let reason = ended.and_then(|ended| ended.reason.as_deref()).unwrap_or_default();
        let is_bad = reason == "OOMKilled" || is_looping || i64::from(container.restart_count) >= RESTARTS;
        is_bad.then(|| {
            let reason = if reason.is_empty() { "CrashLoopBackOff" } else { reason };
            let said = ended.and_then(|ended| ended.message.as_deref()).unwrap_or_default();
            (quoted(format!("{reason} {said}").trim()), container.restart_count)
        })
    })
}

fn importer(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = importing(patient)? else {
        return Ok(Vec::new());
    };
    let image = image(plan);
    let mut findings = Vec::new();
    let pods = patient
        .pods()?
        .iter()
        .filter(|pod| namespace(*pod) == names::HARVESTER_NAMESPACE && name(*pod).starts_with("importer-"));
    for pod in pods {
        if let Some((why, restarts)) = crash(pod) {
            let message = format!("Importer pod {} was restarted {restarts} times: {why}", name(pod));
            findings.push(
                error(ObjectRef::of(pod), message)
                    .since(created(pod))
                    .command("kubectl -n harvester-system logs {} --previous", &[name(pod)])
                    .command("kubectl get cdi -o yaml", &[])
                    .command("kubectl -n harvester-system delete pod {}", &[name(pod)]),
            );
        }
    }
    if !findings.is_empty() {
        return Ok(findings);
    }
    let volumes = needed(&patient.snapshot.data_volumes, "datavolumes.cdi.kubevirt.io")?;
    for volume in volumes.iter().filter(|volume| name(*volume) == image) {
        let restarts = volume.status.restart_count.unwrap_or(0);
        let phase = volume.status.phase.as_deref().unwrap_or_default();
        if restarts >= RESTARTS && phase != "Succeeded" {
            let message = format!("The importer of DataVolume {image} was restarted {restarts} times ({phase})");
            findings.push(
                error(ObjectRef::of(volume), message)
                    .since(created(volume))
                    .command("kubectl -n harvester-system get datavolume {} -o yaml", &[&image]),
            );
        }
    }
    Ok(findings)
}

fn scratch(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    if importing(patient)?.is_none() {
        return Ok(Vec::new());
    }
    let claims = needed(&patient.snapshot.claims, "persistentvolumeclaims")?;
    let mut findings = Vec::new();
    let pending = claims.iter().filter(|claim| {
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        namespace(*claim) == names::HARVESTER_NAMESPACE
            && name(*claim).ends_with("-scratch")
            && phase == Some("Pending")
    });
    for claim in pending.filter(|claim| patient.is_past(created(*claim), BIND)) {
        let events = patient.events("PersistentVolumeClaim", namespace(claim), name(claim));
        let said = events.iter().find_map(|event| event.message.as_deref());
        let message = format!(
            "Claim {} is pending: {}",
            name(claim),
            quoted(said.unwrap_or("no event says why"))
        );
        findings.push(
            error(ObjectRef::of(claim), message)
                .since(created(claim))
                .command("kubectl -n harvester-system describe pvc {}", &[name(claim)]),
        );
    }
    // A claim that a quota denies is never there: only an event says so.
    let events = patient.snapshot.events.as_deref().unwrap_or_default();
    let denied = events.iter().find(|event| {
        let about = &event.involved_object;
        about.namespace.as_deref() == Some(names::HARVESTER_NAMESPACE)
            && matches!(about.kind.as_deref(), Some("DataVolume" | "PersistentVolumeClaim"))
            && event
                .message
                .as_deref()
                .is_some_and(|message| message.contains("exceeded quota"))
    });
    if let Some(event) = denied.filter(|_| findings.is_empty()) {
        let about = &event.involved_object;
        let object = ObjectRef::new(
            about.kind.as_deref().unwrap_or_default(),
            about.namespace.as_deref(),
            about.name.as_deref().unwrap_or_default(),
        );
        let message = format!(
            "A claim of the importer is denied: {}",
            quoted(event.message.as_deref().unwrap_or_default())
        );
        findings.push(
            error(object, message)
                .since(event.last_timestamp.as_ref().map(|time| time.0))
                .command("kubectl -n harvester-system get resourcequotas", &[]),
        );
    }
    Ok(findings)
}

fn source(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = importing(patient)? else {
        return Ok(Vec::new());
    };
    let wanted = image(plan);
    let images = needed(&patient.snapshot.images, "virtualmachineimages.harvesterhci.io")?;
    let mut findings = Vec::new();
    for image in images.iter().filter(|image| name(*image) == wanted) {
        let conditions = image.status.conditions.as_ref();
        let failed = condition(conditions, "RetryLimitExceeded", "True")
            .or_else(|| condition(conditions, "Imported", "False"))
            .or_else(|| condition(conditions, "Initialized", "False"));
        // One without a reason is only not there yet.
        let Some(failed) = failed.filter(|failed| failed.message.as_deref().is_some_and(|said| !said.is_empty()))
        else {
            continue;
        };
        let url = image.spec.url.as_deref().unwrap_or_default();
        let message = format!("The import of the ISO failed: {}", words(failed));
        findings.push(
            error(ObjectRef::of(image), message)
                .since(condition_since(failed))
                .command(
                    "kubectl -n harvester-system get virtualmachineimages.harvesterhci.io {} -o yaml",
                    &[&wanted],
                )
                .command("curl -I {}", &[url]),
        );
    }
    Ok(findings)
}
