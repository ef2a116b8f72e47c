//! Which pods keep a drain from ending: those that a PodDisruptionBudget does not let go.

use std::collections::BTreeMap;

use api::{NodeState, UpgradePlan, pod::has_ended};
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{Selector, SelectorExt},
};
use plan::observed::KeptPods;

/// The nodes that Rancher drains, by what the plan says.
pub(super) fn drained_nodes(plan: &UpgradePlan) -> Vec<String> {
    let nodes = plan.status.iter().flat_map(|status| &status.node_upgrade_statuses);
    let drained = nodes.filter(|(_, node)| node.state.as_deref() == Some(NodeState::PreDrained.as_str()));
    drained.map(|(name, _)| name.clone()).collect()
}

/// Looks at the pods of these nodes and at all budgets.
pub(super) async fn ask(client: &Client, nodes: &[String]) -> Result<KeptPods, String> {
    let budgets: Api<PodDisruptionBudget> = Api::all(client.clone());
    let budgets = budgets.list(&ListParams::default()).await;
    let budgets = budgets.map_err(|error| format!("failed to list PodDisruptionBudgets: {error}"))?;
    let mut found = KeptPods::default();
    for node in nodes {
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = Api::<Pod>::all(client.clone()).list(&of_node).await;
        let pods = pods.map_err(|error| format!("failed to list the pods of node {node}: {error}"))?;
        found.by_node.insert(node.clone(), kept(&pods.items, &budgets.items));
    }
    Ok(found)
}

/// The pods that a budget keeps, in the words of the status.
fn kept(pods: &[Pod], budgets: &[PodDisruptionBudget]) -> Vec<String> {
    let pods = pods.iter().filter(|pod| is_evicted(pod));
    let kept = pods.filter_map(|pod| {
        let budget = budgets.iter().find(|budget| keeps(budget, pod))?;
        Some(format!(
            "pod {}/{} is kept by PodDisruptionBudget {}",
            pod.namespace().unwrap_or_default(),
            pod.name_any(),
            budget.name_any()
        ))
    });
    kept.collect()
}

/// A drain leaves alone what comes back at once, what the node itself runs, and what has ended.
fn is_evicted(pod: &Pod) -> bool {
    let owners = pod.owner_references().iter();
    let stays = owners
        .into_iter()
        .any(|owner| matches!(owner.kind.as_str(), "DaemonSet" | "Node"));
    !stays && !has_ended(pod)
}

fn keeps(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let allowed = budget.status.as_ref().map(|status| status.disruptions_allowed);
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
    let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
    let labels: &BTreeMap<String, String> = pod.labels();
    budget.namespace() == pod.namespace()
        && allowed.is_some_and(|allowed| allowed <= 0)
        && selector.is_some_and(|selector| selector.matches(labels))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, app: &str, owner: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "shop", "labels": {"app": app}, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": owner, "name": "owner", "uid": "1"}]},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    fn budget(namespace: &str, allowed: i32) -> PodDisruptionBudget {
        serde_json::from_value(json!({
            "metadata": {"name": "database", "namespace": namespace},
            "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]}},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_whose_budget_allows_no_disruption_is_named_with_it() {
        let pods = [
            pod("db-0", "db", "StatefulSet", "Running"),
            pod("web-0", "web", "ReplicaSet", "Running"),
        ];
        assert_eq!(
            kept(&pods, &[budget("shop", 0)]),
            ["pod shop/db-0 is kept by PodDisruptionBudget database"]
        );
        assert_eq!(kept(&pods, &[budget("shop", 1)]), [""; 0]);
        assert_eq!(kept(&pods, &[budget("other", 0)]), [""; 0]);
    }

    #[test]
    fn what_a_drain_leaves_alone_keeps_nothing() {
        let pods = [
            pod("a", "db", "DaemonSet", "Running"),
            pod("b", "db", "Job", "Succeeded"),
        ];
        assert_eq!(kept(&pods, &[budget("shop", 0)]), [""; 0]);
    }
}
