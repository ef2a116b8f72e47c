//! Emptying each node in turn: does every VM find another one?

use std::collections::BTreeMap;

use super::{
    Found, Question,
    found::listed,
    full_name,
    placement::{Mover, Placement, Room},
};
use crate::finding::{Missing, ObjectRef};

/// The VMs of each node.
fn by_node<'m, 'a>(movers: &'m [Mover<'a>]) -> BTreeMap<&'a str, Vec<&'m Mover<'a>>> {
    let mut nodes: BTreeMap<&str, Vec<&Mover<'_>>> = BTreeMap::new();
    for mover in movers {
        nodes.entry(mover.node).or_default().push(mover);
    }
    nodes
}

/// Some other node may take the VM and has room for it.
fn has_a_place(mover: &Mover<'_>, placement: &Placement<'_>) -> bool {
    placement
        .places
        .iter()
        .any(|place| mover.needs.fits(place.free) && mover.may_go_to(place.node))
}

fn found(node: &str, text: &str, movers: &[&Mover<'_>]) -> Found {
    let names = movers
        .iter()
        .map(|mover| format!("{} ({})", full_name(mover.vmi), mover.needs.text()))
        .collect();
    let about = [ObjectRef::new("Node", None, node)].into_iter();
    Found::new(format!("{text}: {}", listed(names)))
        .about(about.chain(movers.iter().map(|mover| ObjectRef::of(mover.vmi))))
}

pub(super) fn each_vm_has_a_place(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let placement = Placement::of(question)?;
    let found = by_node(&placement.movers).into_iter().filter_map(|(node, movers)| {
        let homeless: Vec<&Mover<'_>> = movers
            .into_iter()
            .filter(|mover| !has_a_place(mover, &placement))
            .collect();
        let text = format!("VMs of node {node} find no other node that they may run on and that has room for them");
        (!homeless.is_empty()).then(|| found(node, &text, &homeless))
    });
    Ok(found.collect())
}

/// The largest first, each to the first node with room. That is no proof, but a scheduler does no better.
pub(super) fn each_node_can_be_emptied(question: &Question<'_>) -> Result<Vec<Found>, Missing> {
    let placement = Placement::of(question)?;
    let found = by_node(&placement.movers).into_iter().filter_map(|(node, mut movers)| {
        movers.retain(|mover| has_a_place(mover, &placement));
        movers.sort_by(|a, b| b.needs.memory.total_cmp(&a.needs.memory));
        let mut free: Vec<Room> = placement.places.iter().map(|place| place.free).collect();
        let mut left = Vec::new();
        for mover in movers {
            let mut places = placement.places.iter().zip(&mut free);
            match places.find(|(place, free)| mover.needs.fits(**free) && mover.may_go_to(place.node)) {
                Some((_, free)) => *free = free.without(mover.needs),
                None => left.push(mover),
            }
        }
        let text = format!("the other nodes have no room for all VMs of node {node} at once; left over would be");
        (!left.is_empty()).then(|| self::found(node, &text, &left))
    });
    Ok(found.collect())
}
