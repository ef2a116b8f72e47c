//! The repository that serves the ISO: its pod, its volume, its endpoints, and addresses of the storage network.

use api::{Phase, ProgramWait, UpgradePlan, Wait, labels, names, quoted::quoted};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};

use super::{
    Leads, Patient, Situation,
    found::{More, created, error, found, label, name, namespace, node_ref},
    patient::{phase_since, waits_since},
    workloads::{has_ready, why_not_started},
};
use crate::finding::{Finding, Missing, ObjectRef, Severity, needed};

/// The repository is ready within this time: its volume is attached and its image is there.
const READY: SignedDuration = SignedDuration::from_mins(10);
/// Endpoints follow ready pods within seconds.
const ENDPOINTS: SignedDuration = SignedDuration::from_mins(2);
/// An operating system is installed within this time.
const INSTALL: SignedDuration = SignedDuration::from_mins(10);

const LEADS: &[Leads] = &[
    Leads::Plan(Wait::Repository),
    Leads::Plan(Wait::ReleaseMetadata),
    Leads::Plan(Wait::ReleaseManifest),
    Leads::Program(ProgramWait::Repository),
    Leads::Program(ProgramWait::Download),
];

/// The repository is not ready.
pub(super) const D34: Situation = Situation {
    id: "D34",
    symptom: "The repository of the upgrade does not become ready",
    cause: "Its volume is not attached or mounted, or its pod does not start",
    remedy: "Detach the volume where it is stuck, or delete the pod; see D05 for a volume without a place.",
    leads: LEADS,
    look: not_ready,
};

/// Its volume attaches for ever.
pub(super) const D34B: Situation = Situation {
    id: "D34b",
    symptom: "A node stays in PostDraining; the volume of the repository is attaching",
    cause: "Longhorn waits for a replica on the drained node (longhorn#12226)",
    remedy: "Delete the replica on the drained node. This may be needed for each node.",
    leads: &[
        Leads::Plan(Wait::PostDrainJob),
        Leads::Plan(Wait::Repository),
        Leads::Program(ProgramWait::Repository),
        Leads::Program(ProgramWait::Download),
    ],
    look: attaching,
};

/// No endpoints.
pub(super) const D35: Situation = Situation {
    id: "D35",
    symptom: "The repository runs, but does not answer",
    cause: "Its Service has no ready endpoint",
    remedy: "Restart its Deployment.",
    leads: LEADS,
    look: no_endpoint,
};

/// No address.
pub(super) const D36: Situation = Situation {
    id: "D36",
    symptom: "Volumes that several pods use do not come up",
    cause: "The storage network has no free address",
    remedy: "Widen the range of the storage network.",
    leads: &[
        Leads::Plan(Wait::Repository),
        Leads::Program(ProgramWait::LonghornVolume),
    ],
    look: no_address,
};

/// The plan that needs its repository.
fn serving<'a>(patient: &Patient<'a>) -> Result<Option<&'a UpgradePlan>, Missing> {
    let plan = patient.active()?;
    Ok(plan.filter(|plan| plan.phase().is_some_and(|phase| phase >= Phase::RepoCreating)))
}

fn deployment<'a>(patient: &Patient<'a>, plan: &UpgradePlan) -> Result<Option<&'a Deployment>, Missing> {
    let deployments = needed(&patient.snapshot.deployments, "deployments")?;
    let wanted = names::repo(name(plan));
    Ok(deployments
        .iter()
        .find(|deployment| namespace(*deployment) == names::HARVESTER_NAMESPACE && name(*deployment) == wanted))
}

fn pods<'a>(patient: &Patient<'a>, plan: &UpgradePlan) -> Result<Vec<&'a Pod>, Missing> {
    let of_repository = patient.pods()?.iter().filter(|pod| {
        namespace(*pod) == names::HARVESTER_NAMESPACE
            && label(*pod, labels::UPGRADE_PLAN) == Some(name(plan))
            && label(*pod, labels::UPGRADE_COMPONENT) == Some(api::Component::Repo.as_str())
            && !api::pod::has_ended(pod)
    });
    Ok(of_repository.collect())
}

/// Since when the Deployment is available, or is not.
fn available(deployment: &Deployment) -> (bool, Option<Timestamp>) {
    let status = deployment.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let condition = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "Available");
    let is_available = status.and_then(|status| status.available_replicas).unwrap_or(0) > 0;
    let since = condition.and_then(|condition| condition.last_transition_time.as_ref());
    (is_available, since.map(|time| time.0))
}

