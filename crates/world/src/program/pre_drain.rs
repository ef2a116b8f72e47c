//! Before a node is drained: wait until the volumes that concern it are whole, stop the VMs that cannot migrate, make
//! KubeVirt move the others, and wait until all have left. What is waited for, and what is done about a VM that does not
//! leave, is decided by the rules of the real program.

use api::annotations;
use k8s_openapi::api::core::v1::Taint;
use node::{
    evacuation::{self, Act, Evacuation},
    limits::Limits,
    longhorn_health::{self, Storage},
    report::Waiting,
};
use serde_json::json;

use crate::{
    actor::kubelet::started,
    context::Context,
    error::Result,
    inbox::{Inbox, Key},
};

use super::{Call, DRAIN_TAINT, detector};

pub(super) async fn run(call: &Call<'_>) -> Result<()> {
    let limits = Limits::default();
    wait_for_volumes(call, &limits, longhorn_health::before_evacuation).await;
    detector::run(call).await?;
    taint(call).await?;
    evacuate(call, &limits).await?;
    wait_for_budgets(call, &limits).await;
    wait_for_volumes(call, &limits, longhorn_health::after_evacuation).await;
    call.take(call.world.durations.pre_drain).await;
    Ok(())
}

async fn wait_for_volumes(call: &Call<'_>, limits: &Limits, rule: fn(&Storage<'_>) -> Vec<Waiting>) {
    let inbox = call.world.inbox();
    call.world.volumes.subscribe(&inbox);
    call.world.engines.subscribe(&inbox);
    let look = |world: &Context| {
        let plan = world.upgrade_plans.get("", call.plan);
        let annotations = plan.as_ref().and_then(|plan| plan.metadata.annotations.as_ref());
        let skipped = annotations.and_then(|known| known.get(annotations::SKIP_VOLUMES));
        rule(&Storage {
            node: call.node,
            nodes: longhorn_health::storage_nodes(world.nodes.list().iter().map(AsRef::as_ref)),
            volumes: &world.volumes.list(),
            engines: &world.engines.list(),
            replicas: &world.replicas.list(),
            skipped: &longhorn_health::skipped(skipped.map(String::as_str)),
        })
    };
    call.wait(&inbox, limits.volumes, look).await;
}

async fn taint(call: &Call<'_>) -> Result<()> {
    let key = (String::new(), call.node.to_owned());
    let Some(node) = call.world.nodes.at(&key) else {
        return Ok(());
    };
    let mut taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    if taints.iter().any(|taint| taint.key == DRAIN_TAINT) {
        return Ok(());
    }
    taints.push(Taint {
        key: DRAIN_TAINT.to_owned(),
        value: Some("draining".to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    });
    call.world
        .nodes
        .patch(&key, &json!({"spec": {"taints": taints}}))
        .await
        .map(drop)
}

/// Waits until no instance is left on the node, and deals with those that do not leave.
async fn evacuate(call: &Call<'_>, limits: &Limits) -> Result<()> {
    let world = call.world;
    let inbox = world.inbox();
    world.vmis.subscribe(&inbox);
    world.migrations.subscribe(&inbox);
    let report = call.report();
    let deadline = call.deadline(limits.vms);
    let mut done: Vec<Act> = Vec::new();
    loop {
        let plan = world.upgrade_plans.get("", call.plan);
        let policy = plan.as_ref().and_then(|plan| plan.spec.on_migration_failure);
        let decision = evacuation::decide(&Evacuation {
            now: world.clock.now(),
            plan: call.plan,
            node: call.node,
            policy: policy.unwrap_or_default(),
            began: Some(started(call.pod)),
            instances: &world.vmis.list(),
            migrations: &world.migrations.list(),
            target_pods: &[],
        });
        report.waiting(&decision.waiting, Some(deadline)).await;
        if decision.waiting.is_empty() {
            return Ok(());
        }
        for act in decision.acts {
            if !done.contains(&act) {
                carry_out(call, &act).await?;
                done.push(act);
            }
        }
        tokio::select! {
            biased;
            () = inbox.changed() => {}
            () = at(world, decision.look_again) => {}
        }
    }
}

async fn at(world: &Context, moment: Option<jiff::Timestamp>) {
    match moment {
        Some(moment) => world.clock.sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn carry_out(call: &Call<'_>, act: &Act) -> Result<()> {
    let world = call.world;
    match act {
        Act::Retry {
            namespace,
            name,
            number,
            migrations,
        } => {
            let noted = json!({"metadata": {"annotations": {
                annotations::EVACUATION_RETRIES: format!("{}={number}", call.plan)}}});
            world.vmis.patch(&(namespace.clone(), name.clone()), &noted).await?;
            for migration in migrations {
                let key: Key = (namespace.clone(), migration.clone());
                world.migrations.delete(&key, true).await?;
            }
            Ok(())
        }
        Act::Stop {
            namespace,
            name,
            restore,
            why: _,
        } => {
            let key: Key = (namespace.clone(), name.clone());
            let plan = world.upgrade_plans.get("", call.plan);
            if let (true, Some(plan), Some(vmi)) = (*restore, plan, world.vmis.at(&key)) {
                detector::remember(call, &plan, &[vmi]).await?;
            }
            let halted = json!({"spec": {"runStrategy": "Halted"}});
            world.vms.patch(&key, &halted).await.map(drop)
        }
    }
}

async fn wait_for_budgets(call: &Call<'_>, limits: &Limits) {
    let inbox = call.world.inbox();
    call.world.budgets.subscribe(&inbox);
    call.world.migrations.subscribe(&inbox);
    let look = |world: &Context| {
        let (budgets, migrations) = (world.budgets.list(), world.migrations.list());
        evacuation::budgets(call.node, &budgets, &migrations, &world.vmis.list())
    };
    call.wait(&inbox, limits.budgets, look).await;
}

/// Waits until no instance is left on a node that they cannot leave for another one.
pub(super) async fn wait_until_empty(call: &Call<'_>) {
    let inbox: Inbox = call.world.inbox();
    call.world.vmis.subscribe(&inbox);
    let look = |world: &Context| evacuation::remaining(call.node, &world.vmis.list());
    call.wait(&inbox, Limits::default().vms, look).await;
}
