//! `logs collect`: reads the logs of an upgrade while it runs, so that those of pods that are gone are not lost.

use std::{
    fs::{DirBuilder, File, TryLockError},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context, bail};
use clock::Clock;
use kube::ResourceExt;
use logs::{Collection, Folder, Limits, program::Options, store};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use super::{
    super::{
        cluster_args::{LiveArgs, block_on},
        manager::terminated,
        verbs,
    },
    collected,
};

/// Bytes of a MiB.
const MIB: u64 = 1024 * 1024;

/// Of which upgrade, and where to.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "It ends half a minute after the upgrade, or with Ctrl-C. Run it again with the same folder to continue where it \
    stopped; after `retry`, too. When the space is used up, the oldest logs of the cluster's components are removed first. \
    Secrets that are known by their form are masked.\n\n\
    Exit code: 0 the upgrade has ended or Ctrl-C was pressed, 1 it cannot be collected, 2 wrong usage.\n\n\
    Examples:\n  \
    upgrade-toolkit logs collect --dir logs                      the upgrade that runs\n  \
    upgrade-toolkit logs collect my-upgrade --dir logs --mib 512 in half a GiB"
)]
pub(super) struct Args {
    /// UpgradePlan whose logs are collected; without it the one that runs, else the newest
    plan: Option<String>,
    /// The folder; it is created if it does not exist
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Space that the logs may take, compressed, in MiB
    #[arg(long, value_name = "N", default_value_t = store::VOLUME / MIB, value_parser = clap::value_parser!(u64).range(16..=1_048_576))]
    mib: u64,
    #[command(flatten)]
    live: LiveArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    start_log();
    // Logs are for those who may read them in the cluster.
    let created = DirBuilder::new().recursive(true).mode(0o700).create(&args.dir);
    created.with_context(|| format!("failed to create {}", args.dir.display()))?;
    let lock = lock(&args.dir)?;
    block_on(collect(args))??;
    drop(lock);
    let view = collected(&args.dir)?;
    let streams = view.streams();
    let bytes: u64 = streams.iter().map(|stream| stream.bytes()).sum();
    verbs::say(&format!(
        "{}: {} logs, {} KiB of lines",
        args.dir.display(),
        streams.len(),
        bytes.div_ceil(1024)
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Says on standard error what is wrong. A node that reboots is part of an upgrade: that its logs cannot be read meanwhile is not.
fn start_log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,kube_client=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
}

/// Two collectors in one folder would write over each other.
fn lock(dir: &Path) -> anyhow::Result<File> {
    let folder = File::open(dir).with_context(|| format!("failed to open {}", dir.display()))?;
    match folder.try_lock() {
        Ok(()) => Ok(folder),
        Err(TryLockError::WouldBlock) => bail!("another `logs collect` writes to {}", dir.display()),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("failed to lock {}", dir.display())),
    }
}

async fn collect(args: &Args) -> anyhow::Result<()> {
    let client = args.live.client().await?;
    let plan = verbs::plan(&client, args.plan.as_deref()).await?;
    let name = plan.name_any();
    let options = Options {
        limits: Limits::for_volume(args.mib * MIB),
        ..Options::default()
    };
    let disk = Arc::new(Folder::new(&args.dir));
    let collection = Collection::open(client, Clock::system(), plan, disk, options)?;
    verbs::say(&format!(
        "collecting the logs of {name} in {} until the upgrade has ended; Ctrl-C ends earlier",
        args.dir.display()
    ))?;
    let (progress, _) = watch::channel(Default::default());
    tokio::select! {
        biased;
        // What was read in the last quarter of a second is read again next time.
        () = terminated() => Ok(()),
        result = collection.run(&progress, None) => Ok(result.map(drop)?),
    }
}
