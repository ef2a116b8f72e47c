//! The rules that follow from the table of watched kinds: what its caches read, and what is written of it.

use super::{
    CLUSTER_RULES, HARVESTER_RULES,
    role::{RoleRule, Rule},
};
use crate::watched::{Place, Rights, Watched, WatchedKind};

/// The rules of a place: of the table, and others that hold there. Sorted, so that a row may stand anywhere in the table.
pub(super) fn rules_of(place: Place) -> Vec<RoleRule> {
    let mut rules: Vec<RoleRule> = others(place).iter().map(RoleRule::from).collect();
    let watched = Watched::kinds();
    let here = watched.iter().filter(|kind| kind.place == place);
    rules.extend(here.flat_map(of_kind));
    if place != Place::Cluster {
        let everywhere = rules_of(Place::Cluster);
        rules.iter_mut().for_each(|rule| drop_allowed(rule, &everywhere));
        rules.retain(|rule| !rule.verbs.is_empty());
    }
    rules.sort();
    rules
}

/// What the table does not say: kinds that are not watched, and parts of objects that have rules of their own.
fn others(place: Place) -> &'static [Rule] {
    match place {
        Place::Cluster => CLUSTER_RULES,
        Place::Harvester => HARVESTER_RULES,
        Place::Cattle | Place::Fleet | Place::MachinePlans | Place::Longhorn | Place::KubeSystem => &[],
    }
}

/// What one row needs.
fn of_kind(kind: &WatchedKind) -> Vec<RoleRule> {
    let rule = |verbs: &[&'static str], names: &[&'static str]| RoleRule {
        group: kind.group.clone(),
        resources: vec![kind.resource.clone()],
        names: names.to_vec(),
        verbs: verbs.to_vec(),
    };
    let watched = kind.name.as_slice();
    match kind.rights {
        Rights::Read => vec![rule(&["list", "watch"], watched)],
        Rights::Patch => vec![rule(&["list", "watch", "patch"], watched)],
        Rights::PatchNamed(names) => vec![rule(&["list", "watch"], watched), rule(&["patch"], names)],
        Rights::Create => vec![rule(&["list", "watch", "create"], watched)],
        Rights::Own => vec![rule(&["get", "list", "watch", "create", "delete"], watched)],
        Rights::OwnAndPatch => vec![rule(&["get", "list", "watch", "create", "patch", "delete"], watched)],
    }
}

/// What a rule for the whole cluster allows needs no other.
fn drop_allowed(rule: &mut RoleRule, everywhere: &[RoleRule]) {
    let is_covered = |verb: &str| {
        everywhere.iter().any(|other| {
            other.group == rule.group
                && other.names.is_empty()
                && rule.resources.iter().all(|one| other.resources.contains(one))
                && other.verbs.contains(&verb)
        })
    };
    let verbs = rule.verbs.iter().copied().filter(|verb| !is_covered(verb)).collect();
    rule.verbs = verbs;
}
