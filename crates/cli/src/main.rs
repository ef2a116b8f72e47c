//! `upgrade-toolkit`: upgrades a live Harvester cluster, and rehearses doing so.

use std::process::ExitCode;

use cli::{command::run, invocation::arguments};

fn main() -> ExitCode {
    run(arguments(std::env::args_os()))
}
