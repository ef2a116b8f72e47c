//! `logs [PLAN]`: the lines of all pods of an upgrade in order of time, each with its pod.

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
    pin::pin,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clock::Clock;
use jiff::{SignedDuration, Timestamp};
use logs::{
    Collection, Memory, Nanos,
    collector::Settings,
    line,
    merged::{Filter, Line, Merged},
    program::Options,
    store::{Append, View},
};
use tokio::sync::{mpsc, watch};

use super::{
    super::{
        cluster_args::{LiveArgs, block_on, now},
        colours, verbs,
    },
    collected, name_failures,
};

/// Colours of pods, as numbers of terminals: those that can be read on light and on dark ground.
const COLOURS: [u8; 6] = [31, 32, 33, 34, 35, 36];
/// Lines that arrive within this time are put in order.
const ORDER: Duration = Duration::from_millis(400);
/// How often pods of the upgrade are read while a user looks.
const QUICK: Nanos = line::SECOND / 2;

/// Which lines.
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// UpgradePlan whose logs are shown; without it the one that runs, else the newest
    #[arg(conflicts_with = "dir")]
    plan: Option<String>,
    /// Only pods of this node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Only pods of this component, as in the index of an archive: pre-drain, cluster-upgrade, repo, longhorn-system
    #[arg(long, value_name = "NAME")]
    component: Option<String>,
    /// Only this pod, as NAME or NAMESPACE/NAME
    #[arg(long, value_name = "NAME")]
    pod: Option<String>,
    /// Only lines since then: a duration (10m, 1h30m) or a time (2026-03-13T03:57:09Z)
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Since>,
    /// Show new lines until the upgrade has ended
    #[arg(short, long, conflicts_with = "dir")]
    follow: bool,
    /// Also the components of the cluster that an upgrade touches
    #[arg(short, long)]
    all: bool,
    /// Folder of `logs collect`, instead of the cluster
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["kubeconfig", "context"], value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
    #[command(flatten)]
    live: LiveArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    Ago(SignedDuration),
    Moment(Timestamp),
}

/// Why it is no moment.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is neither a duration, as in 10m, nor a time, as in 2026-03-13T03:57:09Z")]
struct NoMoment(String);

fn since(text: &str) -> Result<Since, NoMoment> {
    let moment = text.parse().map(Since::Moment);
    let ago = || text.parse().ok().filter(|ago: &SignedDuration| !ago.is_negative());
    moment.or_else(|_| ago().map(Since::Ago).ok_or_else(|| NoMoment(text.to_owned())))
}

pub(super) fn run(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let shown = match &args.dir {
        Some(dir) => print(&collected(dir)?, &filter(args, Clock::system().now()), args.all),
        None => block_on(show(args))?,
    };
    match shown {
        // A reader that has seen enough (`| head`) is no failure.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        other => other.map(|()| ExitCode::SUCCESS),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn filter(args: &ShowArgs, now: Timestamp) -> Filter {
    let since = args.since.map(|since| match since {
        Since::Ago(ago) => now.saturating_sub(ago).unwrap_or(Timestamp::MIN),
        Since::Moment(moment) => moment,
    });
    Filter {
        node: args.node.clone(),
        component: args.component.clone(),
        pod: args.pod.clone(),
        since: since.map(line::nanos),
    }
}

async fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let client = args.live.client().await?;
    let plan = verbs::plan(&client, args.plan.as_deref()).await?;
    let filter = filter(args, now(&client).await);
    let options = Options {
        // What was asked for is what is read: older lines of the cluster's components can be shown.
        settings: Settings {
            system_since: filter.since,
            own: QUICK,
            ..Settings::default()
        },
        own_only: !args.all,
        grace: Duration::from_secs(5),
        ..Options::default()
    };
    let mut collection = Collection::open(client, Clock::system(), plan, Arc::new(Memory::default()), options)?;
    name_failures(&collection.read_once().await?);
    let view = collection.store.get_mut().view();
    print(&view, &filter, args.all)?;
    drop(view);
    if !args.follow {
        return Ok(());
    }
    let (tap, mut lines) = mpsc::unbounded_channel();
    let (progress, _) = watch::channel(Default::default());
    let collected = collection.run(&progress, Some(tap));
    let printed = async {
        while let Some(first) = lines.recv().await {
            tokio::time::sleep(ORDER).await;
            let mut appends = vec![first];
            while let Ok(more) = lines.try_recv() {
                appends.push(more);
            }
            print_new(&appends, &filter)?;
        }
        anyhow::Ok(())
    };
    let mut printed = pin!(printed);
    tokio::select! {
        biased;
        // A reader that has seen enough.
        result = &mut printed => result,
        result = collected => {
            result?;
            // What was read last.
            printed.await
        }
    }
}

