//! While Rancher is upgraded, rancher-system-agent must not restart RKE2 on the nodes: a system-upgrade-controller Plan
//! does this on every managed node (`host::system_agent`). The upgrade of each node undoes it.
//!
//! Only the nodes that the Plan selects count. Its version is made from the upgrade's, from which try of it this is, and
//! from the boots of the nodes: the suspension is lost with a reboot, the label is not. Another pod of
//! the same try finds the nodes that have it already.

use api::{
    Component, ProgramWait, UpgradePlan,
    foreign::suc::Plan,
    labels, names,
    node::{is_managed, is_ready},
    owner,
};
use k8s_openapi::api::core::v1::Node;
use kube::{ResourceExt, runtime::watcher};
use rules::{
    suc_plan::{self, Wanted},
    tries,
};
use serde_json::{Value, json};

use program::{
    error::{Error, Result},
    report::{Look, Waiting},
    step::StepContext,
};

use super::context::Context;

const CONCURRENCY: i64 = 10;
/// How long the Job of one node may take.
const JOB_DEADLINE_SECONDS: u64 = 10 * 60;

/// Runs the Plan and waits until every node it selects has had it.
pub(super) async fn run(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let plans = context.namespaced::<Plan>(names::CATTLE_NAMESPACE);
    let name = names::suc_plan(&context.plan, Component::SuspendAgent);
    let upgrade_plan = context.upgrade_plan()?;
    if let Some(found) = plans.get(&name).await?.filter(|plan| !is_ours(plan, upgrade_plan)) {
        let why = format!("{} does not belong to this UpgradePlan", plans.called(&name));
        // One of an UpgradePlan of this name that is gone goes too.
        return Err(match found.labels().get(labels::UPGRADE_PLAN) {
            Some(owner) if *owner == context.plan => Error::Transient(why),
            _ => Error::Permanent(why),
        });
    }
    let nodes = context
        .global::<Node>()
        .list(&format!("{}=true", labels::MANAGED))
        .await?;
    let version = version(upgrade_plan, &nodes);
    let wanted = plan(upgrade_plan, &version, &context.image, &context.plan_service_account);
    plans.apply(&name, &wanted).await?;
    let called = plans.called(&name);
    let mut hash = String::new();
    plans
        .until(ctx, &name, |plan| {
            let taken_up = plan.filter(|plan| plan.status.latest_version.as_ref() == Some(&version));
            hash = taken_up
                .and_then(|plan| plan.status.latest_hash.clone())
                .unwrap_or_default();
            Look::of(if hash.is_empty() {
                vec![Waiting {
                    what: ProgramWait::Plan,
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
        .watch(ctx, watcher::Config::default(), None, |nodes| {
            let left = nodes_left(nodes.iter().map(AsRef::as_ref), &name, &hash);
            Look::of(left.into_iter().map(waiting).collect())
        })
        .await?;
    plans.delete(&name).await
}

/// Labels and names prove nothing: a client that creates a Plan chooses them.
fn is_ours(plan: &Plan, upgrade_plan: &UpgradePlan) -> bool {
    owner::is_owned_by_plan(plan, &upgrade_plan.metadata)
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
    let name = node.name_any();
    let why = if is_ready(node) {
        "its Job is not done"
    } else {
        "the node is not Ready, so no Job can run there"
    };
    Waiting {
        what: ProgramWait::NodeAgent,
        object: format!("Node {name}"),
        message: format!("rancher-system-agent of node {name} is not suspended yet: {why}"),
    }
}

/// What distinguishes the Plan from others of its name: the same until a node reboots or a retry begins.
#[must_use]
pub fn version(upgrade_plan: &UpgradePlan, nodes: &[Node]) -> String {
    let tries = tries::failed_before(upgrade_plan.status.as_ref());
    let mut text = format!("{}/{tries}", upgrade_plan.uid().unwrap_or_default());
    for node in nodes {
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let boot = info.map(|info| info.boot_id.as_str()).unwrap_or_default();
        text = format!("{text}/{}={boot}", node.name_any());
    }
    suc_plan::version(&text)
}

/// The Plan. Its account may not name an owner that blocks deletion.
#[must_use]
pub fn plan(upgrade_plan: &UpgradePlan, version: &str, image: &str, service_account: &str) -> Value {
    suc_plan::manifest(Wanted {
        upgrade_plan: &upgrade_plan.name_any(),
        owner: owner::reference(&upgrade_plan.metadata),
        component: Component::SuspendAgent,
        concurrency: CONCURRENCY,
        deadline_seconds: JOB_DEADLINE_SECONDS,
        service_account,
        version,
        container: json!({
            "image": image,
            "command": ["upgrade-toolkit", "cluster-upgrade", "suspend-agent"],
            "securityContext": {"privileged": true, "runAsUser": 0},
        }),
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
    fn f09_only_the_nodes_that_the_plan_selects_count() {
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

    fn booted(name: &str, boot: &str) -> Node {
        let mut booted = node(name, &[]);
        let info = booted.status.get_or_insert_default().node_info.get_or_insert_default();
        info.boot_id = boot.into();
        booted
    }

    #[test]
    fn r08_a_node_that_has_rebooted_is_suspended_again_and_so_are_all_in_a_retry() {
        let mut upgrade_plan = UpgradePlan::new("up", Default::default());
        upgrade_plan.metadata.uid = Some("u".into());
        let nodes = [booted("node-1", "a"), booted("node-2", "b")];
        let first = version(&upgrade_plan, &nodes);
        assert_eq!(first.len(), 8);
        assert_eq!(first, version(&upgrade_plan, &nodes), "another pod of the same try");
        let rebooted = [booted("node-1", "a"), booted("node-2", "c")];
        assert_ne!(first, version(&upgrade_plan, &rebooted));
        let change = |phase: api::Phase| api::PhaseTransition {
            phase: phase.to_string(),
            phase_transition_timestamp: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                jiff::Timestamp::UNIX_EPOCH,
            ),
            message: None,
        };
        let history = [
            api::Phase::ClusterUpgrading,
            api::Phase::Failed,
            api::Phase::ImagePreloaded,
        ];
        upgrade_plan.status = Some(api::UpgradePlanStatus {
            phase_transition_timestamps: history.map(change).into(),
            ..Default::default()
        });
        assert_ne!(first, version(&upgrade_plan, &nodes), "another try");
        let made = plan(&upgrade_plan, &first, "toolkit:v1", "sa");
        assert_eq!(made["metadata"]["name"], "up-skip-restart-rancher-system-agent");
        assert_eq!(made["spec"]["version"], first);
    }
}