fn not_ready(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = serving(patient)? else {
        return Ok(Vec::new());
    };
    // It may be on the node that reboots, and comes back with it.
    if !patient.all_nodes_ready()? {
        return Ok(Vec::new());
    }
    let Some(deployment) = deployment(patient, plan)? else {
        return Ok(Vec::new());
    };
    let (is_available, transition) = available(deployment);
    let began = if plan.phase() == Some(Phase::RepoCreating) {
        phase_since(plan)
    } else {
        transition
    };
    let since = waits_since(plan, Wait::Repository.as_str(), None)
        .or(began)
        .or_else(|| created(deployment));
    if is_available || !patient.is_past(since, READY) {
        return Ok(Vec::new());
    }
    let mut finding = error(
        ObjectRef::of(deployment),
        format!("The repository {} is not ready", name(deployment)),
    )
    .since(since)
    .command(
        "kubectl -n harvester-system describe deployment {}",
        &[name(deployment)],
    );
    for pod in pods(patient, plan)? {
        let events = patient.events_of_pod(pod);
        let mounting = events
            .iter()
            .find(|event| matches!(event.reason.as_deref(), Some("FailedAttachVolume" | "FailedMount")))
            .and_then(|event| event.message.as_deref())
            .map(quoted);
        if let Some(why) = mounting.or_else(|| why_not_started(patient, pod)) {
            finding.message.push_str(&format!(": pod {}: {why}", name(pod)));
        }
        finding = finding
            .also(ObjectRef::of(pod))
            .command("kubectl -n harvester-system describe pod {}", &[name(pod)]);
    }
    if let Some(volume) = volume(patient, plan)?.filter(|volume| volume.status.state.as_deref() != Some("attached")) {
        let state = volume.status.state.as_deref().unwrap_or_default();
        finding
            .message
            .push_str(&format!("; its volume {} is {}", name(volume), quoted(state)));
        finding = finding.also(ObjectRef::of(volume));
    }
    Ok(vec![finding])
}

/// The volume with the ISO.
fn volume<'a>(
    patient: &Patient<'a>,
    plan: &UpgradePlan,
) -> Result<Option<&'a api::foreign::longhorn::Volume>, Missing> {
    let mounted = pods(patient, plan)?.into_iter().find_map(|pod| {
        let volumes = pod.spec.as_ref()?.volumes.as_ref()?;
        let mut claims = volumes
            .iter()
            .filter_map(|volume| volume.persistent_volume_claim.as_ref());
        Some(claims.next()?.claim_name.as_str())
    });
    let recorded = plan.status.as_ref().and_then(|status| status.iso_image_id.as_deref());
    let Some(claim) = mounted.or(recorded) else {
        return Ok(None);
    };
    let volumes = needed(&patient.snapshot.volumes, "volumes.longhorn.io")?;
    Ok(volumes.iter().find(|volume| {
        volume.status.kubernetes_status.as_ref().is_some_and(|status| {
            status.pvc_name.as_deref() == Some(claim) && status.namespace.as_deref() == Some(names::HARVESTER_NAMESPACE)
        })
    }))
}

fn attaching(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = serving(patient)? else {
        return Ok(Vec::new());
    };
    let installing = patient.at(plan, &[api::node_progress::Stage::Installing]);
    if installing.is_empty() {
        return Ok(Vec::new());
    }
    let Some(volume) = volume(patient, plan)?.filter(|volume| volume.status.state.as_deref() == Some("attaching"))
    else {
        return Ok(Vec::new());
    };
    let replicas = needed(&patient.snapshot.replicas, "replicas.longhorn.io")?;
    let mut findings = Vec::new();
    for (node, _) in installing {
        let job = names::node_job(name(plan), api::JobType::PostDrain, node);
        let since = waits_since(
            plan,
            Wait::PostDrainJob.as_str(),
            Some(&format!("Job harvester-system/{job}")),
        );
        let here = replicas.iter().find(|replica| {
            replica.spec.volume_name.as_deref() == Some(name(volume)) && replica.spec.node_id.as_deref() == Some(node)
        });
        let Some(replica) = here.filter(|_| patient.is_past(since, INSTALL)) else {
            continue;
        };
        let message = format!(
            "Volume {} of the repository is attaching, and its replica {} is on the drained node {node}",
            name(volume),
            name(replica)
        );
        findings.push(
            error(ObjectRef::of(volume), message)
                .also(ObjectRef::of(replica))
                .also(node_ref(node))
                .since(since)
                .command(
                    "kubectl -n longhorn-system delete replicas.longhorn.io {}",
                    &[name(replica)],
                ),
        );
    }
    Ok(findings)
}

