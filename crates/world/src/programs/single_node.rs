//! The upgrade of a cluster of one node: stop all VMs, let Rancher upgrade RKE2, install the operating system. The node
//! reboots once the pod has ended.

use api::names;
use futures::FutureExt;
use node::{limits::Limits, rke2_steps, single_node};
use program::{
    Result,
    report::{Look, Reporter},
    step::StepContext,
};
use rules::evacuation;

use super::{
    Call, host,
    post_drain::{install, lose_power, wait_for_repository, wait_for_rke2},
    walk::{Line, UNSEEN, walk},
};

pub(super) const LINES: &[Line] = &[
    ("wait-for-repository", |call, ctx| {
        wait_for_repository(call, ctx).boxed()
    }),
    ("stop-vms", |call, ctx| call.stop_immovable_vms(ctx).boxed()),
    ("wait-for-vms", |call, ctx| wait_until_empty(call, ctx).boxed()),
    ("wait-for-fleet", |call, ctx| {
        rke2_steps::wait_for_fleet(&call.client, ctx).boxed()
    }),
    ("choose-ingress", UNSEEN),
    ("start-rke2-upgrade", |call, _| start_rke2_upgrade(call).boxed()),
    ("wait-for-rke2", |call, ctx| wait_for_rke2(call, ctx).boxed()),
    ("install-os", |call, _| {
        async {
            if call.runs_new_system()? {
                return Ok(());
            }
            lose_power(call, call.world.durations.single_node).await?;
            call.take(call.world.durations.single_node).await;
            install(call).await
        }
        .boxed()
    }),
];

pub(super) async fn run(call: &Call, report: &Reporter) -> Result<()> {
    walk(
        call,
        &single_node::steps(&Limits::default()),
        &[LINES, host::LINES],
        report,
    )
    .await
}

/// Waits until no instance is left on a node that they cannot leave for another one.
async fn wait_until_empty(call: &Call, ctx: StepContext<'_>) -> Result<()> {
    let inbox = call.world.inbox();
    call.world.vmis.subscribe(&inbox);
    let look = || Look::of(evacuation::remaining(&call.node, &call.world.vmis.list()));
    ctx.until(inbox.bell(), look).await
}

async fn start_rke2_upgrade(call: &Call) -> Result<()> {
    let wanted = &call.release()?.0.kubernetes;
    let key = (names::FLEET_NAMESPACE.to_owned(), names::LOCAL_CLUSTER.to_owned());
    let cluster = call.world.clusters.at(&key);
    if let Some(patch) = cluster.and_then(|cluster| rke2_steps::rke2_upgrade(&cluster, wanted)) {
        call.world.clusters.patch_as(&call.client, &key, &patch).await?;
    }
    Ok(())
}
