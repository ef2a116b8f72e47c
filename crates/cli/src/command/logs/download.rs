//! `logs download`: all logs of an upgrade in one archive, from the cluster or from a folder.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use clock::Clock;
use kube::ResourceExt;
use logs::{Collection, Memory, program::Options};

use super::{
    super::{
        cluster_args::{LiveArgs, block_on, now},
        verbs,
    },
    archive, collected, name_failures, objects,
};

/// Of which upgrade, and where to.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The archive is a zip file: a log per container, an index with gaps, the UpgradePlan, a timeline, nodes, events, \
    Jobs and Plans. It can be made while the upgrade runs. Secrets that are known by their form are masked; look at it \
    before you give it to others.\n\n\
    Exit code: 0 written, 1 not written, 2 wrong usage.\n\n\
    Examples:\n  \
    upgrade-toolkit logs download                            what the cluster has, in <plan>-logs.zip\n  \
    upgrade-toolkit logs download --dir logs -o logs.zip     what `logs collect` has kept"
)]
pub(super) struct Args {
    /// UpgradePlan whose logs are meant; without it the one that runs, else the newest
    #[arg(conflicts_with = "dir")]
    plan: Option<String>,
    /// The archive; - is standard output. Without it <plan>-logs.zip, or logs.zip
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Folder of `logs collect`, instead of the cluster
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["kubeconfig", "context"], value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
    #[command(flatten)]
    live: LiveArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let said = match &args.dir {
        Some(dir) => {
            let to = args.output.clone().unwrap_or_else(|| PathBuf::from("logs.zip"));
            archive::write(collected(dir)?, Clock::system().now(), Vec::new(), &to)?
        }
        None => block_on(download(args))??,
    };
    if let Some(said) = said {
        verbs::say(&said)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn download(args: &Args) -> anyhow::Result<Option<String>> {
    let client = args.live.client().await?;
    let plan = verbs::plan(&client, args.plan.as_deref()).await?;
    let made = now(&client).await;
    let to = args.output.clone();
    let to = to.unwrap_or_else(|| PathBuf::from(format!("{}-logs.zip", plan.name_any())));
    let (entries, mut failures) = objects::read(&client, &plan).await;
    let mut collection = Collection::open(
        client,
        Clock::system(),
        plan,
        Arc::new(Memory::default()),
        Options::default(),
    )?;
    failures.extend(collection.read_once().await?);
    name_failures(&failures);
    let view = collection.store.get_mut().view();
    archive::write(view, made, entries, &to)
}
