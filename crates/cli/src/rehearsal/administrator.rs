//! The rehearsed administrator: resumes paused nodes some time after their turn has come. With `--serve`, the user does that.

use std::time::Duration;

use anyhow::{Context, bail};
use api::{NodeState, UpgradePlan};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::Rehearsal;

/// How long a node is paused after its turn has come.
const PAUSED_FOR: Duration = Duration::from_secs(30 * 60);
/// How often the administrator looks.
const LOOK: Duration = Duration::from_secs(10);

/// Resumes nodes for as long as it is polled.
pub async fn resume_nodes(rehearsal: &Rehearsal, name: &str, said: impl Fn(&str)) -> anyhow::Error {
    loop {
        let any_paused = |plan: &UpgradePlan| !paused(plan).is_empty();
        let Some(plan) = rehearsal.follow(name, None, any_paused).await else {
            continue;
        };
        let due: Vec<String> = match in_turn(rehearsal, &paused(&plan)).await {
            Ok(due) => due,
            Err(error) => return error,
        };
        if due.is_empty() {
            rehearsal.clock.sleep(LOOK).await;
            continue;
        }
        rehearsal.clock.sleep(PAUSED_FOR).await;
        if let Err(error) = resume(rehearsal, name, &due, &said).await {
            return error;
        }
    }
}

/// The nodes that the plan pauses. A resumed node keeps its state until its turn has come, with another reason.
fn paused(plan: &UpgradePlan) -> Vec<String> {
    let nodes = plan.status.iter().flat_map(|status| &status.node_upgrade_statuses);
    let paused = nodes.filter(|(_, node)| {
        node.is(NodeState::UpgradePaused) && node.reason.as_deref() == Some(api::reasons::ADMINISTRATIVELY_PAUSED)
    });
    paused.map(|(name, _)| name.clone()).collect()
}

/// Those of the nodes that would be upgraded now: Rancher has cordoned them. The only node of a cluster always would.
async fn in_turn(rehearsal: &Rehearsal, paused: &[String]) -> anyhow::Result<Vec<String>> {
    if rehearsal.shape.nodes == 1 {
        return Ok(paused.to_vec());
    }
    let nodes: Api<Node> = Api::all(rehearsal.server.client());
    let mut due = Vec::new();
    for name in paused {
        let node = nodes.get_opt(name).await.context("failed to read a node")?;
        if node.is_some_and(|node| node.spec.and_then(|spec| spec.unschedulable) == Some(true)) {
            due.push(name.clone());
        }
    }
    Ok(due)
}

async fn resume(rehearsal: &Rehearsal, name: &str, due: &[String], said: &impl Fn(&str)) -> anyhow::Result<()> {
    let plan = rehearsal.read(name).await?;
    let Some(names) = plan.spec.node_upgrade_option.and_then(|option| option.pause_nodes) else {
        bail!("nodes {} are paused although the plan pauses no node", due.join(", "))
    };
    let left: Vec<_> = names.into_iter().filter(|name| !due.contains(name)).collect();
    let plans: Api<UpgradePlan> = Api::all(rehearsal.server.client());
    let patch = json!({"spec": {"nodeUpgradeOption": {"pauseNodes": left}}});
    plans
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .context("failed to resume nodes")?;
    said(&format!("administrator resumes {}", due.join(", ")));
    let is_gone = |plan: &UpgradePlan| paused(plan).iter().all(|name| !due.contains(name));
    rehearsal.follow(name, None, is_gone).await;
    Ok(())
}
