//! While Rancher is upgraded, rancher-system-agent must not restart RKE2 on the nodes: a system-upgrade-controller Plan
//! tells every managed node so (`host::system_agent`). The upgrade of each node undoes it.
//!
//! Only the nodes that the Plan selects count. Its version is made from the plan's, so that another try finds the nodes
//! that have it already.

use api::{
    UpgradePlan,
    foreign::suc::Plan,
    labels::{self, component},
    names,
};
use k8s_openapi::api::core::v1::Node;
use kube::{Resource, ResourceExt, runtime::watcher};
use serde_json::{Value, json};

use crate::{
    error::{Error, Result},
    report::{Look, Waiting},
    step::Pace,
};

use super::{context::Context, rollout::is_managed};

const CONCURRENCY: i64 = 10;
/// How long the Job of one node may take.
const JOB_DEADLINE_SECONDS: u32 = 10 * 60;

/// Runs the Plan and waits until every node it selects has had it.
pub(super) async fn run(context: &Context, pace: Pace<'_>) -> Result<()> {
    let plans = context.namespaced::<Plan>(names::CATTLE_NAMESPACE);
    let name = names::suc_plan(&context.plan, component::HOLD_AGENT);
    match plans.get(&name).await? {
        Some(plan) if !is_ours(&plan, &context.plan) => {
            return Err(Error::Lasting(format!(
                "{} belongs to somebody else",
                plans.called(&name)
            )));
        }
        Some(_) => {}
        None => {
            let wanted = plan(context.upgrade_plan()?, &context.image, &context.plan_service_account);
            plans.apply(&name, &wanted).await?;
        }
    }
    let called = plans.called(&name);
    let mut hash = String::new();
    plans
        .until(pace, &name, |plan| {
            hash = plan
                .and_then(|plan| plan.status.latest_hash.clone())
                .unwrap_or_default();
            Look::of(if hash.is_empty() {
                vec![Waiting {
                    what: "Plan",
                    object: called.clone(),
                    message: format!("system-upgrade-controller has not taken up {called}"),
                }]
            } else {
                Vec::new()
            })
        })
        .await?;
    context
        .global::<Node>()
        .watch(pace, watcher::Config::default(), None, |nodes| {
            let left = nodes_left(nodes.iter().map(AsRef::as_ref), &name, &hash);
            Look::of(left.into_iter().map(waiting).collect())
        })
        .await?;
    plans.delete(&name).await
}

fn is_ours(plan: &Plan, upgrade_plan: &str) -> bool {
    plan.labels()
        .get(labels::UPGRADE_PLAN)
        .is_some_and(|owner| owner == upgrade_plan)
}

/// Whether system-upgrade-controller has run the Plan on a node.
fn has_had(node: &Node, plan: &str, hash: &str) -> bool {
    let label = format!("{}{plan}", labels::SUC_NODE_PLAN_PREFIX);
    node.labels().get(&label).is_some_and(|found| found == hash)
}

/// The nodes that the Plan selects and that have not had it, by name.
#[must_use]
pub fn nodes_left<'a>(nodes: impl IntoIterator<Item = &'a Node>, plan: &str, hash: &str) -> Vec<&'a Node> {
    let selected = nodes.into_iter().filter(|node| is_managed(node));
    selected.filter(|node| !has_had(node, plan, hash)).collect()
}

fn waiting(node: &Node) -> Waiting {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions
        .filter(|condition| condition.type_ == "Ready")
        .any(|condition| condition.status == "True");
    let name = node.name_any();
    let why = if ready {
        "its Job is not done"
    } else {
        "the node is not Ready, so no Job can run there"
    };
    Waiting {
        what: "NodeAgent",
        object: format!("Node {name}"),
        message: format!("rancher-system-agent of node {name} has not been told to leave RKE2 alone: {why}"),
    }
}

/// The Plan.
#[must_use]
pub fn plan(upgrade_plan: &UpgradePlan, image: &str, service_account: &str) -> Value {
    let plan = upgrade_plan.name_any();
    let uid = upgrade_plan.uid().unwrap_or_default();
    json!({
        "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
        "metadata": {
            "name": names::suc_plan(&plan, component::HOLD_AGENT), "namespace": names::CATTLE_NAMESPACE,
            "labels": {labels::UPGRADE_PLAN: plan, labels::UPGRADE_COMPONENT: component::HOLD_AGENT},
            "ownerReferences": [{
                "apiVersion": UpgradePlan::api_version(&()), "kind": UpgradePlan::kind(&()), "name": plan, "uid": uid,
            }],
        },
        "spec": {
            "concurrency": CONCURRENCY,
            "jobActiveDeadlineSecs": JOB_DEADLINE_SECONDS,
            "nodeSelector": {"matchLabels": {labels::MANAGED: "true"}},
            "serviceAccountName": service_account,
            "tolerations": [{"operator": "Exists"}],
            "upgrade": {
                "image": image,
                "command": ["upgrade-toolkit", "cluster-upgrade", "hold-agent"],
                "securityContext": {"privileged": true, "runAsUser": 0},
            },
            // The same each time for one plan, and another one for the next.
            "version": &names::digest(&format!("{plan}/{uid}"))[..8],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, labels: &[(&str, &str)]) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some(name.into());
        for (key, value) in labels {
            node.labels_mut().insert((*key).into(), (*value).into());
        }
        node
    }

    #[test]
    fn fragility_9_only_the_nodes_that_the_plan_selects_count() {
        let had = ("plan.upgrade.cattle.io/up-x", "h1");
        let nodes = [
            node("done", &[(labels::MANAGED, "true"), had]),
            node("left", &[(labels::MANAGED, "true")]),
            node(
                "older",
                &[(labels::MANAGED, "true"), ("plan.upgrade.cattle.io/up-x", "h0")],
            ),
            node("foreign", &[]),
            node("unmanaged", &[(labels::MANAGED, "false")]),
        ];
        let left: Vec<String> = nodes_left(&nodes, "up-x", "h1")
            .iter()
            .map(|node| node.name_any())
            .collect();
        assert_eq!(left, ["left", "older"]);
    }

    #[test]
    fn a_node_that_is_not_ready_is_named_with_its_reason() {
        let waiting = waiting(&node("n1", &[]));
        assert_eq!(waiting.object, "Node n1");
        assert!(
            waiting
                .message
                .ends_with("the node is not Ready, so no Job can run there")
        );
    }

    #[test]
    fn another_try_makes_the_same_plan() {
        let mut upgrade_plan = UpgradePlan::new("up", Default::default());
        upgrade_plan.metadata.uid = Some("u".into());
        let first = plan(&upgrade_plan, "toolkit:v1", "sa");
        assert_eq!(first, plan(&upgrade_plan, "toolkit:v1", "sa"));
        assert_eq!(first["metadata"]["name"], "up-skip-restart-rancher-system-agent");
        assert_eq!(first["spec"]["version"].as_str().unwrap().len(), 8);
        upgrade_plan.metadata.uid = Some("v".into());
        assert_ne!(
            plan(&upgrade_plan, "toolkit:v1", "sa")["spec"]["version"],
            first["spec"]["version"]
        );
    }
}
