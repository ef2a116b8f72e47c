//! `completion`: scripts that let a shell complete our commands and flags.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::CommandFactory;
use clap_complete::{Shell, generate};

/// For whom.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    source <(upgrade-toolkit completion bash)                                           this shell\n  \
    upgrade-toolkit completion bash > /etc/bash_completion.d/upgrade-toolkit            all of them\n  \
    upgrade-toolkit completion zsh > \"${fpath[1]}/_upgrade-toolkit\"\n  \
    upgrade-toolkit completion fish > ~/.config/fish/completions/upgrade-toolkit.fish")]
pub(super) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut command = super::Cli::command();
    let mut script = Vec::new();
    generate(args.shell, &mut command, "upgrade-toolkit", &mut script);
    io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
