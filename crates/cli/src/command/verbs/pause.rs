//! `pause` and `resume`: which nodes of a plan wait for an administrator (`spec.nodeUpgradeOption.pauseNodes`).

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::bail;
use api::{NodeState, UpgradePlan};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    super::cluster_args::{LiveArgs, block_on},
    has_ended, phase_of, refused, say,
};

/// How often a change is tried that another client was faster than.
const TRIES: usize = 5;

/// Which nodes.
#[derive(Debug, clap::Args)]
#[command(after_help = "A node whose upgrade has started is not stopped.\n\n\
    Exit code: 0 done, 1 refused, 2 wrong usage.\n\n\
    Examples:\n  \
    upgrade-toolkit pause node-2 node-3\n  \
    upgrade-toolkit pause node-2 --plan hvst-upgrade-x7k2p")]
pub(in super::super) struct PauseArgs {
    /// Names of nodes
    #[arg(value_name = "NODE", required = true)]
    nodes: Vec<String>,
    /// The plan; without it the one that runs, else the newest
    #[arg(long, value_name = "PLAN")]
    plan: Option<String>,
    #[command(flatten)]
    cluster: LiveArgs,
}

/// Which nodes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code: 0 done, 1 refused, 2 wrong usage.\n\n\
    Examples:\n  \
    upgrade-toolkit resume node-2\n  \
    upgrade-toolkit resume --all                                     every paused node")]
pub(in super::super) struct ResumeArgs {
    /// Names of nodes
    #[arg(value_name = "NODE", required_unless_present = "all")]
    nodes: Vec<String>,
    /// All nodes that are paused
    #[arg(long, conflicts_with = "nodes")]
    all: bool,
    /// The plan; without it the one that runs, else the newest
    #[arg(long, value_name = "PLAN")]
    plan: Option<String>,
    #[command(flatten)]
    cluster: LiveArgs,
}

pub(in super::super) fn pause(args: &PauseArgs) -> anyhow::Result<ExitCode> {
    block_on(async {
        let client = args.cluster.client().await?;
        change(&client, args.plan.as_deref(), |plan| paused_also(plan, &args.nodes)).await
    })?
}

pub(in super::super) fn resume(args: &ResumeArgs) -> anyhow::Result<ExitCode> {
    block_on(async {
        let client = args.cluster.client().await?;
        let nodes = (!args.all).then_some(args.nodes.as_slice());
        change(&client, args.plan.as_deref(), |plan| still_paused(plan, nodes)).await
    })?
}

/// What the list is to be, and what is printed about it.
struct Change {
    nodes: Option<Vec<String>>,
    line: String,
}

/// Changes the list, of the plan as it is then.
async fn change(
    client: &Client,
    name: Option<&str>,
    decide: impl Fn(&UpgradePlan) -> anyhow::Result<Change>,
) -> anyhow::Result<ExitCode> {
    let plans: Api<UpgradePlan> = Api::all(client.clone());
    for attempt in 1.. {
        let plan = super::plan(client, name).await?;
        let name = plan.name_any();
        let Change { nodes, line } = decide(&plan)?;
        if let Some(nodes) = nodes {
            let patch = json!({
                "metadata": {"resourceVersion": plan.resource_version()},
                "spec": {"nodeUpgradeOption": {"pauseNodes": nodes}},
            });
            match plans.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 && attempt < TRIES => continue,
                Err(error) => return Err(refused("change the UpgradePlan", error)),
            }
        }
        say(&format!("upgradeplan {name}: {line}"))?;
        break;
    }
    Ok(ExitCode::SUCCESS)
}

fn listed(plan: &UpgradePlan) -> Vec<String> {
    let option = plan.spec.node_upgrade_option.as_ref();
    option.and_then(|option| option.pause_nodes.clone()).unwrap_or_default()
}

