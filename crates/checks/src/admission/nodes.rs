//! Nodes: ready, schedulable, and those to pause exist.

use std::collections::BTreeSet;

use api::{
    UpgradePlan,
    node::{is_cordoned, is_ready},
};
use kube::ResourceExt;

use crate::{Cluster, FieldError};

use super::{SPEC, all, takes_over};

const PAUSE_NODES: &str = "spec.nodeUpgradeOption.pauseNodes";

pub(super) fn are_ready(_: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    let mut errors = Vec::new();
    // Rancher keeps what it drains cordoned until another plan continues, even if a user uncordons it. Mostly that is one node, but it
    // lets machines past its limit that were never well.
    let may_be_cordoned = takes_over(cluster);
    for node in all(&cluster.nodes, "nodes")? {
        let name = node.name_any();
        if !is_ready(node) {
            errors.push(FieldError::forbidden(SPEC, format!("node \"{name}\" is not Ready")));
        }
        if !may_be_cordoned && is_cordoned(node) {
            errors.push(FieldError::forbidden(SPEC, format!("node \"{name}\" is unschedulable")));
        }
    }
    Ok(errors)
}

pub(super) fn to_pause_exist(plan: &UpgradePlan, cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    exist(&paused(plan).iter().enumerate().collect::<Vec<_>>(), cluster)
}

fn paused(plan: &UpgradePlan) -> &[String] {
    let option = plan.spec.node_upgrade_option.as_ref();
    option
        .and_then(|option| option.pause_nodes.as_deref())
        .unwrap_or_default()
}

/// Names that the new plan pauses and the old one did not, with their places in the list.
pub(super) fn newly_paused<'a>(old: &UpgradePlan, new: &'a UpgradePlan) -> Vec<(usize, &'a String)> {
    added(paused(old), paused(new))
}

/// What is in the new list and not in the old one. A client of the webhook chooses how long they are.
fn added<'a, T: Ord>(old: &[T], new: &'a [T]) -> Vec<(usize, &'a T)> {
    let known: BTreeSet<&T> = old.iter().collect();
    let all = new.iter().enumerate();
    all.filter(|(_, one)| !known.contains(one)).collect()
}

/// What is wrong with names of nodes at places of the list.
pub(super) fn exist(names: &[(usize, &String)], cluster: &Cluster) -> Result<Vec<FieldError>, FieldError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let nodes = all(&cluster.nodes, "nodes").map_err(|error| FieldError::internal(PAUSE_NODES, error.detail))?;
    let nodes: BTreeSet<&str> = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
    let unknown = names.iter().filter(|(_, name)| !nodes.contains(name.as_str()));
    let errors = unknown.map(|(index, name)| FieldError::not_found(&format!("{PAUSE_NODES}[{index}]"), name));
    Ok(errors.collect())
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, cmp::Ordering};

    use super::*;

    thread_local! {
        static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// Counts how often any two are compared.
    #[derive(PartialEq, Eq, Debug)]
    struct Counted(usize);

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    #[test]
    fn s05_two_lists_as_long_as_a_review_lets_them_be_are_compared_in_a_moment() {
        const LONG: usize = 32_000;
        let list = |from: usize| (from..from + LONG).map(Counted).collect::<Vec<_>>();
        assert_eq!(added(&list(0), &list(LONG)).len(), LONG);
        assert!(COMPARED.get() < 64 * LONG, "{} comparisons", COMPARED.get());
        let (old, new) = (list(0), [Counted(7), Counted(LONG), Counted(8)]);
        assert_eq!(added(&old, &new), [(1, &Counted(LONG))]);
    }
}
