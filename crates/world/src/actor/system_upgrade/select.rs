//! Which nodes a Plan is applied to now, and what identifies it there. Pure.
//!
//! After `pkg/upgrade/plan/plan.go` of system-upgrade-controller. What it does not look at is left out here too: whether a
//! node is Ready, for one.

use std::sync::Arc;

use api::{foreign::suc::Plan, labels};
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::LabelSelector};
use sha2::{Digest, Sha224};

use crate::context::{digest, label};

pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
/// The value of a node's label that keeps a Plan away from it.
const DISABLED: &str = "disabled";

/// The version that a Plan applies: as labels and tags can contain it.
pub(super) fn version(plan: &Plan) -> String {
    plan.spec.version.clone().unwrap_or_default().replace('+', "-")
}

/// What nodes are labelled with that have had the Plan: of version and account, and of nothing else that the Plan says.
pub(super) fn hash(plan: &Plan) -> String {
    let account = plan.spec.service_account_name.as_deref().unwrap_or_default();
    Sha224::digest(format!("{}{account}", version(plan)).as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The label of nodes that have had a Plan.
pub(super) fn mark(plan: &str) -> String {
    format!("{}{plan}", labels::SUC_NODE_PLAN_PREFIX)
}

/// The name of a node in `status.applying`.
pub(super) fn hostname(node: &Node) -> &str {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    label(&node.metadata, HOSTNAME).unwrap_or(name)
}

/// The nodes that the Plan is applied to now, by name: those it is applied to already, then others up to its concurrency,
/// in an order that is the same each time and means nothing.
pub(super) fn concurrent(plan: &Plan, nodes: &[Arc<Node>]) -> Vec<Arc<Node>> {
    let hash = plan.status.latest_hash.as_deref().unwrap_or_default();
    let mark = mark(plan.metadata.name.as_deref().unwrap_or_default());
    let no_selector = LabelSelector::default();
    let selector = plan.spec.node_selector.as_ref().unwrap_or(&no_selector);
    let is_left = |node: &&Arc<Node>| {
        let had = label(&node.metadata, &mark);
        selects(selector, node)
            && label(&node.metadata, HOSTNAME).is_some()
            && had != Some(hash)
            && had != Some(DISABLED)
    };
    let applying = plan.status.applying.as_deref().unwrap_or_default();
    let is_applying = |node: &Arc<Node>| applying.iter().any(|name| name == hostname(node));
    let (mut selected, mut others): (Vec<Arc<Node>>, Vec<Arc<Node>>) =
        nodes.iter().filter(is_left).cloned().partition(is_applying);
    let uid = plan.metadata.uid.as_deref().unwrap_or_default();
    others.sort_by_cached_key(|node| {
        let of = node.metadata.uid.as_deref().unwrap_or_default();
        digest(&format!("{of}{uid}{hash}"), 64)
    });
    let slots = usize::try_from(plan.spec.concurrency.unwrap_or_default()).unwrap_or_default();
    let free = slots.saturating_sub(selected.len());
    selected.extend(others.into_iter().take(free));
    selected.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    selected
}

/// Labels of the selector that the node must have.
fn selects(selector: &LabelSelector, node: &Node) -> bool {
    let exact = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| label(&node.metadata, key) == Some(value));
    exact
        && selector.match_expressions.iter().flatten().all(|rule| {
            let actual = label(&node.metadata, &rule.key);
            let listed = actual.is_some_and(|actual| rule.values.iter().flatten().any(|value| value == actual));
            match rule.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => actual.is_some(),
                "DoesNotExist" => actual.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(concurrency: i64, applying: &[&str]) -> Plan {
        serde_json::from_value(json!({
            "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": {"name": "p", "uid": "u"},
            "spec": {"concurrency": concurrency, "version": "v1+x", "serviceAccountName": "sa"},
            "status": {"latestHash": "h", "applying": applying},
        }))
        .unwrap()
    }

    fn node(name: &str, labels: &serde_json::Value) -> Arc<Node> {
        let mut node = json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "labels": labels}});
        node["metadata"]["labels"][HOSTNAME] = json!(name);
        Arc::new(serde_json::from_value(node).unwrap())
    }

    fn names(nodes: &[Arc<Node>]) -> Vec<&str> {
        nodes.iter().map(|node| hostname(node)).collect()
    }

    #[test]
    fn the_hash_is_of_version_and_account_and_of_nothing_else() {
        let one = plan(1, &[]);
        let mut other = plan(9, &["a"]);
        other.metadata.name = Some("other".into());
        assert_eq!((hash(&one), version(&one)), (hash(&other), "v1-x".to_owned()));
        // sha224 of "v1-xsa", by another program.
        assert_eq!(hash(&one), "ea8596416dbd06ab00339bab6bf96d116edf5c8cb3721aff9d50e9e2");
        other.spec.version = Some("v2".into());
        assert_ne!(hash(&one), hash(&other));
        other = plan(1, &[]);
        other.spec.service_account_name = Some("else".into());
        assert_ne!(hash(&one), hash(&other));
    }

    #[test]
    fn nodes_that_have_had_the_plan_or_are_disabled_are_not_selected() {
        let nodes = [
            node("a", &json!({"plan.upgrade.cattle.io/p": "h"})),
            node("b", &json!({"plan.upgrade.cattle.io/p": "disabled"})),
            node("c", &json!({"plan.upgrade.cattle.io/p": "of-an-older-version"})),
            node("d", &json!({})),
        ];
        assert_eq!(names(&concurrent(&plan(9, &[]), &nodes)), ["c", "d"]);
    }

    #[test]
    fn who_is_being_served_stays_and_others_come_only_within_the_concurrency() {
        let nodes = ["a", "b", "c", "d"].map(|name| node(name, &json!({})));
        assert_eq!(names(&concurrent(&plan(2, &["c", "d"]), &nodes)), ["c", "d"]);
        let one_more = concurrent(&plan(2, &["d"]), &nodes);
        assert!(one_more.len() == 2 && names(&one_more).contains(&"d"));
        assert!(concurrent(&plan(0, &[]), &nodes).is_empty());
    }

    #[test]
    fn the_order_of_nodes_is_random_and_the_same_each_time() {
        let nodes = ["a", "b", "c", "d", "e", "f"].map(|name| node(name, &json!({})));
        let first = |uid: &str| {
            let mut plan = plan(1, &[]);
            plan.metadata.uid = Some(uid.to_owned());
            names(&concurrent(&plan, &nodes))[0].to_owned()
        };
        assert_eq!(first("u"), first("u"));
        let firsts: std::collections::BTreeSet<String> = (0..20).map(|n| first(&n.to_string())).collect();
        assert!(firsts.len() > 2, "{firsts:?}");
    }
}