fn paused_also(plan: &UpgradePlan, nodes: &[String]) -> anyhow::Result<Change> {
    if has_ended(plan) {
        bail!(
            "upgradeplan {} has ended ({}): it upgrades no node any more",
            plan.name_any(),
            phase_of(plan)
        );
    }
    let mut all = listed(plan);
    let (mut added, mut started, mut known) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for node in nodes.iter().filter(|node| seen.insert(*node)) {
        if has_started(plan, node) {
            started.push(node.as_str());
        } else if all.contains(node) {
            known.push(node.as_str());
        } else {
            added.push(node.as_str());
            all.push(node.clone());
        }
    }
    if !started.is_empty() {
        bail!(
            "the upgrade of {} has started and cannot be paused; nothing was changed",
            started.join(", ")
        );
    }
    let mut line = Vec::new();
    if !added.is_empty() {
        line.push(format!("{} paused before the upgrade", added.join(", ")));
    }
    if !known.is_empty() {
        line.push(format!("{} paused already", known.join(", ")));
    }
    Ok(Change {
        nodes: (!added.is_empty()).then_some(all),
        line: line.join("; "),
    })
}

/// The list without these nodes, or without any.
fn still_paused(plan: &UpgradePlan, nodes: Option<&[String]>) -> anyhow::Result<Change> {
    let all = listed(plan);
    let Some(nodes) = nodes else {
        let line = match all.as_slice() {
            [] => "no node is paused".to_owned(),
            names => format!("{} resumed", names.join(", ")),
        };
        return Ok(Change {
            nodes: (!all.is_empty()).then(Vec::new),
            line,
        });
    };
    if let Some(unknown) = nodes.iter().find(|node| !all.contains(node)) {
        let names = if all.is_empty() {
            "none".to_owned()
        } else {
            all.join(", ")
        };
        bail!(
            "{} is not paused by upgradeplan {}; paused nodes: {names}",
            api::quoted::quoted(unknown),
            plan.name_any()
        );
    }
    let left = all.into_iter().filter(|node| !nodes.contains(node)).collect();
    Ok(Change {
        nodes: Some(left),
        line: format!("{} resumed", nodes.join(", ")),
    })
}

/// The upgrade of the node has begun: it is not only prepared or paused.
fn has_started(plan: &UpgradePlan, node: &str) -> bool {
    let status = plan.status.as_ref();
    let node = status.and_then(|status| status.node_upgrade_statuses.get(node));
    let state = node.and_then(|node| node.state()).and_then(NodeState::parse);
    state.is_some_and(|state| {
        !matches!(
            state,
            NodeState::ImagePreloading
                | NodeState::ImagePreloaded
                | NodeState::ImagePreloadFailed
                | NodeState::UpgradePaused
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "json! makes values")]
    fn plan(paused: Value, phase: &str) -> UpgradePlan {
        serde_json::from_value(json!({
            "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan", "metadata": {"name": "up"},
            "spec": {"nodeUpgradeOption": {"pauseNodes": paused}},
            "status": {"currentPhase": phase, "nodeUpgradeStatuses": {
                "node-1": {"state": "PostDraining"}, "node-2": {"state": "ImagePreloaded"}, "node-3": {"state": "UpgradePaused"},
            }},
        }))
        .unwrap()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn nodes_are_added_once_and_a_node_that_has_started_is_refused() {
        let running = plan(json!(["node-3"]), "NodeUpgrading");
        let change = paused_also(&running, &names(&["node-2", "node-3", "node-2"])).unwrap();
        assert_eq!(change.nodes, Some(names(&["node-3", "node-2"])));
        assert_eq!(change.line, "node-2 paused before the upgrade; node-3 paused already");
        assert_eq!(paused_also(&running, &names(&["node-3"])).unwrap().nodes, None);
        let refused = paused_also(&running, &names(&["node-1", "node-2"]))
            .err()
            .unwrap()
            .to_string();
        assert!(refused.starts_with("the upgrade of node-1 has started"), "{refused}");
        assert!(paused_also(&plan(json!([]), "Succeeded"), &names(&["node-2"])).is_err());
    }

    #[test]
    fn nodes_are_removed_and_one_that_is_not_paused_is_refused() {
        let running = plan(json!(["node-2", "node-3"]), "NodeUpgrading");
        let change = still_paused(&running, Some(&names(&["node-3"]))).unwrap();
        assert_eq!(
            (change.nodes, change.line.as_str()),
            (Some(names(&["node-2"])), "node-3 resumed")
        );
        let all = still_paused(&running, None).unwrap();
        assert_eq!((all.nodes, all.line.as_str()), (Some(vec![]), "node-2, node-3 resumed"));
        let refused = still_paused(&running, Some(&names(&["node-1"])))
            .err()
            .unwrap()
            .to_string();
        assert_eq!(
            refused,
            "\"node-1\" is not paused by upgradeplan up; paused nodes: node-2, node-3"
        );
    }
}
