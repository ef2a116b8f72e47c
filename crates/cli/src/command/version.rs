//! `version`: which build this is.

use std::{
    io::{self, Write},
    process::ExitCode,
};

/// Given when the binary is built for a release.
pub(super) const VERSION: &str = match option_env!("UPGRADE_TOOLKIT_VERSION") {
    Some(version) => version,
    None => "dev",
};
const GIT_COMMIT: Option<&str> = option_env!("UPGRADE_TOOLKIT_GIT_COMMIT");
const GIT_TREE_STATE: Option<&str> = option_env!("UPGRADE_TOOLKIT_GIT_TREE_STATE");

pub(super) fn run() -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    writeln!(out, "Version: {VERSION}")?;
    writeln!(out, "GitCommit: {}", GIT_COMMIT.unwrap_or("unknown"))?;
    writeln!(out, "GitTreeState: {}", GIT_TREE_STATE.unwrap_or("unknown"))?;
    Ok(ExitCode::SUCCESS)
}
