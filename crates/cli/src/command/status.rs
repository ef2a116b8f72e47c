//! `status`: how far an upgrade is, what it does, what it waits for, and when it ends. It reads and changes nothing.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};

use api::{Phase, UpgradePlan};
use checks::finding::{Report, Severity};
use clap::ValueEnum;
use clock::Clock;
use futures::StreamExt;
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use serde::Serialize;
use snapshot::Snapshot;
use view::{
    report,
    status::{self, StatusView, lines, text::Layout},
};

use super::{
    cluster_args::{ClusterArgs, block_on, look, now},
    colours,
};
use crate::rehearsal::{Bars, follow::View};

/// Nothing can be shown: there is no such plan, or it cannot be read.
pub(super) const CANNOT_SHOW: u8 = 3;
/// How often the clock on a terminal moves.
const TICK: Duration = Duration::from_millis(250);
/// How old the picture of nodes and VMs may be that documents are made from.
const AGAIN: Duration = Duration::from_secs(5);
/// Columns of what is no terminal.
const WIDTH: usize = 100;

/// Which upgrade to show.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 the upgrade makes progress, waits for a user, or has succeeded; 1 it failed, is stalled or degraded; \
    2 wrong usage; 3 there is no such UpgradePlan, it was deleted meanwhile, or the cluster cannot be read.\n\n\
    Examples:\n  \
    upgrade-toolkit status                         the upgrade that runs, or the last one\n  \
    upgrade-toolkit status -w                      follow it until it ends\n  \
    upgrade-toolkit status hvst-upgrade -o json    for scripts\n  \
    upgrade-toolkit status --snapshot bundle.zip   as it was in a support bundle"
)]
pub(super) struct Args {
    /// UpgradePlan to show; without it the one that runs, else the newest
    plan: Option<String>,
    /// Follow the upgrade until it ends: live on a terminal, else a line per change
    #[arg(short, long, conflicts_with = "snapshot")]
    watch: bool,
    /// How to print it; with --watch, a JSON line or a YAML document per change
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For scripts
    Json,
    /// For scripts
    Yaml,
}

/// What scripts get.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    view: &'a StatusView,
    #[serde(skip_serializing_if = "Option::is_none")]
    insights: Option<&'a Report>,
}

/// Nothing can be shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum Nothing {
    #[error("there is no UpgradePlan: create one to start an upgrade")]
    NoPlan,
    #[error("there is no UpgradePlan {name}; there are: {others}")]
    NoSuchPlan { name: String, others: String },
    #[error("failed to list UpgradePlans: {0}")]
    Unknown(String),
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shown = if args.watch {
        block_on(follow(args))?
    } else {
        show(args)
    };
    match shown {
        Ok(code) => Ok(code),
        Err(error) => {
            super::report(&error);
            Ok(ExitCode::from(CANNOT_SHOW))
        }
    }
}

fn show(args: &Args) -> anyhow::Result<ExitCode> {
    let snapshot = args.cluster.load()?;
    let plan = chosen(&snapshot, args.plan.as_deref())?;
    let view = status::of_plan(&snapshot, plan);
    print(args, &snapshot, &view)
}

/// The plan to show.
pub(super) fn chosen<'a>(snapshot: &'a Snapshot, name: Option<&str>) -> Result<&'a UpgradePlan, Nothing> {
    let plans = snapshot
        .plans
        .as_ref()
        .map_err(|why| Nothing::Unknown(why.to_string()))?;
    if let Some(plan) = status::choose(plans, name) {
        return Ok(plan);
    }
    let shown = |name: &str| api::quoted::plain(name, api::quoted::LONGEST_NAME);
    let others: Vec<String> = plans.iter().map(|plan| shown(&plan.name_any())).collect();
    match name.filter(|_| !others.is_empty()) {
        Some(name) => Err(Nothing::NoSuchPlan {
            name: shown(name),
            others: others.join(", "),
        }),
        None => Err(Nothing::NoPlan),
    }
}

/// What doctor finds in the cluster.
fn insights(snapshot: &Snapshot) -> Option<Report> {
    Some(checks::doctor::explain(snapshot))
}

fn print(args: &Args, snapshot: &Snapshot, view: &StatusView) -> anyhow::Result<ExitCode> {
    let insights = insights(snapshot);
    let document = Document {
        view,
        insights: insights.as_ref(),
    };
    let text = match args.output {
        Output::Json => serde_json::to_string_pretty(&document)? + "\n",
        Output::Yaml => serde_saphyr::to_string(&document)?,
        Output::Text => {
            let layout = layout();
            let mut text = status::text::text(view, layout);
            if let Some(report) = insights.as_ref() {
                text.push_str("\nInsights\n");
                if report.findings.is_empty() && report.not_checked.is_empty() {
                    text.push_str("nothing is wrong\n");
                } else {
                    text.push_str(&report::text(report, view.at, layout.style));
                }
            }
            text
        }
    };
    super::print(&text)?;
    let found = insights.is_some_and(|report| report.count(Severity::Error) > 0);
    Ok(code(view, found))
}

