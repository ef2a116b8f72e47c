//! `upgrade-toolkit`: upgrades a live Harvester cluster, and rehearses doing so.

use std::process::ExitCode;

use clap::Parser;
use cli::command::{Cli, run};

fn main() -> ExitCode {
    run(Cli::parse())
}
