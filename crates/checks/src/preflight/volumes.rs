//! Longhorn's volumes, beyond what admission refuses: those that a drain would wait for.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    foreign::{
        condition_is,
        longhorn::{Replica, Volume},
    },
    quoted::quoted,
};
use jiff::SignedDuration;
use kube::ResourceExt;
use rules::{
    longhorn_health::{claims_in_use, storage_nodes},
    migration,
};

use super::{
    Found, Question,
    found::{listed, together},
};
use crate::finding::{Missing, ObjectRef, needed};

/// Detaching takes seconds; longer than this and something is in the way.
const DETACHING: SignedDuration = SignedDuration::from_mins(5);

fn is_attached(volume: &Volume) -> bool {
    volume.status.state.as_deref() == Some("attached")
}

pub(super) fn are_scheduled(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let volumes = needed(&question.snapshot.volumes, "volumes")?;
    let unscheduled: Vec<&Volume> = volumes
        .iter()
        .filter(|volume| {
            condition_is(volume.status.conditions.as_deref().unwrap_or_default(), "Scheduled") == Some(false)
        })
        .collect();
    let why = unscheduled.iter().find_map(|volume| {
        let mut conditions = volume.status.conditions.iter().flatten();
        conditions
            .find(|condition| condition.type_ == "Scheduled")?
            .message
            .as_deref()
    });
    let why = why
        .filter(|why| !why.is_empty())
        .map(|why| format!(" ({})", quoted(why)))
        .unwrap_or_default();
    Ok(together(
        &format!("replicas of volumes find no disk{why}"),
        &unscheduled,
    ))
}

/// Attached, and no workload that uses it runs: nothing would detach it during a drain.
pub(super) fn are_used_where_attached(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let volumes = needed(&question.snapshot.volumes, "volumes")?;
    // Longhorn records the workloads of a volume a while after they start. Pods are known at once, but not in every snapshot.
    let in_use = claims_in_use(question.snapshot.pods.iter().flat_map(|pods| pods.iter()));
    let is_stale = |volume: &&Volume| {
        let status = volume.status.kubernetes_status.as_ref();
        let mut workloads = status
            .into_iter()
            .flat_map(|status| status.workloads_status.iter().flatten());
        let claim = status.and_then(|status| status.namespace.as_deref().zip(status.pvc_name.as_deref()));
        let is_used = workloads.any(|workload| workload.pod_status.as_deref() == Some("Running"))
            || claim.is_some_and(|(namespace, claim)| in_use.contains(&format!("{namespace}/{claim}")));
        is_attached(volume) && !is_used
    };
    let stale: Vec<&Volume> = volumes.iter().filter(is_stale).collect();
    Ok(together(
        "volumes are attached although no running workload uses them",
        &stale,
    ))
}

/// Replicas that hold a whole copy, by volume.
fn whole(replicas: &[Replica]) -> BTreeMap<&str, Vec<&Replica>> {
    let mut by_volume: BTreeMap<&str, Vec<&Replica>> = BTreeMap::new();
    for replica in replicas {
        let is_set = |field: &Option<String>| field.as_deref().is_some_and(|text| !text.is_empty());
        let is_whole = !is_set(&replica.spec.failed_at) && is_set(&replica.spec.healthy_at);
        if let (true, Some(volume)) = (is_whole, replica.spec.volume_name.as_deref()) {
            by_volume.entry(volume).or_default().push(replica);
        }
    }
    by_volume
}

/// A detached volume has no robustness, but its replicas can be counted.
pub(super) fn have_all_replicas(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let volumes = needed(&question.snapshot.volumes, "volumes")?;
    let replicas = needed(&question.snapshot.replicas, "replicas")?;
    let hosts = storage_nodes(needed(&question.snapshot.nodes, "nodes")?);
    let by_volume = whole(replicas);
    let lacking: Vec<&Volume> = volumes
        .iter()
        .filter(|volume| volume.status.state.as_deref() == Some("detached"))
        .filter(|volume| {
            // More replicas than nodes can hold are never there.
            let wanted = usize::try_from(volume.spec.number_of_replicas.unwrap_or(0))
                .unwrap_or(0)
                .min(hosts);
            by_volume.get(volume.name_any().as_str()).map_or(0, Vec::len) < wanted
        })
        .collect();
    Ok(together(
        "detached volumes have fewer replicas than they want",
        &lacking,
    ))
}

