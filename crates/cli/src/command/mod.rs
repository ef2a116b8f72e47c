//! The commands.

use std::{ffi::OsString, io::Write, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};

mod cluster_args;
mod cluster_upgrade;
mod colours;
mod complete;
mod completion;
mod detector;
mod doctor;
mod go_flags;
mod help;
mod job_command;
mod listen;
mod logs;
mod man;
mod manager;
mod manager_webhook;
mod manifests;
mod named_duration;
mod node;
mod node_host;
mod node_images;
mod postflight;
mod preflight;
mod rehearse;
mod rehearse_logs;
mod rehearse_run;
mod rehearse_serve;
mod rehearse_snapshot;
mod release;
mod repo;
mod restore_vm;
mod status;
mod verbs;
mod version;
mod version_guard;

const EXAMPLES: &str = "Examples:
  upgrade-toolkit rehearse                               a whole upgrade, simulated
  upgrade-toolkit preflight --version v1.8.0             what to fix before an upgrade
  upgrade-toolkit upgrade --version v1.8.0 --restore-vm  upgrade the cluster of the kubeconfig
  upgrade-toolkit wait                                   follow the upgrade to its end
  upgrade-toolkit doctor                                 why an upgrade does not continue
  upgrade-toolkit logs -f                                what its pods say
  upgrade-toolkit release inspect harvester-v1.8.0.iso   what an ISO contains, and if it is whole
  kubectl upgrade-toolkit status                         the same as a plugin of kubectl

As a plugin it is a link to the binary, named kubectl-upgrade_toolkit, in a folder of PATH.

Exit code: 0 done, 1 it failed or there is no such command, 2 wrong usage; more where the help of a command says so.";

/// The most characters of an error: an admission that refuses a plan lists everything at once.
const LONGEST_ERROR: usize = 20 * api::quoted::LONGEST_MESSAGE;

/// Upgrades a live Harvester cluster from one release to the next, and rehearses doing so.
#[derive(Debug, Parser)]
#[command(
    name = "upgrade-toolkit",
    version = version::VERSION,
    propagate_version = true,
    max_term_width = 110,
    after_help = EXAMPLES
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Find out what would keep an upgrade from starting or completing
    Preflight(preflight::Args),
    /// Start an upgrade: create an UpgradePlan
    Upgrade(verbs::upgrade::Args),
    /// Show how far an upgrade is, what it waits for and when it ends
    Status(status::Args),
    /// Find out why an upgrade does not get on, and what helps
    Doctor(doctor::Args),
    /// Show the logs of an upgrade, or keep them in an archive or a folder
    Logs(logs::Args),
    /// Wait for the end of an upgrade; the exit code says how it ended
    Wait(verbs::wait::Args),
    /// Pause nodes before their upgrade
    Pause(verbs::pause::PauseArgs),
    /// Resume paused nodes
    Resume(verbs::pause::ResumeArgs),
    /// Retry a failed upgrade where it failed
    Retry(verbs::retry::Args),
    /// Delete an UpgradePlan, and wait until its changes are restored
    Delete(verbs::delete::Args),
    /// Compare the cluster with what it was before an upgrade
    Postflight(postflight::Args),
    /// Save what checks need to know of a cluster in a file
    Snapshot(verbs::snapshot::Args),
    /// Run a whole upgrade on an embedded, simulated cluster and show it
    Rehearse(rehearse::Args),
    /// Inspect the ISO of a Harvester release
    #[command(subcommand)]
    Release(release::Release),
    /// Print a script that lets a shell complete commands, flags and names
    Completion(completion::Args),
    /// Write a manual page per command
    Man(man::Args),
    /// Print which build this is
    Version,
    /// Run the operator that carries out UpgradePlans in a cluster
    Manager(Box<manager::Args>),
    /// Serve the files of an ISO over HTTP, straight from the image
    Repo(repo::Args),
    /// What Jobs do on a node
    #[command(subcommand)]
    Node(node::Verb),
    /// Upgrade the components of the cluster, from the repository of an UpgradePlan
    ClusterUpgrade(cluster_upgrade::Args),
    /// Find the VMs of a node that cannot be live-migrated, and stop them for its upgrade
    VmLiveMigrateDetector(detector::Args),
    /// Start the VMs of a node again that were stopped for its upgrade
    RestoreVm(restore_vm::Args),
    /// Check that this cluster may be upgraded to the release of an UpgradePlan
    VersionGuard(version_guard::Args),
    /// Write the manifests that are generated from the code
    #[command(hide = true)]
    Manifests(manifests::Args),
    /// What a shell may put in the place of a word
    #[command(name = "__complete", hide = true)]
    Complete(complete::Args),
}

