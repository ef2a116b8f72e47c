//! What happens to VMs while nodes are upgraded. Pure: where they were and where they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{NodeState, UpgradePlan, foreign::kubevirt::VirtualMachineInstance};
use kube::ResourceExt;

use crate::watched::Watched;

/// How many VMs did what.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moves {
    pub(super) migrated: u64,
    pub(super) shut_down: u64,
    pub(super) restored: u64,
}

/// Where each VM runs.
pub(super) fn places(instances: &[Arc<VirtualMachineInstance>]) -> BTreeMap<String, String> {
    let place = |vmi: &Arc<VirtualMachineInstance>| {
        let name = format!("{}/{}", vmi.namespace().unwrap_or_default(), vmi.name_any());
        Some((name, vmi.status.node_name.clone()?))
    };
    instances.iter().filter_map(place).collect()
}

/// Nodes that VMs leave because of a plan.
pub(super) fn under_upgrade(plans: &[Arc<UpgradePlan>]) -> BTreeSet<String> {
    let statuses = plans.iter().filter_map(|plan| plan.status.as_ref());
    let nodes = statuses.flat_map(|status| &status.node_upgrade_statuses);
    let left = [
        NodeState::PreDraining,
        NodeState::PreDrained,
        NodeState::SingleNodeUpgrading,
    ];
    nodes
        .filter(|(_, node)| node.progress().state().is_some_and(|state| left.contains(&state)))
        .map(|(name, _)| name.clone())
        .collect()
}

/// VMs that are to be started again.
pub(super) fn listed(watched: &Watched) -> BTreeSet<String> {
    let lists = watched.config_maps.list();
    let texts = lists
        .iter()
        .filter_map(|list| list.data.as_ref())
        .flat_map(BTreeMap::values);
    texts
        .flat_map(|text| text.split(','))
        .map(|name| name.trim().to_owned())
        .collect()
}

/// What happened between two looks.
pub(super) fn moves(
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
    under_upgrade: &BTreeSet<String>,
    listed: &BTreeSet<String>,
) -> Moves {
    let mut moves = Moves::default();
    for (vm, node) in before.iter().filter(|(_, node)| under_upgrade.contains(*node)) {
        match now.get(vm) {
            None => moves.shut_down += 1,
            Some(other) if other != node => moves.migrated += 1,
            Some(_) => {}
        }
    }
    let come = now.keys().filter(|vm| !before.contains_key(*vm));
    moves.restored = come.filter(|vm| listed.contains(*vm)).count() as u64;
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(places: &[(&str, &str)]) -> BTreeMap<String, String> {
        places
            .iter()
            .map(|(vm, node)| ((*vm).to_owned(), (*node).to_owned()))
            .collect()
    }

    #[test]
    fn vms_of_a_node_under_upgrade_are_counted_and_no_others() {
        let before = at(&[
            ("a/moves", "n1"),
            ("a/ends", "n1"),
            ("a/elsewhere", "n2"),
            ("a/leaves", "n2"),
        ]);
        let now = at(&[
            ("a/moves", "n2"),
            ("a/elsewhere", "n2"),
            ("a/back", "n1"),
            ("a/new", "n1"),
        ]);
        let counted = moves(&before, &now, &["n1".to_owned()].into(), &["a/back".to_owned()].into());
        let expected = Moves {
            migrated: 1,
            shut_down: 1,
            restored: 1,
        };
        assert_eq!(counted, expected);
    }
}
