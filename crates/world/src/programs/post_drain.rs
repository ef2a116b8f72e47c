//! After a node was drained and RKE2 upgraded: take the drain taint away and install the operating system. The node
//! reboots once the pod has ended.

use std::time::Duration;

use api::names;
use futures::FutureExt;
use node::{limits::Limits, post_drain, rke2_steps};
use program::{
    Result,
    report::{Look, Reporter},
    step::StepContext,
};
use serde_json::json;

use crate::{
    actor::{
        kubelet::attempt,
        reboot::{ON_DISK, go_down, installed_by},
    },
    context::annotation,
    troubles::RebootTrouble,
};

use super::{
    Call, host,
    walk::{Line, walk},
};

pub(super) const LINES: &[Line] = &[
    ("wait-for-repository", |call, ctx| {
        wait_for_repository(call, ctx).boxed()
    }),
    ("wait-for-rke2", |call, ctx| wait_for_rke2(call, ctx).boxed()),
    ("remove-drain-taint", |call, _| call.set_taint(false).boxed()),
    ("install-os", |call, _| {
        async {
            if call.runs_new_system()? {
                return Ok(());
            }
            lose_power(call, call.world.durations.post_drain).await?;
            call.take(call.world.durations.post_drain).await;
            install(call).await
        }
        .boxed()
    }),
];

pub(super) async fn run(call: &Call, report: &Reporter) -> Result<()> {
    walk(
        call,
        &post_drain::steps(&Limits::default()),
        &[LINES, host::LINES],
        report,
    )
    .await
}

/// Waits until the repository is served, and reads what it says about the release.
pub(super) async fn wait_for_repository(call: &Call, ctx: StepContext<'_>) -> Result<()> {
    let world = &call.world;
    let inbox = world.inbox();
    world.deployments.subscribe(&inbox);
    let name = names::repo(&call.plan);
    let look = || {
        let deployment = world.deployments.get(names::HARVESTER_NAMESPACE, &name);
        Look::of(rke2_steps::unavailable(deployment.as_deref(), &name))
    };
    ctx.until(inbox.bell(), look).await?;
    call.release().map(drop)
}

/// Waits until the node runs the kubelet of the new release.
pub(super) async fn wait_for_rke2(call: &Call, ctx: StepContext<'_>) -> Result<()> {
    let wanted = rke2_steps::kubelet_version(&call.release()?.0.kubernetes);
    let inbox = call.world.inbox();
    call.world.nodes.subscribe(&inbox);
    let look = || rke2_steps::rke2_runs(&call.node, call.world.nodes.get("", &call.node).as_deref(), &wanted);
    ctx.until(inbox.bell(), look).await
}

impl Call {
    /// The node runs the operating system of the release already: there is nothing to install.
    pub(super) fn runs_new_system(&self) -> Result<bool> {
        let node = self.world.nodes.get("", &self.node);
        let info = node.as_ref().and_then(|node| node.status.as_ref()?.node_info.as_ref());
        let os = &self.release()?.0.os;
        Ok(info.is_some_and(|info| info.os_image == *os))
    }

    /// Gives the node the taint that makes KubeVirt move VMs away, or takes it away.
    pub(super) async fn set_taint(&self, draining: bool) -> Result<()> {
        let key = (String::new(), self.node.clone());
        let node = self.world.nodes.at(&key);
        if let Some(patch) = node.and_then(|node| rules::drain_taint::patch(&node, draining)) {
            self.world.nodes.patch_as(&self.client, &key, &patch).await?;
        }
        Ok(())
    }
}

/// Cuts the node's power halfway through the installation of a Job's first pod, if that failure is configured. The pod does
/// not come back.
pub(super) async fn lose_power(call: &Call, installation: Duration) -> Result<()> {
    let world = &call.world;
    let trouble = world.troubles().reboots.get(&call.node).copied();
    if trouble != Some(RebootTrouble::DuringInstallation) || attempt(world, &call.pod) > 0 {
        return Ok(());
    }
    call.take(installation / 2).await;
    if let Some(node) = world.nodes.get("", &call.node) {
        go_down(world, &node).await?;
    }
    std::future::pending().await
}

/// Puts the new operating system on the node's disk.
pub(super) async fn install(call: &Call) -> Result<()> {
    let key = (String::new(), call.node.clone());
    let system = &call.release()?.0.os;
    let Some(node) = call.world.nodes.at(&key) else {
        return Ok(());
    };
    let wanted = installed_by(&node, system);
    if annotation(&node.metadata, ON_DISK) == Some(&wanted) {
        return Ok(());
    }
    let patch = json!({"metadata": {"annotations": {ON_DISK: wanted}}});
    call.world.nodes.patch(&key, &patch).await?;
    Ok(())
}
