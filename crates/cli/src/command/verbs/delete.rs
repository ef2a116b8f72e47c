//! `delete`: removes a plan, and waits until everything that it changed is restored.

use std::{process::ExitCode, time::Duration};

use api::{UpgradePlan, annotations};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    runtime::wait::{await_condition, conditions::is_deleted},
};
use serde_json::json;

use super::{
    super::cluster_args::{LiveArgs, block_on},
    confirm, has_ended, phase_of, refused, say,
    wait::UNKNOWN,
};

/// Which plan.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A plan that has ended is only a record. One in progress is stopped, and its settings are restored; from \
    ClusterUpgrading on this is refused.\n\n\
    Exit code: 0 deleted, 1 refused, 2 wrong usage, 3 it is still there after --timeout.\n\n\
    Examples:\n  \
    upgrade-toolkit delete hvst-upgrade-x7k2p\n  \
    upgrade-toolkit delete hvst-upgrade-x7k2p --yes --timeout 10m"
)]
pub(in super::super) struct Args {
    /// The plan
    #[arg(value_name = "PLAN")]
    plan: String,
    /// Do not ask before a plan in progress is deleted
    #[arg(short, long)]
    yes: bool,
    /// How long to wait until it is gone, as in 90s, 10m or 1h30m
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = super::wait::duration)]
    timeout: Duration,
    #[command(flatten)]
    cluster: LiveArgs,
}

pub(in super::super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    block_on(async {
        let client = args.cluster.client().await?;
        let plan = super::plan(&client, Some(&args.plan)).await?;
        let name = plan.name_any();
        let plans: Api<UpgradePlan> = Api::all(client);
        if !has_ended(&plan) {
            let question = format!("upgradeplan {name} is in progress ({}). Delete it?", phase_of(&plan));
            if !confirm(&question, args.yes)? {
                say("nothing was changed")?;
                return Ok(ExitCode::FAILURE);
            }
            allow(&plans, &name, json!("true")).await?;
        }
        if let Err(error) = plans.delete(&name, &DeleteParams::default()).await {
            if !has_ended(&plan) && plan.annotation(annotations::ALLOW_DELETION).is_none() {
                // What is refused leaves nothing behind. The refusal is what counts.
                let _ = allow(&plans, &name, serde_json::Value::Null).await;
            }
            return Err(refused("delete the UpgradePlan", error));
        }
        let uid = plan.uid().unwrap_or_default();
        let gone = await_condition(plans, &name, is_deleted(&uid));
        match tokio::time::timeout(args.timeout, gone).await {
            Ok(gone) => {
                gone?;
                say(&format!("upgradeplan {name} deleted"))?;
                Ok(ExitCode::SUCCESS)
            }
            Err(_) => {
                say(&format!(
                    "upgradeplan {name} is being deleted; its settings are not restored yet"
                ))?;
                Ok(ExitCode::from(UNKNOWN))
            }
        }
    })?
}

async fn allow(plans: &Api<UpgradePlan>, name: &str, value: serde_json::Value) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"annotations": {annotations::ALLOW_DELETION: value}}});
    let patched = plans.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched
        .map(|_| ())
        .map_err(|error| refused("change the UpgradePlan", error))
}
