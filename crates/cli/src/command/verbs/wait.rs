//! `wait`: follows a plan to its end; the exit code says how it ended.

use std::{io::Write, pin::pin, process::ExitCode, time::Duration};

use api::{Phase, UpgradePlan, reasons};
use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};

use super::{
    super::cluster_args::{LiveArgs, block_on, now},
    phase_of, say,
};
use crate::rehearsal::follow;

/// Exit code when the end is not known: the time is over, or the cluster does not answer.
pub(super) const UNKNOWN: u8 = 3;

/// Which plan, and how long.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Changes are reported on standard error, the end on standard output.\n\n\
    Exit code: 0 it succeeded, 1 it failed or was deleted, 2 wrong usage, 3 it has not ended after \
    --timeout, or the cluster does not answer.\n\n\
    Examples:\n  \
    upgrade-toolkit wait\n  \
    upgrade-toolkit wait hvst-upgrade-x7k2p --timeout 6h"
)]
pub(in super::super) struct Args {
    /// The plan; without it the one that runs, else the newest
    #[arg(value_name = "PLAN")]
    plan: Option<String>,
    /// How long to wait, as in 90s, 45m or 1h30m; without it until the end
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true, value_parser = duration)]
    timeout: Option<Duration>,
    /// Report nothing but the end
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    cluster: LiveArgs,
}

/// Why a duration cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not a duration, as in 90s, 45m or 1h30m")]
pub(super) struct NoDuration(String);

/// Reads `90s`, `45m`, `1h30m`.
pub(super) fn duration(text: &str) -> Result<Duration, NoDuration> {
    let failed = || NoDuration(api::quoted::quoted(text));
    let span: jiff::SignedDuration = text.parse().map_err(|_| failed())?;
    let duration = Duration::try_from(span).map_err(|_| failed())?;
    if duration.is_zero() {
        Err(failed())
    } else {
        Ok(duration)
    }
}

pub(in super::super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    block_on(async {
        // A script must not take a cluster that does not answer for an upgrade that failed.
        let client = match args.cluster.client().await {
            Ok(client) => client,
            Err(error) => {
                super::super::report(&error);
                return Ok(ExitCode::from(UNKNOWN));
            }
        };
        let plan = super::plan(&client, args.plan.as_deref()).await?;
        let name = plan.name_any();
        let followed = to_the_end(&client, plan, args.quiet);
        let ended = match args.timeout {
            Some(limit) => tokio::time::timeout(limit, followed).await.ok(),
            None => Some(followed.await),
        };
        match ended {
            Some(ended) => ended,
            None => {
                say(&format!("upgradeplan {name} has not ended"))?;
                Ok(ExitCode::from(UNKNOWN))
            }
        }
    })?
}

/// Follows the plan. A watch that breaks is begun again: API servers restart during an upgrade.
async fn to_the_end(client: &Client, plan: UpgradePlan, quiet: bool) -> anyhow::Result<ExitCode> {
    let plans: Api<UpgradePlan> = Api::all(client.clone());
    let (name, uid) = (plan.name_any(), plan.uid());
    let fields = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = pin!(watcher::watcher(plans, fields).default_backoff());
    let mut before: Option<UpgradePlan> = None;
    let mut seen = false;
    while let Some(event) = events.next().await {
        let current = match event {
            Ok(watcher::Event::Apply(plan) | watcher::Event::InitApply(plan)) if plan.uid() == uid => plan,
            Ok(watcher::Event::Init) => {
                seen = false;
                continue;
            }
            Ok(watcher::Event::InitDone) if seen => continue,
            Ok(watcher::Event::Delete(_) | watcher::Event::InitDone) => {
                say(&format!("upgradeplan {name} was deleted"))?;
                return Ok(ExitCode::FAILURE);
            }
            // Another plan of the same name, or a connection that comes back.
            Ok(_) | Err(_) => continue,
        };
        seen = true;
        if !quiet {
            for line in follow::changes(now(client).await, before.as_ref().or(Some(&plan)), &current) {
                // A closed terminal needs no output.
                let _ = writeln!(std::io::stderr(), "{line}");
            }
        }
        match current.phase() {
            Some(Phase::Succeeded) => {
                say(&format!("upgradeplan {name} succeeded"))?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(Phase::Failed) => {
                let why = current
                    .condition(reasons::PROGRESSING)
                    .map(|condition| condition.message.as_str());
                let why = api::quoted::printable(why.unwrap_or_default(), 4 * api::quoted::LONGEST_MESSAGE);
                say(&format!("upgradeplan {name} failed: {why}"))?;
                return Ok(ExitCode::FAILURE);
            }
            _ => before = Some(current),
        }
    }
    anyhow::bail!("upgradeplan {name} can no longer be followed ({})", phase_of(&plan))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("1h30m").unwrap(), Duration::from_secs(5400));
        for wrong in ["", "6", "-1m", "0s", "1y", "soon"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