/// Prints lines in order of time.
fn print(view: &View, filter: &Filter, all: bool) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let style = colours::style().colours;
    for line in Merged::new(view, filter) {
        let line = line.context("failed to read the logs")?;
        if all || line.info.class == logs::Class::Own {
            writeln!(out, "{}", text(&line, style))?;
        }
    }
    Ok(out.flush()?)
}

/// Prints lines that have just been read.
fn print_new(appends: &[Append], filter: &Filter) -> anyhow::Result<()> {
    let mut lines: Vec<Line> = appends.iter().flat_map(|append| lines_of(append, filter)).collect();
    // Stable: lines of one log stay in its order where their times are the same.
    lines.sort_by_key(|line| line.time);
    let mut out = BufWriter::new(io::stdout().lock());
    let style = colours::style().colours;
    for line in &lines {
        writeln!(out, "{}", text(line, style))?;
    }
    Ok(out.flush()?)
}

fn lines_of(append: &Append, filter: &Filter) -> Vec<Line> {
    if !filter.has(&append.key, &append.info) {
        return Vec::new();
    }
    let lines = append.text.lines().filter_map(line::split);
    lines
        .filter(|(time, _)| filter.since.is_none_or(|since| *time >= since))
        .map(|(time, text)| Line {
            key: append.key.clone(),
            info: append.info.clone(),
            time,
            text: text.to_owned(),
        })
        .collect()
}

/// A line as it is shown. Control characters of a log could change what the terminal shows.
fn text(line: &Line, colours: bool) -> String {
    let key = &line.key.container;
    let name = format!("{}/{}", key.pod, key.container);
    let name = if colours {
        let number = usize::from(name.bytes().fold(0_u8, u8::wrapping_add)) % COLOURS.len();
        format!("\u{1b}[{}m{name}\u{1b}[0m", COLOURS[number])
    } else {
        name
    };
    let time = line::timestamp(line.time).strftime("%Y-%m-%dT%H:%M:%S%.3fZ");
    format!("{time} {name} {}", api::quoted::printable(&line.text, line::LONGEST))
}

#[cfg(test)]
mod tests {
    use logs::{Class, StreamInfo, StreamKey, key::ContainerKey};

    use super::*;

    fn line(text: &str) -> Line {
        Line {
            key: StreamKey {
                container: ContainerKey::new("ns", "pod-1", "u-1", "apply").unwrap(),
                instance: 0,
            },
            info: StreamInfo {
                class: Class::Own,
                component: "pre-drain".to_owned(),
                node: None,
            },
            time: 1_773_374_229_123_456_789,
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_line_has_its_time_and_pod_and_cannot_change_the_terminal() {
        assert_eq!(
            text(&line("step 1 of 9"), false),
            "2026-03-13T03:57:09.123Z pod-1/apply step 1 of 9"
        );
        let hostile = text(&line("\u{1b}[2Jgone"), false);
        assert!(!hostile.contains('\u{1b}'), "{hostile:?}");
        assert!(text(&line("x"), true).contains("\u{1b}[0m x"));
    }

    #[test]
    fn since_is_a_duration_or_a_time() {
        assert_eq!(since("10m").unwrap(), Since::Ago(SignedDuration::from_mins(10)));
        assert!(matches!(since("2026-03-13T03:57:09Z").unwrap(), Since::Moment(_)));
        for wrong in ["", "soon", "-10m"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}
