//! `restore-vm`: starts the VMs of a node again.

use std::process::ExitCode;

use node::vm::restore::{self, Options};

use super::job_command::{self, ProgramArgs, required};

/// Whose VMs to start, and by which list.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Starts the VMs again that were stopped for the upgrade of a node, waits for KubeVirt before (at most 30 \
    minutes), and then until each VM runs (at most 15). Can be repeated: what runs is left as it is.\n\n\
    Exit code: 0 all run, or there is no list; 1 not all run (each has a warning on the plan); 2 wrong usage.\n\n\
    Example:\n  \
    upgrade-toolkit restore-vm --node node-1 --upgrade my-upgrade"
)]
pub(super) struct Args {
    /// The node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// UpgradePlan whose list says which VMs
    #[arg(long, value_name = "NAME")]
    upgrade: Option<String>,
    #[command(flatten)]
    program: ProgramArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let options = Options {
        node: required("--node", args.node)?,
        upgrade: required("--upgrade", args.upgrade)?,
    };
    job_command::run(&args.program, async {
        let client = args.program.client().await?;
        Ok(restore::run(&client, options, &job_command::reporter(&client)).await?)
    })
}
