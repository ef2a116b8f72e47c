//! How large the cluster is, as far as it decides how long an upgrade takes. Counted once per phase: it changes little, and
//! there may be thousands of VMs.

use api::{UpgradePlan, node};
use kube::ResourceExt;
use plan::observed::{Facts, Fetched};
use rules::estimate::{Size, memory_bytes};

use crate::{memo::Memos, watched::Watched};

/// The size of the cluster when the plan entered its phase; of the images, as soon as it is known.
pub(super) fn of(watched: &Watched, memos: &mut Memos, plan: &UpgradePlan, facts: &Facts) -> Size {
    let history = plan
        .status
        .as_ref()
        .map_or(0, |status| status.phase_transition_timestamps.len());
    let counted = memos.size.get(&plan.name_any(), history as u64, || count(watched));
    let image_bytes = match &facts.new_images {
        Fetched::Got(images) => images.archive_bytes,
        Fetched::Unknown | Fetched::Failed { .. } => None,
    };
    Size {
        image_bytes,
        ..*counted
    }
}

fn count(watched: &Watched) -> Size {
    let nodes = watched
        .nodes
        .list()
        .iter()
        .filter(|node| node::is_managed(node))
        .count();
    let in_use = |robustness: &str| ["healthy", "degraded", "faulted"].contains(&robustness);
    let volumes = watched.volumes.list();
    let volumes = volumes
        .iter()
        .filter(|volume| volume.status.robustness.as_deref().is_some_and(in_use))
        .count();
    let instances = watched.instances.list();
    let running = || {
        instances
            .iter()
            .filter(|instance| !rules::migration::has_ended(instance))
    };
    Size {
        nodes,
        vms: running().count(),
        vm_memory_bytes: running().filter_map(|instance| memory_bytes(&instance.spec)).sum(),
        volumes,
        image_bytes: None,
    }
}
