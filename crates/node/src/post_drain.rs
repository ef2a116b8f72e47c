//! `post-drain`: after Rancher has drained a node, configures RKE2, waits for its upgrade, installs the new operating
//! system and has the node rebooted. `docs/node-steps.md` says what each step does.

use crate::{configure_steps, drain_steps, limits::Limits, node_run::NodeRun, os_steps, shared_steps};
use program::{
    error::Result,
    report::Reporter,
    step::{self, Step},
};

/// The steps, in order.
#[must_use]
pub fn steps(limits: &Limits) -> Vec<Step<NodeRun>> {
    let mut steps: Vec<Step<NodeRun>> = vec![shared_steps::wait_for_repository(limits)];
    steps.extend(configure_steps::steps(limits));
    let more: [Step<NodeRun>; 3] = [
        shared_steps::wait_for_rke2(limits),
        shared_steps::remove_archives(limits),
        Step {
            name: "remove-drain-taint",
            limit: limits.request,
            run: |run, ctx| Box::pin(drain_steps::untaint(run, ctx)),
        },
    ];
    steps.extend(more);
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