/// Several replicas on one node are one copy when that node is down.
pub(super) fn spread_their_replicas(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let volumes = needed(&question.snapshot.volumes, "volumes")?;
    let replicas = needed(&question.snapshot.replicas, "replicas")?;
    if storage_nodes(needed(&question.snapshot.nodes, "nodes")?) < 2 {
        return Ok(Vec::new());
    }
    let by_volume = whole(replicas);
    let together_on_one: Vec<&Volume> = volumes
        .iter()
        .filter(|volume| volume.spec.number_of_replicas.is_some_and(|wanted| wanted > 1))
        .filter(|volume| {
            let Some(replicas) = by_volume.get(volume.name_any().as_str()) else {
                return false;
            };
            let nodes: BTreeSet<_> = replicas
                .iter()
                .filter_map(|replica| replica.spec.node_id.as_deref())
                .collect();
            replicas.len() > 1 && nodes.len() == 1
        })
        .collect();
    Ok(together(
        "all replicas of these volumes are on one node",
        &together_on_one,
    ))
}

pub(super) fn are_not_rebuilding(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let engines = needed(&question.snapshot.engines, "engines")?;
    let rebuilding = engines.iter().filter_map(|engine| {
        let mut rebuilds = engine.status.rebuild_status.iter().flatten();
        let (_, rebuild) = rebuilds.find(|(_, rebuild)| rebuild.is_rebuilding == Some(true))?;
        let volume = engine.spec.volume_name.clone().unwrap_or_default();
        Some((volume, rebuild.progress.unwrap_or(0)))
    });
    let (names, objects): (Vec<String>, Vec<ObjectRef>) = rebuilding
        .map(|(volume, percent)| {
            let object = ObjectRef::new("Volume", Some(api::names::LONGHORN_NAMESPACE), &volume);
            (format!("{volume} ({percent}%)"), object)
        })
        .unzip();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![
        Found::new(format!("replicas are being rebuilt: {}", listed(names))).about(objects),
    ])
}

/// Kubernetes wants to detach, and something prevents it.
pub(super) fn detach_in_time(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let attachments = needed(&question.snapshot.attachments, "volumeattachments.storage.k8s.io")?;
    let now = question.snapshot.taken_at;
    let stuck = attachments.iter().filter_map(|attachment| {
        let since = attachment.metadata.deletion_timestamp.as_ref()?.0;
        let status = attachment.status.as_ref();
        let error = status.and_then(|status| status.detach_error.as_ref()?.message.as_deref());
        let why = error.map(|error| format!(": {}", quoted(error))).unwrap_or_default();
        (now.duration_since(since) > DETACHING).then(|| {
            let (name, node) = (attachment.name_any(), &attachment.spec.node_name);
            Found {
                since: Some(since),
                ..Found::of(
                    attachment,
                    format!("attachment {name} is not detached from node {node}{why}"),
                )
            }
        })
    });
    Ok(stuck.collect())
}

/// An engine that an instance manager runs and Longhorn does not know keeps its node from being drained.
pub(super) fn have_their_engines(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let managers = needed(&question.snapshot.instance_managers, "instancemanagers")?;
    let engines = needed(&question.snapshot.engines, "engines")?;
    if migration::hosts(needed(&question.snapshot.nodes, "nodes")?).len() < 2 {
        return Ok(Vec::new());
    }
    let known: BTreeSet<&str> = engines
        .iter()
        .filter_map(|engine| engine.metadata.name.as_deref())
        .collect();
    let found = managers.iter().filter_map(|manager| {
        let running = manager.status.instance_engines.iter().flatten().map(|(name, _)| name);
        let orphans: Vec<String> = running.filter(|name| !known.contains(name.as_str())).cloned().collect();
        let node = manager.spec.node_id.as_deref().unwrap_or("an unknown node");
        (!orphans.is_empty()).then(|| {
            let text = format!(
                "the instance manager of {node} runs engines that Longhorn does not know: {}",
                listed(orphans)
            );
            Found::of(manager, text)
        })
    });
    Ok(found.collect())
}
