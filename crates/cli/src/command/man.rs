//! `man`: a manual page per command.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;

/// Where to.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    upgrade-toolkit man dist/man\n  \
    man dist/man/upgrade-toolkit-rehearse.1")]
pub(super) struct Args {
    /// The folder that the pages go into
    directory: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory).with_context(|| format!("failed to create {}", directory.display()))?;
    clap_mangen::generate_to(super::help::command(), directory)
        .with_context(|| format!("failed to write manual pages into {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
