//! `vm-live-migrate-detector`: the VMs of a node that cannot move.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use node::vm::detector::{self, Options};

use super::job_command::{self, ProgramArgs, go_bool, required};

/// The node whose VMs are checked, and what to do with them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints the VMs of the node that cannot be live-migrated, with the reason: devices of the node, KubeVirt's \
    condition, or no other node that fits them. With --upgrade they are first added to the list of VMs to start again \
    (ConfigMap harvester-system/<plan>-restore-vm), then stopped.\n\n\
    Exit code: 0 done, also when a VM could not be stopped (the plan has a warning); 1 the VMs could not be found or \
    listed, and none was stopped; 2 wrong usage.\n\n\
    Examples:\n  \
    upgrade-toolkit vm-live-migrate-detector node-1                                  only look\n  \
    upgrade-toolkit vm-live-migrate-detector node-1 --shutdown --upgrade my-upgrade  as in an upgrade"
)]
pub(super) struct Args {
    /// The node
    #[arg(value_name = "NODENAME")]
    node: Option<String>,
    /// Stop the VMs that cannot migrate
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
          value_parser = go_bool, action = clap::ArgAction::Set)]
    shutdown: bool,
    /// UpgradePlan whose list is written and that gets the events
    #[arg(long, value_name = "NAME")]
    upgrade: Option<String>,
    #[command(flatten)]
    program: ProgramArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let options = Options {
        node: required("NODENAME", args.node)?,
        upgrade: args.upgrade.filter(|name| !name.is_empty()),
        shutdown: args.shutdown,
    };
    job_command::run(&args.program, async {
        let client = args.program.client().await?;
        let detected = detector::run(&client, options, &job_command::reporter(&client)).await?;
        let mut out = io::stdout().lock();
        for found in &detected.found {
            // The reader may have closed the pipe; the work is done.
            let _ = writeln!(out, "{}: {}", found.vm, found.why);
        }
        Ok(())
    })
}
