//! `manifests`: writes what is generated from the code into the source tree.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;

use crate::manifests;

/// Where to.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  upgrade-toolkit manifests .")]
pub(super) struct Args {
    /// The root of the source tree
    #[arg(default_value = ".")]
    directory: PathBuf,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { directory } = args;
    for (path, content) in manifests::files()? {
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("failed to create {}", parent.display()))?;
        }
        std::fs::write(&path, content).with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
