//! `single-node-upgrade`: a cluster of one node has nowhere to move its VMs, so they are stopped and everything is done
//! in one go. `docs/node-steps.md` says what each step does.

use crate::{configure_steps, drain_steps, limits::Limits, node_run::NodeRun, os_steps, rke2_steps, shared_steps};
use program::{
    error::Result,
    report::Reporter,
    step::{self, Step},
};

/// The steps, in order.
#[must_use]
pub fn steps(limits: &Limits) -> Vec<Step<NodeRun>> {
    let mut steps: Vec<Step<NodeRun>> = vec![
        shared_steps::recover_agent(limits),
        shared_steps::wait_for_repository(limits),
        shared_steps::remove_canal_config(limits),
        shared_steps::disable_charts(limits),
        os_steps::download_step(limits),
        Step {
            name: "stop-vms",
            limit: limits.detector,
            run: |run, ctx| Box::pin(drain_steps::stop_immovable_vms(run, ctx)),
        },
        Step {
            name: "wait-for-vms",
            limit: limits.vms,
            run: |run, ctx| Box::pin(drain_steps::wait_until_empty(run, ctx)),
        },
        Step {
            name: "wait-for-fleet",
            limit: limits.fleet,
            run: |run, ctx| Box::pin(rke2_steps::wait_for_fleet(&run.client, ctx)),
        },
    ];
    steps.extend(configure_steps::steps(limits));
    let more: [Step<NodeRun>; 4] = [
        shared_steps::choose_ingress(limits),
        Step {
            name: "start-rke2-upgrade",
            limit: limits.request,
            run: |run, ctx| Box::pin(rke2_steps::start_rke2_upgrade(run, ctx)),
        },
        shared_steps::wait_for_rke2(limits),
        shared_steps::remove_archives(limits),
    ];
    steps.extend(more);
    // The image is on the node since long before, and its step finds it there.
    steps.extend(os_steps::steps(limits));
    steps
}

/// Runs the program.
///
/// # Errors
/// The step that failed, or whose time was up.
pub async fn run(run: &NodeRun, limits: &Limits, report: &Reporter) -> Result<()> {
    step::run_all(run, &steps(limits), report).await
}
