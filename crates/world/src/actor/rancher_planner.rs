//! Rancher's planner for `fleet-local/local`: when the Kubernetes version or the provisioning generation moves, every
//! machine gets a new plan, tier after tier: the machine that the cluster began with, the other members of etcd, the rest
//! of the control plane, workers. A tier is gone through by the names of its machines, as many at once as its limit says.
//! Each machine is drained first (`machine_drain.rs`), then its agent applies the plan (`system_agent.rs`), then it is let
//! go. The cluster is read again on every pass.
//!
//! Everything is on the machine-plan Secrets, so a planner that restarts continues where the last one stopped.

use std::{sync::Arc, time::Duration};

use api::{foreign::rancher::Cluster, names};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    machine_plan::{DRAIN, MachinePlan, PLAN, UNCORDON},
    tier::{Tier, limit},
};
use crate::{
    context::{Context, after},
    error::Result,
    inbox::Key,
};

/// Pause before what failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// How long the planner waits before it looks at failing probes again.
const PROBE_PERIOD: Duration = Duration::from_secs(30);

fn has_failing_probes(world: &Context) -> bool {
    // Most of the time no probe fails, and there are as many machines as nodes.
    !world.troubles().unhealthy_machines.is_empty() && MachinePlan::all(world).iter().any(|plan| !plan.healthy)
}

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.clusters.subscribe(&inbox);
    world.capi_clusters.subscribe(&inbox);
    world.machine_plans.subscribe(&inbox);
    world.machines.subscribe(&inbox);
    world.nodes.subscribe(&inbox);
    loop {
        match pass(&world).await {
            // Probes are repeated.
            Ok(()) if has_failing_probes(&world) => {
                let asked_again = world.clock.sleep(PROBE_PERIOD);
                tokio::select! {
                    biased;
                    () = inbox.changed() => {}
                    () = asked_again => {}
                }
            }
            Ok(()) => inbox.changed().await,
            Err(error) => {
                tracing::debug!(%error, "the planner failed; trying again");
                world.clock.sleep(PAUSE).await;
            }
        }
    }
}

fn cluster_key() -> Key {
    (names::FLEET_NAMESPACE.to_owned(), names::LOCAL_CLUSTER.to_owned())
}

/// What a plan is for: generation and version.
fn target(cluster: &Cluster) -> (String, String) {
    let version = cluster.spec.kubernetes_version.clone().unwrap_or_default();
    let config = cluster.spec.rke_config.as_ref();
    let generation = config.and_then(|config| config.provision_generation).unwrap_or(0);
    (format!("{generation}/{version}"), version)
}

/// Takes every machine one step further, as far as its tier has its turn.
async fn pass(world: &Context) -> Result<()> {
    let Some(cluster) = world.clusters.at(&cluster_key()) else {
        return Ok(());
    };
    // What is paused in Cluster API is left alone; drains that have begun are not the planner's.
    let capi = world.capi_clusters.at(&cluster_key());
    if capi.is_some_and(|cluster| cluster.spec.paused == Some(true)) {
        return Ok(());
    }
    let (wanted, _) = target(&cluster);
    let all = MachinePlan::all(world);
    let untouched = |plan: &MachinePlan| plan.plan != wanted && !plan.is_in_drain();
    if all.len() > 1 && all.iter().all(untouched) {
        report(world, Some("configuring bootstrap node(s)")).await?;
        let since = world
            .clusters
            .at(&cluster_key())
            .and_then(|cluster| unready_since(&cluster));
        let due = after(since.unwrap_or(Timestamp::MIN), world.durations.rancher_wait);
        world.clock.sleep_until(due).await;
    }
    // As it is now: concurrent changes of the cluster count for the next step.
    let Some(cluster) = world.clusters.at(&cluster_key()) else {
        return Ok(());
    };
    for tier in Tier::ALL {
        if let Some(message) = reconcile(world, &cluster, tier).await? {
            return report(world, Some(&message)).await;
        }
    }
    report(world, None).await
}

/// Goes through the machines of a tier. Says what it waits for, unless all of them are as they should be.
async fn reconcile(world: &Context, cluster: &Cluster, tier: Tier) -> Result<Option<String>> {
    let (wanted, version) = target(cluster);
    let strategy = cluster
        .spec
        .rke_config
        .as_ref()
        .and_then(|config| config.upgrade_strategy.clone());
    let strategy = strategy.unwrap_or_default();
    let all = MachinePlan::all(world);
    let machines: Vec<&MachinePlan> = all.iter().filter(|plan| tier.has(plan)).collect();
    let limit = limit(tier.concurrency(&strategy), machines.len());
    let mut unavailable = machines.iter().filter(|plan| plan.is_unavailable(&wanted)).count();
    let (mut draining, mut configuring, mut uncordoning) = (Vec::new(), Vec::new(), Vec::new());
    for plan in machines {
        let name = plan.machine.as_str();
        if plan.plan != wanted {
            configuring.push((name, "waiting for its turn"));
            if !(plan.is_exempt() || limit == 0 || unavailable < limit) {
                continue;
            }
            if !plan.is_unavailable(&wanted) {
                unavailable += 1;
            }
            match drain_options(tier.drain_options(&strategy), all.len()) {
                Some(options) if plan.drain != options => {
                    annotate(world, plan, DRAIN, &options).await?;
                    draining.push((name, "draining node"));
                }
                Some(options) if plan.drain_done != options => draining.push((name, "draining node")),
                _ => write_plan(world, plan, &wanted).await?,
            }
        } else if !plan.is_in_sync() {
            configuring.push((name, "waiting for plan to be applied"));
        } else if !plan.healthy {
            configuring.push((name, "waiting for probes: kubelet"));
        } else if !plan.drain.is_empty() && plan.drain != plan.uncordon {
            annotate(world, plan, UNCORDON, &plan.drain).await?;
            uncordoning.push((name, "waiting for uncordon to finish"));
        } else if !plan.uncordon.is_empty() {
            uncordoning.push((name, "waiting for uncordon to finish"));
        } else if !runs(world, &plan.node, &version) {
            configuring.push((name, "waiting for kubelet to update"));
        }
    }
    let said = [
        ("uncordoning", uncordoning),
        ("draining", draining),
        ("configuring", configuring),
    ];
    let said = said.into_iter().find(|(_, machines)| !machines.is_empty());
    Ok(said.map(|(doing, machines)| format!("{doing} {} node(s) {}", tier.name(), listed(&machines))))
}