/// A person should look, or not.
fn code(view: &StatusView, found: bool) -> ExitCode {
    if view.assessment.needs_attention() || found {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn layout() -> Layout {
    let is_terminal = io::stdout().is_terminal();
    let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    Layout {
        width: width.filter(|_| is_terminal).unwrap_or(WIDTH),
        style: colours::style(),
    }
}

async fn follow(args: &Args) -> anyhow::Result<ExitCode> {
    let clock = Clock::system();
    let client = args.cluster.client().await?;
    let mut snapshot = look(&client).await;
    let first = chosen(&snapshot, args.plan.as_deref())?.clone();
    let mut shown = Shown::new(args.output);
    let mut newest = first;
    let mut plans = plans(&client, &newest.name_any());
    let mut ticks = tokio::time::interval(TICK);
    let mut was_lost = false;
    let mut taken = clock.elapsed();
    loop {
        // Nodes and VMs change with the plan: documents show both as they are.
        if args.output != Output::Text && clock.elapsed().saturating_sub(taken) >= AGAIN {
            snapshot = look(&client).await;
            taken = clock.elapsed();
        }
        snapshot.taken_at = now(&client).await;
        let (looked_at, looked) = (snapshot.taken_at, clock.elapsed());
        // The time of the cluster, as far as this machine knows it between two answers.
        let time = || {
            looked_at
                .saturating_add(clock.elapsed().saturating_sub(looked))
                .unwrap_or(looked_at)
        };
        shown.show(&snapshot, &newest)?;
        if newest.phase().is_some_and(Phase::is_terminal) && newest.finalizers().is_empty() {
            break;
        }
        newest = loop {
            tokio::select! {
                biased;
                next = plans.next() => match next {
                    Some(Ok(Some(plan))) => { was_lost = false; break plan }
                    Some(Ok(None)) => {
                        shown.end();
                        anyhow::bail!("UpgradePlan {} was deleted", newest.name_any());
                    }
                    Some(Err(error)) => {
                        if !std::mem::replace(&mut was_lost, true) {
                            shown.say(time(), &format!("no answer, trying again: {error}"));
                        }
                    }
                    None => return Ok(ExitCode::from(CANNOT_SHOW)),
                },
                _ = ticks.tick() => shown.tick(time()),
            }
        };
    }
    shown.end();
    if args.output != Output::Text {
        return Ok(code(&status::of_plan(&snapshot, &newest), false));
    }
    // What is at the end: nodes and VMs as they are now.
    let snapshot = look(&client).await;
    print(args, &snapshot, &status::of_plan(&snapshot, &newest))
}

type Plans = futures::stream::BoxStream<'static, Result<Option<UpgradePlan>, watcher::Error>>;

/// Every version of a plan from now on; nothing when it is gone.
fn plans(client: &Client, name: &str) -> Plans {
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let stream = watcher(Api::<UpgradePlan>::all(client.clone()), only);
    let mut is_there = false;
    let versions = stream.default_backoff().filter_map(move |event| {
        let version = match event {
            Ok(watcher::Event::Apply(plan) | watcher::Event::InitApply(plan)) => {
                is_there = true;
                Some(Ok(Some(plan)))
            }
            Ok(watcher::Event::Init) => {
                is_there = false;
                None
            }
            Ok(watcher::Event::InitDone) => (!is_there).then_some(Ok(None)),
            Ok(watcher::Event::Delete(_)) => Some(Ok(None)),
            Err(error) => Some(Err(error)),
        };
        std::future::ready(version)
    });
    versions.boxed()
}

/// How a running upgrade is shown.
enum Shown {
    /// Bars on a terminal.
    Bars(View),
    /// A line, or a document, per change.
    Lines {
        output: Output,
        before: Option<Box<StatusView>>,
    },
}

impl Shown {
    fn new(output: Output) -> Self {
        if output == Output::Text && io::stdout().is_terminal() && io::stderr().is_terminal() {
            Self::Bars(View::Bars(Box::<Bars>::default()))
        } else {
            Self::Lines { output, before: None }
        }
    }

    fn show(&mut self, snapshot: &Snapshot, plan: &UpgradePlan) -> anyhow::Result<()> {
        let (output, before) = match self {
            Self::Bars(bars) => {
                bars.show(snapshot.taken_at, plan);
                return Ok(());
            }
            Self::Lines { output, before } => (*output, before),
        };
        let mut view = status::of_plan(snapshot, plan);
        // What was shown never decreases either.
        view.percent = view.percent.max(before.as_ref().map_or(0, |before| before.percent));
        let changes = lines::changes(before.as_deref(), &view);
        let insights = insights(snapshot).filter(|_| output != Output::Text && !changes.is_empty());
        let document = Document {
            view: &view,
            insights: insights.as_ref(),
        };
        match output {
            _ if changes.is_empty() => {}
            Output::Text => super::print(&(changes.join("\n") + "\n"))?,
            Output::Json => super::print(&(serde_json::to_string(&document)? + "\n"))?,
            Output::Yaml => super::print(&format!("---\n{}", serde_saphyr::to_string(&document)?))?,
        }
        *before = Some(Box::new(view));
        Ok(())
    }

    fn say(&self, now: Timestamp, text: &str) {
        let text = api::quoted::printable(text, api::quoted::LONGEST_MESSAGE);
        match self {
            Self::Bars(bars) => bars.say(now, &text),
            Self::Lines { .. } => super::warn(&text),
        }
    }

    fn tick(&mut self, now: Timestamp) {
        if let Self::Bars(bars) = self {
            bars.tick(now);
        }
    }

    fn end(&mut self) {
        if let Self::Bars(bars) = self {
            bars.end();
        }
    }
}
