//! Which pods block a drain: those whose eviction a PodDisruptionBudget forbids.

use std::collections::BTreeMap;

use api::{NodeState, UpgradePlan, pod::has_ended};
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{Selector, SelectorExt},
};
use plan::observed::KeptPods;

use super::error::Unanswered;
use crate::lists::{
    Keep::{self, All, Fields},
    NAMED, Reader,
};

/// The nodes that Rancher drains, by what the plan says.
pub(super) fn drained_nodes(plan: &UpgradePlan) -> Vec<String> {
    let nodes = plan.status.iter().flat_map(|status| &status.node_upgrade_statuses);
    let drained = nodes.filter(|(_, node)| node.is(NodeState::PreDrained));
    drained.map(|(name, _)| name.clone()).collect()
}

/// What is read of a budget.
const BUDGET: Keep = Fields(&[
    ("metadata", NAMED),
    ("spec", Fields(&[("selector", All)])),
    (
        "status",
        Fields(&[
            ("disruptionsAllowed", All),
            // These are not read, but no budget is without them.
            ("currentHealthy", All),
            ("desiredHealthy", All),
            ("expectedPods", All),
        ]),
    ),
]);

/// What is read of a pod.
const POD: Keep = Fields(&[
    (
        "metadata",
        Fields(&[
            ("name", All),
            ("namespace", All),
            ("labels", All),
            ("ownerReferences", All),
        ]),
    ),
    ("status", Fields(&[("phase", All)])),
]);

/// Looks at the pods of these nodes and at all budgets. Tenants have both, as many and as large as they like.
pub(super) async fn ask(client: &Client, nodes: &[String]) -> Result<KeptPods, Unanswered> {
    let reader = Reader::new(client.clone());
    let budgets = Api::all(client.clone());
    let budgets = reader
        .list(&budgets, &ListParams::default(), BUDGET, allows_nothing)
        .await;
    let budgets = budgets.map_err(|error| Unanswered::list("PodDisruptionBudgets", error))?;
    let budgets = Budgets::of(&budgets);
    let mut found = KeptPods::default();
    for node in nodes {
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = Api::all(client.clone());
        let pods = reader.list(&pods, &of_node, POD, is_evicted).await;
        let pods = pods.map_err(|error| Unanswered::list(format!("the pods of node {node}"), error))?;
        found.by_node.insert(node.clone(), kept(&pods, &budgets));
    }
    Ok(found)
}

