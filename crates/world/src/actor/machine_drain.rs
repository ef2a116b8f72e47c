//! Rancher's drain controller: it looks at one machine-plan Secret whenever that changes. A machine that is to be drained
//! is cordoned, then its pre-drain hook is set, and once that is answered its pods are evicted. When the drain of a
//! machine ends, its post-drain hook is set, and once that is answered it is uncordoned and everything about the drain is
//! removed, answers too. Until then hook and answer stay.

use std::sync::Arc;

use api::{annotations, names};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};

use super::{
    drain::drain,
    machine_plan::{DRAIN, DRAIN_DONE, MachinePlan, UNCORDON, hooks},
    per_key,
};
use crate::{
    context::{Context, after, annotation},
    error::Result,
    inbox::{Key, Kind},
};

pub(crate) async fn run(world: Arc<Context>) {
    let inbox = world.inbox();
    world.machine_plans.subscribe(&inbox);
    per_key::work("machine drain", &inbox, |(kind, key)| {
        let (world, key) = (world.clone(), key.clone());
        (*kind == Kind::Secret).then(|| async move { while_it_is_there(&world, &key).await }.boxed())
    })
    .await;
}

/// A machine that is removed in the meantime needs no further steps.
async fn while_it_is_there(world: &Context, key: &Key) -> Result<()> {
    let look = || {
        world
            .machine_plans
            .at(key)
            .and_then(|secret| MachinePlan::of(world, &secret))
    };
    let Some(plan) = look() else { return Ok(()) };
    let inbox = world.inbox();
    world.machines.subscribe(&inbox);
    let is_removed = |world: &Context| world.machines.get(names::FLEET_NAMESPACE, &plan.machine).is_none();
    tokio::select! {
        biased;
        () = world.until(&inbox, is_removed) => Ok(()),
        done = on_change(world, &plan) => done,
    }
}

async fn on_change(world: &Context, plan: &MachinePlan) -> Result<()> {
    if !plan.drain.is_empty() && plan.drain_done != plan.drain {
        drain_machine(world, plan).await
    } else if !plan.uncordon.is_empty() {
        uncordon_machine(world, plan).await
    } else {
        Ok(())
    }
}

async fn drain_machine(world: &Context, plan: &MachinePlan) -> Result<()> {
    cordon(world, &plan.node, true).await?;
    let wanted = hooks(&plan.drain, "preDrainHooks");
    if !wanted.is_empty() {
        if plan.pre_drain != plan.drain {
            return annotate(world, &plan.secret, annotations::RKE_PRE_DRAIN, &plan.drain).await;
        }
        if !is_answered(world, plan, &wanted) {
            return Ok(());
        }
    }
    let options: Value = serde_json::from_str(&plan.drain).unwrap_or_default();
    if options["enabled"] == true {
        let began = world.clock.now();
        drain(world, &plan.node).await?;
        world.clock.sleep_until(after(began, world.durations.drain)).await;
    }
    // With changed options this is the end of an older drain, and the new one begins.
    if is_answered(world, plan, &wanted) {
        annotate(world, &plan.secret, DRAIN_DONE, &plan.drain).await?;
    }
    Ok(())
}

async fn uncordon_machine(world: &Context, plan: &MachinePlan) -> Result<()> {
    let wanted = hooks(&plan.drain, "postDrainHooks");
    if !wanted.is_empty() {
        if plan.post_drain != plan.drain {
            return annotate(world, &plan.secret, annotations::RKE_POST_DRAIN, &plan.drain).await;
        }
        if !is_answered(world, plan, &wanted) {
            return Ok(());
        }
    }
    world.clock.sleep(world.durations.uncordon).await;
    cordon(world, &plan.node, false).await?;
    if !is_answered(world, plan, &wanted) {
        return Ok(());
    }
    let ours = [
        annotations::RKE_PRE_DRAIN,
        annotations::RKE_POST_DRAIN,
        DRAIN,
        DRAIN_DONE,
        UNCORDON,
    ];
    let answers = hooks(&plan.drain, "preDrainHooks").into_iter().chain(wanted);
    let gone: Map<String, Value> = ours
        .into_iter()
        .map(str::to_owned)
        .chain(answers)
        .map(|key| (key, Value::Null))
        .collect();
    let patch = json!({"metadata": {"annotations": gone}});
    world.machine_plans.patch(&plan.secret, &patch).await.map(drop)
}

/// Every hook was answered with exactly these options.
fn is_answered(world: &Context, plan: &MachinePlan, hooks: &[String]) -> bool {
    let secret = world.machine_plans.at(&plan.secret);
    let answer = |hook: &String| secret.as_ref().and_then(|secret| annotation(&secret.metadata, hook));
    hooks.iter().all(|hook| answer(hook) == Some(plan.drain.as_str()))
}

async fn annotate(world: &Context, secret: &Key, key: &str, value: &str) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {key: value}}});
    world.machine_plans.patch(secret, &patch).await.map(drop)
}

async fn cordon(world: &Context, node: &str, cordoned: bool) -> Result<()> {
    let key = (String::new(), node.to_owned());
    let is = |node: &Node| {
        let spec = node.spec.as_ref();
        spec.and_then(|spec| spec.unschedulable).unwrap_or_default()
    };
    if world.nodes.at(&key).is_none_or(|node| is(&node) == cordoned) {
        return Ok(());
    }
    let value = if cordoned { json!(true) } else { Value::Null };
    let patch = json!({"spec": {"unschedulable": value}});
    world.nodes.patch(&key, &patch).await.map(drop)
}