fn no_endpoint(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    let Some(plan) = serving(patient)? else {
        return Ok(Vec::new());
    };
    if !patient.all_nodes_ready()? {
        return Ok(Vec::new());
    }
    let Some(deployment) = deployment(patient, plan)? else {
        return Ok(Vec::new());
    };
    let (is_available, since) = available(deployment);
    if !is_available || !patient.is_past(since, ENDPOINTS) {
        return Ok(Vec::new());
    }
    let slices = needed(&patient.snapshot.endpoint_slices, "endpointslices")?;
    let service = names::repo(name(plan));
    let mut of_service = slices.iter().filter(|slice| {
        namespace(*slice) == names::HARVESTER_NAMESPACE && label(*slice, labels::SERVICE_NAME) == Some(service.as_str())
    });
    if of_service.any(has_ready) {
        return Ok(Vec::new());
    }
    let message = format!("Service {service} of the repository has no ready endpoint, although its pod is ready");
    let finding = error(
        ObjectRef::new("Service", Some(names::HARVESTER_NAMESPACE), &service),
        message,
    )
    .also(ObjectRef::of(deployment))
    .since(since)
    .command(
        "kubectl -n harvester-system get service,endpointslices -l kubernetes.io/service-name={}",
        &[&service],
    )
    .command("kubectl -n harvester-system rollout restart deployment/{}", &[&service]);
    Ok(vec![finding])
}

/// How many addresses of an IPv4 range can be given out; nothing for another range, which does not run out.
fn size(range: &str) -> Option<u64> {
    let (address, bits) = range.split_once('/')?;
    let bits: u32 = bits.trim().parse().ok().filter(|bits| *bits <= 32)?;
    address.trim().parse::<std::net::Ipv4Addr>().ok()?;
    let all = 1_u64 << (32 - bits);
    // The first and the last are not addresses of hosts.
    Some(if bits < 31 { all - 2 } else { all })
}

fn no_address(patient: &Patient<'_>) -> Result<Vec<Finding>, Missing> {
    if patient.active()?.is_none() {
        return Ok(Vec::new());
    }
    let pools = needed(&patient.snapshot.ip_pools, "ippools.whereabouts.cni.cncf.io")?;
    let managers = patient.snapshot.share_managers.as_deref().unwrap_or_default();
    let unserved = managers.iter().find(|manager| {
        let state = manager.status.state.as_deref().unwrap_or_default();
        let endpoint = manager.status.endpoint.as_deref().unwrap_or_default();
        endpoint.is_empty() && !matches!(state, "stopped" | "stopping")
    });
    let mut findings = Vec::new();
    for pool in pools {
        let range = pool.spec.range.as_deref().unwrap_or_default();
        let taken = pool.spec.allocations.as_ref().map_or(0, |taken| taken.len() as u64);
        let Some(size) = size(range).filter(|size| taken >= *size) else {
            continue;
        };
        let severity = if unserved.is_some() {
            Severity::Error
        } else {
            Severity::Warning
        };
        let mut message = format!("All {size} addresses of range {} are taken", quoted(range));
        if let Some(manager) = unserved {
            message.push_str(&format!("; share manager {} has none", name(manager)));
        }
        let finding = found(severity, ObjectRef::of(pool), message)
            .command(
                "kubectl -n {} get ippools.whereabouts.cni.cncf.io {} -o yaml",
                &[namespace(pool), name(pool)],
            )
            .command("kubectl get settings.harvesterhci.io storage-network -o yaml", &[]);
        findings.push(match unserved {
            Some(manager) => finding.also(ObjectRef::of(manager)),
            None => finding,
        });
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn a_range_has_as_many_addresses_as_hosts() {
        assert_eq!(size("192.168.0.0/28"), Some(14));
        assert_eq!(size("192.168.0.0/32"), Some(1));
        assert_eq!(size("fd00::/64"), None);
        assert_eq!(size("192.168.0.0/99"), None);
        assert_eq!(size("lunch"), None);
    }
}
