//! `pre-drain`: empties a node of VMs before Rancher drains it. `docs/node-steps.md` says what each step does.

use crate::{drain_steps, limits::Limits, node_run::NodeRun, shared_steps};
use program::{
    error::Result,
    report::Reporter,
    step::{self, Step},
};

/// The steps, in order.
#[must_use]
pub fn steps(limits: &Limits) -> Vec<Step<NodeRun>> {
    vec![
        shared_steps::recover_agent(limits),
        Step {
            name: "wait-for-volumes",
            limit: limits.volumes,
            run: |run, ctx| Box::pin(drain_steps::wait_for_volumes(run, ctx)),
        },
        Step {
            name: "stop-immovable-vms",
            limit: limits.detector,
            run: |run, ctx| Box::pin(drain_steps::stop_immovable_vms(run, ctx)),
        },
        Step {
            name: "taint-node",
            limit: limits.request,
            run: |run, ctx| Box::pin(drain_steps::taint(run, ctx)),
        },
        Step {
            name: "wait-for-vms",
            limit: limits.vms,
            run: |run, ctx| Box::pin(drain_steps::evacuate(run, ctx)),
        },
        Step {
            name: "wait-for-evacuation-budgets",
            limit: limits.budgets,
            run: |run, ctx| Box::pin(drain_steps::wait_for_budgets(run, ctx)),
        },
        Step {
            name: "keep-last-copies",
            limit: limits.volumes,
            run: |run, ctx| Box::pin(drain_steps::keep_last_copies(run, ctx)),
        },
        shared_steps::remove_canal_config(limits),
        shared_steps::disable_charts(limits),
        shared_steps::choose_ingress(limits),
    ]
}

/// Runs the program.
///
/// # Errors
/// The step that failed, or whose time was up.
pub async fn run(run: &NodeRun, limits: &Limits, report: &Reporter) -> Result<()> {
    step::run_all(run, &steps(limits), report).await
}