/// How Rancher names machines: three at most, and what one of them waits for only where there is one.
fn listed(machines: &[(&str, &str)]) -> String {
    let names: Vec<&str> = machines.iter().take(3).map(|(name, _)| *name).collect();
    let names = names.join(",");
    match machines {
        [(_, why)] => format!("{names}: {why}"),
        more if more.len() > 3 => format!("{names} and {} more", more.len() - 3),
        _ => names,
    }
}

/// The options of a drain in one text, always in the same order; nothing when there is neither a drain nor a hook. The
/// only machine of a cluster is not drained, but its hooks are set.
fn drain_options(options: &Value, machines: usize) -> Option<String> {
    let has = |field: &str| options[field].as_array().is_some_and(|hooks| !hooks.is_empty());
    let drains = options["enabled"] == true && machines > 1;
    if !drains && !has("preDrainHooks") && !has("postDrainHooks") {
        return None;
    }
    let mut options = options.clone();
    options["enabled"] = json!(drains);
    Some(options.to_string())
}

/// The node's kubelet has the version, as far as Rancher compares them: neither candidates nor builds differ.
fn runs(world: &Context, node: &str, version: &str) -> bool {
    let plain = |text: &str| text.split(['-', '+']).next().unwrap_or_default().to_owned();
    let node = world.nodes.get("", node);
    let info = node.as_ref().and_then(|node| node.status.as_ref()?.node_info.as_ref());
    info.is_none_or(|info| plain(&info.kubelet_version) == plain(version))
}

/// Gives the machine a plan. What is in it only differs by its target, and is a secret of Rancher's.
async fn write_plan(world: &Context, plan: &MachinePlan, target: &str) -> Result<()> {
    let content = names::digest(&format!("{}/{target}", plan.machine));
    let patch = json!({"metadata": {"annotations": {PLAN: target}}, "data": {"plan": content}});
    world.machine_plans.patch(&plan.secret, &patch).await.map(drop)
}

async fn annotate(world: &Context, plan: &MachinePlan, key: &str, value: &str) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {key: value}}});
    world.machine_plans.patch(&plan.secret, &patch).await.map(drop)
}

fn unready_since(cluster: &Cluster) -> Option<Timestamp> {
    let conditions = cluster.status.conditions.iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
    ready.other.get("lastTransitionTime")?.as_str()?.parse().ok()
}

/// What the cluster says about whether its machines are as wanted; nothing if that is unknown.
fn is_updated(cluster: &Cluster) -> Option<bool> {
    let mut conditions = cluster.status.conditions.iter().flatten();
    let updated = conditions.find(|condition| condition.type_ == "Updated")?;
    Some(updated.status.as_deref() == Some("True"))
}

/// Reports on the cluster what the planner waits for, or that it does not wait. An unchanged message is not written again.
async fn report(world: &Context, message: Option<&str>) -> Result<()> {
    let now = world.stamp();
    let ready = message.is_none();
    let message = message.unwrap_or_default();
    let cluster = world.clusters.at(&cluster_key());
    let said = |cluster: &Cluster| {
        let mut conditions = cluster.status.conditions.iter().flatten();
        let updated = conditions.find(|condition| condition.type_ == "Updated");
        updated.and_then(|updated| updated.message.clone()).unwrap_or_default()
    };
    let is_said = |cluster: &Arc<Cluster>| is_updated(cluster) == Some(ready) && said(cluster) == message;
    let was_never_unready = |cluster: &Arc<Cluster>| ready && is_updated(cluster) != Some(false);
    if cluster
        .as_ref()
        .is_none_or(|cluster| is_said(cluster) || was_never_unready(cluster))
    {
        return Ok(());
    }
    let (status, updated) = if ready { ("True", "True") } else { ("False", "Unknown") };
    // The time at which the cluster ceased to be ready stays while only the message moves.
    let since = cluster
        .filter(|cluster| is_updated(cluster) == Some(ready))
        .and_then(|cluster| unready_since(&cluster));
    let since = since.map_or_else(|| now.clone(), |since| since.to_string());
    let reason = if ready { "" } else { "Waiting" };
    let condition = |type_: &str, status: &str| {
        json!({"type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since, "lastUpdateTime": now})
    };
    let conditions = [condition("Ready", status), condition("Updated", updated)];
    // `status.ready` never goes back to false; only the conditions say that there is something left to do.
    let status = json!({"ready": true, "conditions": conditions});
    world.clusters.patch_status(&cluster_key(), &status).await.map(drop)
}
