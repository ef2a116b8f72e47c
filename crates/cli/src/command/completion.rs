//! `completion`: scripts that let a shell complete commands, flags, and names of plans and nodes. They ask the program itself
//! (`__complete`), so they need not be made again when it changes.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap_complete::{Shell, generate};

const BASH: &str = include_str!("completion/bash");
const ZSH: &str = include_str!("completion/zsh");
const FISH: &str = include_str!("completion/fish");

/// For whom.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Names of plans and nodes are those of the cluster that the command would look at.\n\n\
    For kubectl, link the program as kubectl_complete-upgrade_toolkit next to kubectl-upgrade_toolkit.\n\n\
    Examples:\n  \
    source <(upgrade-toolkit completion bash)                                           this shell\n  \
    upgrade-toolkit completion bash > /etc/bash_completion.d/upgrade-toolkit            all of them\n  \
    upgrade-toolkit completion zsh > \"${fpath[1]}/_upgrade-toolkit\"\n  \
    upgrade-toolkit completion fish > ~/.config/fish/completions/upgrade-toolkit.fish"
)]
pub(super) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    match args.shell {
        Shell::Bash => script.extend_from_slice(BASH.as_bytes()),
        Shell::Zsh => script.extend_from_slice(ZSH.as_bytes()),
        Shell::Fish => script.extend_from_slice(FISH.as_bytes()),
        // These cannot ask: they complete commands and flags.
        shell => generate(shell, &mut super::help::command(), "upgrade-toolkit", &mut script),
    }
    io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