/// The pods that a budget keeps, in the words of the status.
fn kept(pods: &[Pod], budgets: &Budgets) -> Vec<String> {
    let kept = pods.iter().filter_map(|pod| {
        let budget = budgets.keeper_of(pod)?;
        Some(format!(
            "pod {}/{} is kept by PodDisruptionBudget {budget}",
            pod.namespace().unwrap_or_default(),
            pod.name_any(),
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

/// Nothing that the budget is about may go now.
fn allows_nothing(budget: &PodDisruptionBudget) -> bool {
    let status = budget.status.as_ref();
    status.is_some_and(|status| status.disruptions_allowed <= 0)
}

/// Budgets that allow no disruption, by namespace: their names, and which pods they are about.
struct Budgets(BTreeMap<String, Vec<(String, Selector)>>);

impl Budgets {
    fn of(budgets: &[PodDisruptionBudget]) -> Self {
        let mut all = BTreeMap::<_, Vec<_>>::new();
        for budget in budgets {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
            if let Some(selector) = selector.and_then(|selector| Selector::try_from(selector).ok()) {
                let those = all.entry(budget.namespace().unwrap_or_default()).or_default();
                those.push((budget.name_any(), selector));
            }
        }
        Self(all)
    }

    /// The first budget that keeps a pod.
    fn keeper_of(&self, pod: &Pod) -> Option<&str> {
        let mut those = self.0.get(&pod.namespace().unwrap_or_default())?.iter();
        let keeper = those.find(|(_, selector)| selector.matches(pod.labels()));
        keeper.map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kube::client::Body;
    use serde_json::{Value, json};

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

    /// What is reported of these, by what is looked at.
    fn kept_by(pods: &[Pod], budget: PodDisruptionBudget) -> Vec<String> {
        let pods: Vec<Pod> = pods.iter().filter(|pod| is_evicted(pod)).cloned().collect();
        let budgets: Vec<_> = [budget].into_iter().filter(allows_nothing).collect();
        kept(&pods, &Budgets::of(&budgets))
    }

    /// A client of an API server that has these, and what it is asked.
    fn server(pods: Vec<Value>, budgets: Vec<Value>) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let noted = asked.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let uri = request.uri().to_string();
            let all = if uri.contains("poddisruptionbudgets") {
                &budgets
            } else {
                &pods
            };
            let number = |key: &str| {
                let mut pairs = request.uri().query().unwrap_or_default().split('&');
                pairs.find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=')?.parse::<usize>().ok())
            };
            let from = number("continue").unwrap_or(0);
            let to = from
                .saturating_add(number("limit").unwrap_or(usize::MAX))
                .min(all.len());
            let next = if to < all.len() { to.to_string() } else { String::new() };
            let list = json!({"metadata": {"continue": next}, "items": all[from..to]});
            noted.lock().unwrap().push(uri);
            async move { Ok::<_, std::io::Error>(http::Response::new(Body::from(list.to_string().into_bytes()))) }
        });
        (Client::new(service, "default"), asked)
    }

    fn fat(mut object: Value) -> Value {
        object["metadata"]["annotations"] = json!({"a": "x".repeat(200 * 1024)});
        object
    }

    #[tokio::test]
    async fn s04_fat_budgets_and_pods_of_tenants_are_read_a_few_at_a_time_and_all_of_them() {
        let budgets = (0..100).map(|number| {
            let mut budget = fat(json!(budget("shop", if number == 99 { 0 } else { 1 })));
            budget["metadata"]["name"] = json!(format!("budget-{number}"));
            budget
        });
        let pods = (0..50).map(|number| fat(json!(pod(&format!("db-{number}"), "db", "ReplicaSet", "Running"))));
        let (client, asked) = server(pods.collect(), budgets.collect());
        let found = ask(&client, &["node-1".to_owned()]).await.unwrap();
        let kept = &found.by_node["node-1"];
        assert_eq!(kept.len(), 50);
        assert_eq!(kept[49], "pod shop/db-49 is kept by PodDisruptionBudget budget-99");
        let asked = asked.lock().unwrap();
        // Each kind in two pages that do not fit, then 16 at a time.
        assert_eq!(asked.len(), 2 + 7 + 2 + 4, "{asked:?}");
        assert!(asked.iter().all(|uri| uri.contains("limit=")), "{asked:?}");
    }

    #[tokio::test]
    async fn s04_more_budgets_than_fit_are_refused_by_name_and_take_no_more_than_that() {
        let values: Vec<String> = (0..20_000).map(|number| format!("value-{number}")).collect();
        let mut large = json!(budget("shop", 0));
        large["spec"]["selector"]["matchExpressions"][0]["values"] = json!(values);
        let (client, _) = server(Vec::new(), vec![large; 60]);
        let why = ask(&client, &["node-1".to_owned()]).await.unwrap_err().to_string();
        assert!(
            why.contains("PodDisruptionBudgets") && why.contains("more than the manager looks at (32 MiB)"),
            "{why}"
        );
    }

    #[test]
    fn a_pod_whose_budget_allows_no_disruption_is_named_with_it() {
        let pods = [
            pod("db-0", "db", "StatefulSet", "Running"),
            pod("web-0", "web", "ReplicaSet", "Running"),
        ];
        assert_eq!(
            kept_by(&pods, budget("shop", 0)),
            ["pod shop/db-0 is kept by PodDisruptionBudget database"]
        );
        assert_eq!(kept_by(&pods, budget("shop", 1)), [""; 0]);
        assert_eq!(kept_by(&pods, budget("other", 0)), [""; 0]);
    }

    #[test]
    fn what_a_drain_leaves_alone_keeps_nothing() {
        let pods = [
            pod("a", "db", "DaemonSet", "Running"),
            pod("b", "db", "Job", "Succeeded"),
        ];
        assert_eq!(kept_by(&pods, budget("shop", 0)), [""; 0]);
    }
}
