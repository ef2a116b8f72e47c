//! The cluster as Cluster API, Rancher and etcd see it.

use api::{
    foreign::ForeignCondition,
    labels, names,
    node::{is_ready, is_witness},
    quoted::quoted,
};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use snapshot::Source;

use super::{Found, Question, found::together, full_name, missing, workloads};
use crate::finding::{Missing, ObjectRef, Severity, needed};

/// Conditions with which Rancher says that it is not done. Others are about things that clusters of Harvester do not have.
const RANCHER_CONDITIONS: [&str; 5] = ["Ready", "Updated", "Provisioned", "Reconciled", "Stable"];
/// A controller that has not renewed its lease for so long does not run.
const MANAGER_SILENT: SignedDuration = SignedDuration::from_mins(2);
/// Kubelets renew theirs every ten seconds.
const KUBELET_SILENT: SignedDuration = SignedDuration::from_mins(5);
const NODE_LEASES: &str = "kube-node-lease";

pub(super) fn capi_is_not_paused(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let clusters = needed(&question.snapshot.capi_clusters, "clusters.cluster.x-k8s.io")?;
    let paused = clusters.iter().filter(|cluster| cluster.spec.paused == Some(true));
    let found = paused.map(|cluster| {
        let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
        Found::of(cluster, format!("Cluster API cluster {namespace}/{name} is paused: no node would be upgraded")).command(
            format!(
                "kubectl patch clusters.cluster.x-k8s.io {name} -n {namespace} --type merge -p '{{\"spec\":{{\"paused\":false}}}}'"
            ),
        )
    });
    Ok(found.collect())
}

pub(super) fn capi_is_provisioned(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let clusters = needed(&question.snapshot.capi_clusters, "clusters.cluster.x-k8s.io")?;
    let other = clusters.iter().filter_map(|cluster| {
        let phase = cluster.status.phase.as_deref().unwrap_or("not known");
        (phase != "Provisioned").then(|| {
            let text = format!("Cluster API cluster {} is {phase}, not Provisioned", full_name(cluster));
            Found::of(cluster, text)
        })
    });
    Ok(other.collect())
}

pub(super) fn rancher_is_content(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let clusters = needed(&question.snapshot.rancher_clusters, "clusters.provisioning.cattle.io")?;
    let planes = needed(&question.snapshot.control_planes, "rkecontrolplanes")?;
    let mut found = Vec::new();
    for cluster in clusters {
        found.extend(unmet(cluster.status.conditions.as_deref()).map(|text| {
            Found::of(
                cluster,
                format!("Rancher says of its cluster {}: {text}", full_name(cluster)),
            )
        }));
    }
    for plane in planes {
        found.extend(unmet(plane.status.conditions.as_deref()).map(|text| {
            Found::of(
                plane,
                format!("Rancher says of its control plane {}: {text}", full_name(plane)),
            )
        }));
    }
    Ok(found)
}

