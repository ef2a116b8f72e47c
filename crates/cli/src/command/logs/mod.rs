//! `logs`: the logs of an upgrade, shown, downloaded, or collected while it runs. They are read, and nothing is changed.

use std::{path::Path, process::ExitCode, sync::Arc};

use anyhow::Context;
use logs::{Folder, View, store};

pub(super) mod archive;
mod collect;
mod download;
pub(super) mod objects;
mod show;

/// Which logs, and what to do with them.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Logs are read from the cluster, which has them as long as their pods and no longer than the kubelet keeps the \
    file. To have all of them at the end, run `logs collect` while the upgrade runs, and name its folder with --dir. Secrets \
    that are known by their form are masked.\n\n\
    Exit code: 0 shown, 1 not shown, 2 wrong usage.\n\n\
    Examples:\n  \
    upgrade-toolkit logs                                  the pods of the upgrade that runs, or of the last one\n  \
    upgrade-toolkit logs -f --node node-1                 what happens on a node\n  \
    upgrade-toolkit logs my-upgrade --component pre-drain --since 1h\n  \
    upgrade-toolkit logs --all --since 10m                with Harvester, Longhorn, Rancher, Fleet and Kubernetes\n  \
    upgrade-toolkit logs download -o logs.zip             everything in one archive\n  \
    upgrade-toolkit logs collect --dir logs               keep what pods say that are gone soon"
)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    show: show::ShowArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Write an archive of all logs of an upgrade
    Download(download::Args),
    /// Collect the logs of an upgrade in a folder until it has ended
    Collect(collect::Args),
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.verb {
        None => show::run(&args.show),
        Some(Verb::Download(args)) => download::run(args),
        Some(Verb::Collect(args)) => collect::run(args),
    }
}

/// The logs that were collected in a folder.
fn collected(dir: &Path) -> anyhow::Result<View> {
    let is_folder = std::fs::metadata(dir).is_ok_and(|found| found.is_dir());
    anyhow::ensure!(is_folder, "there is no folder {}", dir.display());
    let view = store::read_only(Arc::new(Folder::new(dir)));
    view.with_context(|| format!("failed to read the logs in {}", dir.display()))
}

/// Says which logs are missing because they may not or cannot be read.
fn name_failures(failures: &[(String, kube::Error)]) {
    for (what, error) in failures {
        let error = match error {
            kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
            other => other.to_string(),
        };
        let error = api::quoted::plain(&error, api::quoted::LONGEST_MESSAGE);
        super::warn(&format!("not read: {what}: {error}"));
    }
}
