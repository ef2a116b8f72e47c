//! `rehearse --snapshot`: the forecast of an upgrade of a real cluster. The cluster is only read.

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex},
};

use clock::Clock;
use snapshot::Snapshot;
use view::forecast::{self, Forecast, Verdict};

use super::{
    cluster_args::{self, LiveArgs, block_on},
    colours,
    rehearse::{self, Args, Output},
};
use crate::rehearsal::{
    Bars, beginning,
    follow::View,
    forecast::{Asked, NoNodes, forecast as rehearsed},
};

/// What stands for the cluster of the kubeconfig.
const LIVE: &str = "live";
/// Exit code: the snapshot could not be read.
const UNREADABLE: u8 = 3;
/// Columns where there is no terminal.
const WIDTH: usize = 120;

/// Which cluster to forecast an upgrade for.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Forecast for a real cluster")]
pub(super) struct SnapshotArgs {
    /// Rehearse the upgrade of this cluster, and print a forecast: a file of `upgrade-toolkit snapshot`, a support bundle
    /// (zip or folder), a folder of `kubectl get -o yaml` files, or `live` for the cluster of the kubeconfig, which is only read
    #[arg(long, value_name = "FILE|BUNDLE|FOLDER|live", value_hint = clap::ValueHint::AnyPath,
          conflicts_with_all = ["nodes", "witness", "vms", "image", "pause", "speed", "instant", "serve", "steps", "trouble"])]
    snapshot: Option<PathBuf>,
    /// With --snapshot live: kubeconfig of the cluster; without it KUBECONFIG, then ~/.kube/config, then the account of the pod
    #[arg(long, value_name = "FILE", requires = "snapshot", value_hint = clap::ValueHint::FilePath)]
    kubeconfig: Option<PathBuf>,
    /// With --snapshot live: context of the kubeconfig; without it the current one
    #[arg(long, value_name = "NAME", requires = "snapshot")]
    context: Option<String>,
}

impl SnapshotArgs {
    /// A forecast is asked for.
    pub(super) fn is_given(&self) -> bool {
        self.snapshot.is_some()
    }

    /// What clap cannot check.
    pub(super) fn problem(&self, output: Output) -> Option<String> {
        let is_live = self.snapshot.as_deref() == Some(Path::new(LIVE));
        let names_cluster = self.kubeconfig.is_some() || self.context.is_some();
        if self.snapshot.is_none() && output == Output::Markdown {
            Some("-o markdown needs --snapshot: it is the form of a forecast".to_owned())
        } else if names_cluster && !is_live {
            Some("--kubeconfig and --context name a live cluster: use them with --snapshot live".to_owned())
        } else {
            None
        }
    }

    fn load(&self) -> anyhow::Result<Snapshot> {
        match self.snapshot.as_deref() {
            Some(path) if path != Path::new(LIVE) => Ok(snapshot::load(path)?),
            _ => block_on(async {
                let live = LiveArgs {
                    kubeconfig: self.kubeconfig.clone(),
                    context: self.context.clone(),
                    ..LiveArgs::default()
                };
                let client = live.client().await?;
                Ok(cluster_args::look(&client).await)
            })?,
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(problem) = args.snapshot.problem(args.output) {
        rehearse::refuse(&problem);
    }
    let snapshot = match args.snapshot.load() {
        Ok(snapshot) => snapshot,
        Err(error) => {
            super::report(&error);
            return Ok(ExitCode::from(UNREADABLE));
        }
    };
    let asked = Asked {
        snapshot,
        from: args.from.clone(),
        to: args.to.clone(),
        seed: args.seed,
        restore_vm: args.restore_vm,
    };
    let view = if io::stderr().is_terminal() {
        View::Bars(Box::<Bars>::default())
    } else {
        View::Lines {
            before: None,
            to_stderr: true,
        }
    };
    // Nothing but this process takes part, so time can jump from one timer to the next.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    let clock = Clock::simulated(beginning(), 1.0);
    let found = match runtime.block_on(rehearsed(&asked, clock, Arc::new(Mutex::new(view)))) {
        Ok(found) => found,
        Err(error) if error.is::<NoNodes>() => {
            super::report(&error);
            return Ok(ExitCode::from(UNREADABLE));
        }
        Err(error) => return Err(error),
    };
    print(&found, args.output)?;
    Ok(match found.verdict {
        Verdict::Succeeds => ExitCode::SUCCESS,
        Verdict::Refused | Verdict::Blocked | Verdict::Doubtful => ExitCode::FAILURE,
    })
}

fn print(found: &Forecast, output: Output) -> anyhow::Result<()> {
    let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let width = width.filter(|_| io::stdout().is_terminal()).unwrap_or(WIDTH);
    let text = match output {
        Output::Text => forecast::text(found, width, colours::style()),
        Output::Json => forecast::json(found)?,
        Output::Yaml => forecast::yaml(found)?,
        Output::Markdown => forecast::markdown(found),
    };
    rehearse::print(&text)
}