/// Conditions that are not met, in their own words.
fn unmet(conditions: Option<&[ForeignCondition]>) -> Option<String> {
    let unmet = conditions.unwrap_or_default().iter().filter(|condition| {
        RANCHER_CONDITIONS.contains(&condition.type_.as_str()) && condition.status.as_deref() != Some("True")
    });
    let texts: Vec<String> = unmet
        .map(|condition| {
            let status = condition.status.as_deref().unwrap_or("Unknown");
            let message = condition.message.as_deref().filter(|message| !message.is_empty());
            let message = message
                .map(|message| format!(" ({})", quoted(message)))
                .unwrap_or_default();
            format!("{} is {status}{message}", condition.type_)
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

pub(super) fn no_machine_leaves(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let machines = needed(&question.snapshot.machines, "machines")?;
    let leaving: Vec<_> = machines
        .iter()
        .filter(|machine| machine.metadata.deletion_timestamp.is_some())
        .collect();
    Ok(together("machines are being deleted", &leaving))
}

/// A machine-plan Secret of a machine that is gone makes Rancher's planner wait for it.
pub(super) fn machine_plans_have_machines(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let secrets = needed(&question.snapshot.machine_plans, "secrets (machine plans)")?;
    let machines = needed(&question.snapshot.machines, "machines")?;
    let known: std::collections::BTreeSet<&str> = machines
        .iter()
        .filter_map(|machine| machine.metadata.name.as_deref())
        .collect();
    let orphans = secrets.iter().filter_map(|secret| {
        let machine = secret.label(labels::MACHINE_NAME)?;
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        (!known.contains(machine)).then(|| {
            let text = format!("machine plan {name} belongs to machine {machine}, which does not exist");
            Found::new(text).about([ObjectRef::new("Secret", secret.metadata.namespace.as_deref(), name)])
        })
    });
    Ok(orphans.collect())
}

/// An agent that could not apply its plan will not apply the next one.
pub(super) fn machine_plans_are_applied(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let secrets = needed(&question.snapshot.machine_plans, "secrets (machine plans)")?;
    let upgrading = question.is_upgrading()?;
    let failing = secrets.iter().filter_map(|secret| {
        let failures: u64 = secret
            .progress
            .get("failure-count")
            .and_then(|count| count.parse().ok())
            .unwrap_or(0);
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        let machine = secret.label(labels::MACHINE_NAME).unwrap_or(name);
        let text = if failures > 0 {
            format!("rancher-system-agent of machine {machine} failed {failures} times to apply its plan")
        } else if secret.is_applied == Some(false) && !upgrading {
            format!("rancher-system-agent of machine {machine} has not applied its plan")
        } else {
            return None;
        };
        Some(Found::new(text).about([ObjectRef::new("Secret", secret.metadata.namespace.as_deref(), name)]))
    });
    Ok(failing.collect())
}

fn is_etcd(node: &Node) -> bool {
    node.labels().contains_key(labels::ETCD) || is_witness(node)
}

/// While one member is upgraded, the others must still be a majority.
pub(super) fn etcd_can_miss_a_member(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let nodes = needed(&question.snapshot.nodes, "nodes")?;
    let members: Vec<&Node> = nodes.iter().filter(|node| is_etcd(node)).collect();
    let about = || members.iter().map(|node| ObjectRef::of(*node)).collect::<Vec<_>>();
    let ready = members.iter().filter(|node| is_ready(node)).count();
    Ok(match members.len() {
        0 if nodes.is_empty() => Vec::new(),
        0 => return Err(missing("nodes", "none has the label of an etcd member")),
        1 => Vec::new(),
        2 => {
            let text = "etcd has two members: the API does not answer while either of them is upgraded";
            vec![Found::new(text).about(about()).severity(Severity::Warning)]
        }
        all if ready <= all / 2 + 1 && ready < all => {
            let text = format!("{ready} of {all} etcd members are ready: with one less there is no majority");
            vec![Found::new(text).about(about())]
        }
        _ => Vec::new(),
    })
}

pub(super) fn etcd_pods_are_ready(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let pods = needed(&question.snapshot.pods, "pods")?;
    let etcd = pods.iter().filter(|pod| {
        pod.metadata.namespace.as_deref() == Some(names::KUBE_SYSTEM_NAMESPACE)
            && pod.labels().get("component").map(String::as_str) == Some("etcd")
    });
    let unready: Vec<_> = etcd.filter(|pod| !workloads::is_ready(pod)).collect();
    Ok(together("etcd pods are not ready", &unready))
}

pub(super) fn kubeconfig_is_labelled(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    const LABEL: &str = "cluster.x-k8s.io/cluster-name";
    let secrets = needed(&question.snapshot.kubeconfig_secrets, "secrets (local-kubeconfig)")?;
    let Some(secret) = secrets
        .iter()
        .find(|secret| secret.metadata.name.as_deref() == Some("local-kubeconfig"))
    else {
        return Err(missing("secrets", "there is no fleet-local/local-kubeconfig"));
    };
    if secret.label(LABEL) == Some(names::LOCAL_CLUSTER) {
        return Ok(Vec::new());
    }
    let found = Found::new(format!(
        "Secret fleet-local/local-kubeconfig lacks the label {LABEL}=local"
    ))
    .about([ObjectRef::new(
        "Secret",
        Some(names::FLEET_NAMESPACE),
        "local-kubeconfig",
    )])
    .command(format!(
        "kubectl label secret local-kubeconfig -n fleet-local {LABEL}=local"
    ));
    Ok(vec![found])
}

/// Without a manager a plan is created and nothing happens.
pub(super) fn manager_runs(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let leases = needed(&question.snapshot.leases, "leases")?;
    let lease = leases.iter().find(|lease| {
        lease.metadata.namespace.as_deref() == Some(names::HARVESTER_NAMESPACE)
            && lease.metadata.name.as_deref() == Some(names::LEASE)
    });
    let Some(lease) = lease else {
        return Ok(vec![Found::new(
            "no manager of UpgradePlans has ever run in this cluster",
        )]);
    };
    let spec = lease.spec.as_ref();
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
    let is_silent = renewed.is_none_or(|renewed| question.snapshot.taken_at.duration_since(renewed) > MANAGER_SILENT);
    let has_holder = spec
        .and_then(|spec| spec.holder_identity.as_deref())
        .is_some_and(|holder| !holder.is_empty());
    if has_holder && !is_silent {
        return Ok(Vec::new());
    }
    let found = Found {
        since: renewed,
        ..Found::of(lease, "no manager of UpgradePlans runs: its lease was not renewed")
    };
    Ok(vec![found])
}

/// A kubelet that is silent, or whose clock differs.
pub(super) fn kubelets_renew_leases(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    if question.snapshot.source != Source::Cluster {
        return Err(missing("leases", "a bundle or folder was not collected at one moment"));
    }
    let leases = needed(&question.snapshot.leases, "leases")?;
    let late = leases
        .iter()
        .filter(|lease| lease.metadata.namespace.as_deref() == Some(NODE_LEASES))
        .filter_map(|lease| {
            let renewed = lease.spec.as_ref()?.renew_time.as_ref()?.0;
            let apart = question.snapshot.taken_at.duration_since(renewed).abs();
            (apart > KUBELET_SILENT).then(|| {
                let name = lease.metadata.name.as_deref().unwrap_or_default();
                let text = format!(
                    "the lease of node {name} was renewed at {renewed}, {} minutes from now: its kubelet is silent or its clock is wrong",
                    apart.as_secs() / 60
                );
                Found {
                    since: Some(renewed),
                    ..Found::new(text).about([ObjectRef::new("Node", None, name)])
                }
            })
        });
    Ok(late.collect())
}
