//! The agent on each machine that applies its plan: it installs RKE2 and restarts it. It touches neither what is on the
//! disk's other partition, nor does it reboot.

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use serde_json::json;

use super::{
    machine_plan::{MachinePlan, REACHED},
    per_key,
};
use crate::{
    context::Context,
    error::Result,
    inbox::{Key, Kind},
};

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.machine_plans.subscribe(&inbox);
    per_key::work("system agent", &inbox, |(kind, key)| {
        let (world, key) = (world.clone(), key.clone());
        (*kind == Kind::Secret).then(|| async move { apply(&world, &key).await }.boxed())
    })
    .await;
}

async fn apply(world: &Context, key: &Key) -> Result<()> {
    let look = || {
        world
            .machine_plans
            .at(key)
            .and_then(|secret| MachinePlan::of(world, &secret))
    };
    let Some(plan) = look().filter(|plan| !plan.is_in_sync()) else {
        return Ok(());
    };
    let inbox = world.inbox();
    world.nodes.subscribe(&inbox);
    let gone_or_up = |world: &Context| world.nodes.get("", &plan.node).is_none() || world.is_up(&plan.node);
    world.until(&inbox, gone_or_up).await;
    // What all machines share is done with the first of them.
    let is_first = MachinePlan::all(world).iter().all(|other| other.reached != plan.plan);
    let extra = if is_first {
        world.durations.first_node
    } else {
        Duration::ZERO
    };
    world.clock.sleep(world.durations.rke2 + extra).await;
    let late = world.troubles().late_kubelets.get(&plan.node).copied();
    // A late kubelet: the plan counts as applied while RKE2 is still on its way.
    if late.is_none() {
        restart(world, &plan).await?;
    }
    // As Rancher compares them: what was applied is what was wanted.
    let data = world.machine_plans.at(key).and_then(|secret| secret.data.clone());
    let content = data.and_then(|data| data.get("plan").cloned());
    let reached = json!({"metadata": {"annotations": {REACHED: plan.plan}}, "data": {"appliedPlan": content}});
    world.machine_plans.patch(key, &reached).await?;
    if let Some(late) = late {
        world.clock.sleep(late).await;
        restart(world, &plan).await?;
    }
    Ok(())
}

/// RKE2 restarts with the version that the plan is for. A kubelet reports it without the `-rc` of a candidate.
async fn restart(world: &Context, plan: &MachinePlan) -> Result<()> {
    let version = plan.plan.split_once('/').map_or("", |(_, version)| version);
    let version = node::rke2_steps::kubelet_version(version);
    if let Some(restart) = world.rke2_restart() {
        return Ok(restart(plan.node.clone(), version.to_owned()).await?);
    }
    let key = (String::new(), plan.node.clone());
    let status = json!({"nodeInfo": {"kubeletVersion": version, "kubeProxyVersion": version}});
    world.nodes.patch_status(&key, &status).await.map(drop)
}
