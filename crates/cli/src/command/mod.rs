//! The commands.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod manager;
mod manifests;
mod rehearse;
mod release;
mod repo;

/// Upgrades a live Harvester cluster from one release to the next, and rehearses doing so.
#[derive(Debug, Parser)]
#[command(name = "upgrade-toolkit", version, propagate_version = true, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole upgrade on an embedded, simulated cluster and show it
    Rehearse(rehearse::Args),
    /// Run the operator that carries out UpgradePlans in a cluster
    Manager(Box<manager::Args>),
    /// Look into the ISO of a Harvester release
    #[command(subcommand)]
    Release(release::Release),
    /// Serve the files of an ISO over HTTP, straight from the image
    Repo(repo::Args),
    /// Write the manifests that are generated from the code
    #[command(hide = true)]
    Manifests(manifests::Args),
}

/// Runs a command. Exit code 0: done; 1: it failed; 2: wrong usage.
#[must_use]
pub fn run(cli: Cli) -> ExitCode {
    let result = match cli.command {
        Command::Rehearse(args) => rehearse::run(&args),
        Command::Manager(args) => manager::run(*args),
        Command::Release(command) => release::run(&command),
        Command::Repo(args) => repo::run(&args),
        Command::Manifests(args) => manifests::run(args),
    };
    result.unwrap_or_else(|error| {
        report(&error);
        ExitCode::FAILURE
    })
}

#[allow(clippy::print_stderr, reason = "the edge, where errors reach a person")]
fn report(error: &anyhow::Error) {
    eprintln!("Error: {error:#}");
}
