//! What became of VMs: migrations since the upgrade began, and the list of VMs to start again.

use std::collections::BTreeSet;

use api::{
    UpgradePlan, names,
    quoted::{LONGEST_NAME, plain},
};
use jiff::Timestamp;
use kube::ResourceExt;
use rules::evacuation::is_over;
use snapshot::Snapshot;

use super::model::VmsView;

/// Nothing where the snapshot has no VMs at all: then it is not known what became of them.
pub(super) fn of(snapshot: &Snapshot, plan: &UpgradePlan, started: Option<Timestamp>) -> Option<VmsView> {
    let vmis = snapshot.vmis.as_ref().ok()?;
    let migrations = snapshot.migrations.as_deref().unwrap_or_default().iter();
    let of_upgrade = migrations.filter(|migration| {
        let created = migration.creation_timestamp().map(|time| time.0);
        started.is_some_and(|started| created.is_some_and(|created| created >= started))
    });
    let (mut moved, mut moving, mut failed_to_move) = (0, 0, 0);
    for migration in of_upgrade {
        match migration.status.phase.as_deref() {
            Some("Succeeded") => moved += 1,
            Some("Failed") => failed_to_move += 1,
            _ if !is_over(migration) => moving += 1,
            _ => {}
        }
    }
    let listed = restore_list(snapshot, plan);
    let name = |vmi: &api::foreign::kubevirt::VirtualMachineInstance| {
        format!("{}/{}", vmi.namespace().unwrap_or_default(), vmi.name_any())
    };
    let running: BTreeSet<String> = vmis
        .iter()
        .filter(|vmi| !rules::migration::has_ended(vmi))
        .map(name)
        .collect();
    Some(VmsView {
        moved,
        moving,
        failed_to_move,
        stopped: listed.len(),
        to_be_restored: listed
            .into_iter()
            .filter(|vm| !running.contains(vm))
            .map(|vm| plain(&vm, LONGEST_NAME))
            .collect(),
    })
}

/// The VMs that were shut down for the upgrade, as `namespace/name`.
fn restore_list(snapshot: &Snapshot, plan: &UpgradePlan) -> BTreeSet<String> {
    let wanted = names::restore_config_map(&plan.name_any());
    let uid = plan.metadata.uid.as_deref();
    let maps = snapshot.config_maps.as_deref().unwrap_or_default();
    let lists = maps.iter().filter(|map| {
        let is_ours = map
            .owner_references()
            .iter()
            .any(|owner| Some(owner.uid.as_str()) == uid);
        map.name_any() == wanted && (is_ours || uid.is_none())
    });
    let texts = lists.flat_map(|list| list.data.iter().flat_map(|data| data.values()));
    texts
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .map(str::to_owned)
        .collect()
}
