//! `retry`: a failed plan continues after its last completed phase.

use std::process::ExitCode;

use anyhow::bail;
use api::{Phase, UpgradePlan, annotations, reasons};
use clock::Clock;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    super::cluster_args::{LiveArgs, block_on},
    phase_of, refused, say,
};

/// Which plan.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Remove the cause first. Logs of failed Jobs are removed by the retry: read them before.\n\n\
    Exit code: 0 requested, 1 refused, 2 wrong usage.\n\n\
    Examples:\n  \
    upgrade-toolkit retry\n  \
    upgrade-toolkit retry hvst-upgrade-x7k2p && upgrade-toolkit wait hvst-upgrade-x7k2p"
)]
pub(in super::super) struct Args {
    /// The plan; without it the one that runs, else the newest
    #[arg(value_name = "PLAN")]
    plan: Option<String>,
    #[command(flatten)]
    cluster: LiveArgs,
}

pub(in super::super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    block_on(async {
        let client = args.cluster.client().await?;
        let plan = super::plan(&client, args.plan.as_deref()).await?;
        let name = plan.name_any();
        if !can_be_retried(&plan) {
            bail!(
                "upgradeplan {name} has not failed ({}): only a failed plan is retried; a stalled one continues when the cause is \
                 removed",
                phase_of(&plan)
            );
        }
        let value = Clock::system().now().as_second().to_string();
        let patch = json!({"metadata": {"annotations": {annotations::RETRY: value}}});
        let plans: Api<UpgradePlan> = Api::all(client);
        let patched = plans.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map_err(|error| refused("retry the UpgradePlan", error))?;
        say(&format!("upgradeplan {name}: retry requested"))?;
        Ok(ExitCode::SUCCESS)
    })?
}

/// It has failed, or another manager has left it without starting it.
fn can_be_retried(plan: &UpgradePlan) -> bool {
    let available = plan.condition(reasons::AVAILABLE);
    plan.phase() == Some(Phase::Failed) || available.is_some_and(|condition| condition.reason == reasons::NOT_STARTED)
}
