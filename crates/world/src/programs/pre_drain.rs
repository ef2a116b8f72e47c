//! Before a node is drained: wait until the volumes that concern it are whole, stop the VMs that cannot migrate, make
//! KubeVirt move the others, and wait until all have left. What is waited for, and what is done about a VM that does not
//! leave, is decided by the rules of the real program.

use api::{ProgramWait, annotations};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use node::{
    limits::Limits,
    pre_drain,
    vm::{Hypervisor, VmName, restore_list},
};
use program::{
    Result,
    progress::Left,
    report::{Look, Reporter, Waiting},
    step::StepContext,
};
use rules::{
    drain_taint,
    evacuation::{self, Act, Evacuation, MIGRATION_JOB_LABEL},
    longhorn_health::{self, Storage},
};

use crate::{
    actor::kubelet::started,
    context::{label, node_of},
    inbox::Key,
};

use super::{
    Call, host,
    kubevirt::SimulatedKubeVirt,
    walk::{Line, walk},
};

pub(super) const LINES: &[Line] = &[
    ("wait-for-volumes", |call, ctx| {
        wait_for_volumes(call, ctx, longhorn_health::before_evacuation).boxed()
    }),
    ("stop-immovable-vms", |call, ctx| call.stop_immovable_vms(ctx).boxed()),
    ("taint-node", |call, _| call.set_taint(true).boxed()),
    ("wait-for-vms", |call, ctx| evacuate(call, ctx).boxed()),
    ("wait-for-evacuation-budgets", |call, ctx| {
        wait_for_budgets(call, ctx).boxed()
    }),
    ("keep-last-copies", |call, ctx| {
        wait_for_volumes(call, ctx, longhorn_health::after_evacuation).boxed()
    }),
    ("choose-ingress", |call, _| {
        call.take(call.world.durations.pre_drain).map(Ok).boxed()
    }),
];

pub(super) async fn run(call: &Call, report: &Reporter) -> Result<()> {
    walk(
        call,
        &pre_drain::steps(&Limits::default()),
        &[LINES, host::LINES],
        report,
    )
    .await
}

async fn wait_for_volumes(call: &Call, ctx: StepContext<'_>, rule: fn(&Storage<'_>) -> Vec<Waiting>) -> Result<()> {
    let world = &call.world;
    let inbox = world.inbox();
    world.volumes.subscribe(&inbox);
    world.engines.subscribe(&inbox);
    world.nodes.subscribe(&inbox);
    world.pods.subscribe(&inbox);
    let mut left = Left::new(ProgramWait::VolumesLeft, format!("Node {}", call.node));
    let look = || {
        let plan = world.upgrade_plans.get("", &call.plan);
        let annotations = plan.as_ref().and_then(|plan| plan.metadata.annotations.as_ref());
        let skipped = annotations.and_then(|known| known.get(annotations::SKIP_VOLUMES));
        let waiting = rule(&Storage {
            node: &call.node,
            nodes: longhorn_health::storage_nodes(world.nodes.list().iter().map(AsRef::as_ref)),
            volumes: &world.volumes.list(),
            engines: &world.engines.list(),
            replicas: &world.replicas.list(),
            skipped: &longhorn_health::skipped(skipped.map(String::as_str)),
            cordoned: &longhorn_health::cordoned(world.nodes.list().iter().map(AsRef::as_ref)),
            claims: &longhorn_health::claims_in_use(world.pods.list().iter().map(AsRef::as_ref)),
            always_allowed: false,
        });
        left.sees(ctx, waiting.len());
        Look::of(longhorn_health::summed_up(&call.node, waiting))
    };
    ctx.until(inbox.bell(), look).await
}

/// Waits until no instance is left on the node, and deals with those that do not leave.
async fn evacuate(call: &Call, ctx: StepContext<'_>) -> Result<()> {
    let world = &call.world;
    let inbox = world.inbox();
    world.vmis.subscribe(&inbox);
    world.migrations.subscribe(&inbox);
    world.nodes.subscribe(&inbox);
    world.upgrade_plans.subscribe(&inbox);
    let targets = || {
        let is_target = |pod: &Pod| label(&pod.metadata, MIGRATION_JOB_LABEL).is_some() && node_of(pod).is_empty();
        world.pods.select(is_target)
    };
    let look = || {
        let plan = world.upgrade_plans.get("", &call.plan);
        let policy = plan.as_ref().and_then(|plan| plan.spec.on_migration_failure);
        Some(evacuation::decide(&Evacuation {
            now: world.clock.now(),
            plan: &call.plan,
            node: &call.node,
            policy: policy.unwrap_or_default(),
            began: Some(started(&call.pod)),
            instances: &world.vmis.list(),
            migrations: &world.migrations.list(),
            target_pods: &targets(),
            tainted: world
                .nodes
                .get("", &call.node)
                .is_none_or(|node| drain_taint::patch(&node, true).is_none()),
        }))
    };
    let act = |act: Act| async move { carry_out(call, &act).await }.boxed();
    node::attend::attend(&call.node, ctx, inbox.bell(), look, act).await
}

async fn carry_out(call: &Call, act: &Act) -> Result<()> {
    let world = &call.world;
    match act {
        Act::Retry {
            namespace,
            name,
            number,
            migrations,
        } => {
            let noted = evacuation::retry_note(&call.plan, *number);
            let key: Key = (namespace.clone(), name.clone());
            world.vmis.patch_as(&call.client, &key, &noted).await?;
            for migration in migrations {
                let key: Key = (namespace.clone(), migration.clone());
                world.migrations.delete_as(&call.client, &key).await?;
            }
            Ok(())
        }
        Act::Stop {
            namespace,
            name,
            restore,
            why: _,
        } => {
            let vm = VmName {
                namespace: namespace.clone(),
                name: name.clone(),
            };
            if *restore {
                restore_list::add(&call.client, &call.plan, &call.node, std::slice::from_ref(&vm)).await?;
            }
            SimulatedKubeVirt(call.clone()).stop(&vm).await
        }
        Act::Taint => call.set_taint(true).await,
    }
}

async fn wait_for_budgets(call: &Call, ctx: StepContext<'_>) -> Result<()> {
    let world = &call.world;
    let inbox = world.inbox();
    world.budgets.subscribe(&inbox);
    world.migrations.subscribe(&inbox);
    let look = || {
        let (budgets, migrations) = (world.budgets.list(), world.migrations.list());
        Look::of(evacuation::budgets(
            &call.node,
            &budgets,
            &migrations,
            &world.vmis.list(),
        ))
    };
    ctx.until(inbox.bell(), look).await
}
