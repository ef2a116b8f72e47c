//! Longhorn volumes: data that an upgrade could lose or that drains would wait for.

use api::{UpgradePlan, annotations, foreign::longhorn::Volume, names};
use kube::ResourceExt;

use crate::{Cluster, FieldError};

use super::{SPEC, all, is_true, within};

/// With fewer nodes than this, volumes of the default three replicas are always degraded.
const NODES_FOR_ALL_REPLICAS: usize = 3;
/// States in which a volume is in use, or about to be.
const ACTIVE: [&str; 3] = ["creating", "attached", "attaching"];

pub(super) fn are_safe(plan: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let volumes = within(&cluster.volumes, "volumes", names::LONGHORN_NAMESPACE)?;
    let nodes = all(&cluster.nodes, "nodes")?.len();
    let mut errors = Vec::new();
    let mut report = |text: &str, found: Vec<&Volume>| {
        if !found.is_empty() {
            let found: Vec<String> = found.into_iter().map(claim).collect();
            errors.push(FieldError::forbidden(SPEC, format!("{text}: {}", found.join(", "))));
        }
    };
    let of_robustness = |robustness: &str| -> Vec<&Volume> {
        let volumes = volumes.iter().copied();
        volumes
            .filter(|volume| volume.status.robustness.as_deref() == Some(robustness))
            .collect()
    };
    if nodes >= NODES_FOR_ALL_REPLICAS {
        let text = "there are degraded volumes, please check all volumes are healthy";
        report(text, of_robustness("degraded"));
    }
    // Ours: no number of nodes makes it normal that all replicas have failed.
    let text = "there are faulted volumes, please check all volumes are healthy";
    report(text, of_robustness("faulted"));

    let single = volumes.iter().copied();
    let single = single.filter(|volume| volume.spec.number_of_replicas == Some(1));
    let (active, detached): (Vec<&Volume>, Vec<&Volume>) = single.partition(|volume| is_active(volume));
    report("active single-replica volumes found", active);
    if !is_true(plan, annotations::SKIP_SINGLE_REPLICA_DETACHED_VOL) {
        report("single-replica volumes found", detached);
    }
    Ok(errors)
}

/// A volume that a check could name. Most are none.
#[must_use]
pub fn matters(volume: &Volume) -> bool {
    let robustness = volume.status.robustness.as_deref();
    matches!(robustness, Some("degraded" | "faulted")) || volume.spec.number_of_replicas == Some(1)
}

fn is_active(volume: &Volume) -> bool {
    volume
        .status
        .state
        .as_deref()
        .is_some_and(|state| ACTIVE.contains(&state))
}

/// `<namespace>/<claim>`, as users know the volume. One that serves no claim is named itself.
fn claim(volume: &Volume) -> String {
    let status = volume.status.kubernetes_status.as_ref();
    let namespace = status
        .and_then(|status| status.namespace.as_deref())
        .unwrap_or_default();
    let claim = status.and_then(|status| status.pvc_name.as_deref()).unwrap_or_default();
    if claim.is_empty() {
        return format!("{namespace}/ (volume {})", volume.name_any());
    }
    format!("{namespace}/{claim}")
}
