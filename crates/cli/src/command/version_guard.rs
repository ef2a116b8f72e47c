//! `version-guard`: may this cluster be upgraded to the release of a plan?

use std::process::ExitCode;

use node::version_guard;

use super::job_command::{self, ProgramArgs, go_bool, required};

/// Which plan to judge, and how.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Compares status.previousVersion with status.releaseMetadata of the plan. A plan with spec.force, or with \
    the annotation harvesterhci.io/skip-version-check: \"true\", passes unchecked.\n\n\
    Exit code: 0 the upgrade is allowed, 1 it is not or could not be judged, 2 wrong usage.\n\n\
    Example:\n  \
    upgrade-toolkit version-guard my-upgrade --strict=false"
)]
pub(super) struct Args {
    /// Name of the UpgradePlan
    #[arg(value_name = "UPGRADEPLANNAME")]
    plan: Option<String>,
    /// Forbid upgrades from development builds to releases
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
          value_parser = go_bool, action = clap::ArgAction::Set)]
    strict: bool,
    /// Oldest version that may be upgraded, instead of what the release says
    #[arg(long, value_name = "VERSION")]
    min_upgradable_version: Option<String>,
    #[command(flatten)]
    program: ProgramArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let plan = required("UPGRADEPLANNAME", args.plan)?;
    job_command::run(&args.program, async {
        let client = args.program.client().await?;
        let minimum = args.min_upgradable_version.as_deref();
        Ok(version_guard::run(&client, &plan, args.strict, minimum).await?)
    })
}
