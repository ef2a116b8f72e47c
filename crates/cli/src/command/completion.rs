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
    let mut script = String::from_utf8(script)?;
    if args.shell == Shell::Bash {
        command.build();
        fix_labels(&command, "upgrade-toolkit", &mut script);
    }
    io::stdout().write_all(script.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// clap_complete calls a command with a dash in its name, or below one, by one name where it finds out which command is
/// meant, and by another where it completes that one's arguments. Makes the second like the first.
fn fix_labels(command: &clap::Command, path: &str, script: &mut String) {
    let found = path.replace('-', "__").replace(' ', "__subcmd__");
    let completed = path.replace(['-', ' '], "__subcmd__");
    *script = script.replace(&format!("        {completed})\n"), &format!("        {found})\n"));
    for one in command.get_subcommands() {
        fix_labels(one, &format!("{path} {}", one.get_name()), script);
    }
}