/// Runs what the arguments say; the first is the name of the binary. Exit code 0: done; 1: it failed, or there is no
/// such command; 2: wrong usage.
#[must_use]
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let parsed = help::command().try_get_matches_from(arguments);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let result = match cli.command {
        Command::Upgrade(args) => verbs::upgrade::run(&args),
        Command::Logs(args) => logs::run(&args),
        Command::Wait(args) => verbs::wait::run(&args),
        Command::Pause(args) => verbs::pause::pause(&args),
        Command::Resume(args) => verbs::pause::resume(&args),
        Command::Retry(args) => verbs::retry::run(&args),
        Command::Delete(args) => verbs::delete::run(&args),
        Command::Snapshot(args) => verbs::snapshot::run(&args),
        Command::Complete(args) => complete::run(&args),
        Command::Rehearse(args) => rehearse::run(&args),
        Command::Preflight(args) => preflight::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Postflight(args) => postflight::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Manager(args) => of_server("the manager", manager::run(*args)),
        Command::Release(command) => release::run(&command),
        Command::Repo(args) => of_server("the repository", repo::run(&args)),
        Command::Node(verb) => node::run(verb),
        Command::ClusterUpgrade(args) => job_command::run(&args.program.clone(), cluster_upgrade::run(args)),
        Command::VmLiveMigrateDetector(args) => detector::run(args),
        Command::RestoreVm(args) => restore_vm::run(args),
        Command::VersionGuard(args) => version_guard::run(args),
        Command::Version => version::run(),
        Command::Completion(args) => completion::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Manifests(args) => manifests::run(args),
    };
    result.unwrap_or_else(|error| {
        report(&error);
        ExitCode::FAILURE
    })
}

/// The result of a server, which leaves a termination message as programs of Jobs do: a server that ends without an error was
/// asked to.
fn of_server(what: &str, result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    let message = match &result {
        Ok(_) => format!("{what} was stopped"),
        Err(error) => format!("{error:#}"),
    };
    job_command::leave_termination_message(&message);
    result
}

/// Shows the error in the arguments, or the requested help. Without a command that exists, the exit code
/// is that of the existing toolkit.
fn refuse(error: &clap::Error) -> ExitCode {
    // The reader may have closed the pipe.
    let _ = error.print();
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            name_commands();
            ExitCode::FAILURE
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => ExitCode::FAILURE,
        _ if error.use_stderr() => ExitCode::from(2),
        _ => ExitCode::SUCCESS,
    }
}

#[allow(clippy::print_stderr, reason = "the edge, where errors reach a person")]
fn name_commands() {
    let cli = Cli::command();
    let commands = cli.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<&str> = commands.map(clap::Command::get_name).collect();
    eprintln!("Commands: {}", names.join(", "));
}

#[allow(clippy::print_stderr, reason = "the edge, where errors reach a person")]
fn report(error: &anyhow::Error) {
    // A message may have text of the cluster in it.
    // The client names the layer that failed before what failed.
    let text = format!("{error:#}").replace("ServiceError: ", "");
    let lines = text.lines().map(|line| api::quoted::printable(line, LONGEST_ERROR));
    eprintln!("Error: {}", lines.collect::<Vec<_>>().join("\n  "));
}

/// Prints what was asked for. A reader that has gone (`| head`) is no error; a full disk is.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("failed to write to standard output"))
        }
        _ => Ok(()),
    }
}

/// Says on standard error what is no failure.
#[allow(clippy::print_stderr, reason = "the edge, where errors reach a person")]
fn warn(text: &str) {
    eprintln!("Warning: {text}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The commands that users see and give arguments to, that no example in their own help or in the help above calls.
    fn without_example(command: &clap::Command, words: &str, above: &str, found: &mut Vec<String>) {
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            let words = format!("{words} {}", one.get_name());
            let help = one.clone().render_long_help().to_string();
            let examples = help.split("Example").nth(1).unwrap_or_default();
            let takes_arguments = one
                .get_arguments()
                .any(|a| !matches!(a.get_id().as_str(), "help" | "version"));
            if takes_arguments && !examples.contains(&words) && !above.contains(&words) {
                found.push(words.clone());
            }
            without_example(one, &words, examples, found);
        }
    }

    #[test]
    fn the_help_of_every_command_has_examples_that_call_it() {
        let mut found = Vec::new();
        without_example(&Cli::command(), "upgrade-toolkit", "", &mut found);
        assert!(found.is_empty(), "these have no example: {found:#?}");
        without_example(
            &clap::Command::new("x").subcommand(clap::Command::new("y").arg(clap::arg!(--z))),
            "x",
            "",
            &mut found,
        );
        assert_eq!(found, ["x y"]);
    }

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
