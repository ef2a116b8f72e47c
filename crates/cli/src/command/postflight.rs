//! `postflight`: what is worse than before an upgrade. It compares the record of the plan, or a snapshot that was saved before, with
//! the cluster as it is. It reads and changes nothing.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::Context;
use api::{Phase, UpgradePlan};
use checks::{
    finding::{Report, Severity},
    postflight::{self, Record, Target, stored},
};
use clap::ValueEnum;
use snapshot::Snapshot;
use view::{report, style::Style};

use super::{
    cluster_args::ClusterArgs,
    status::{CANNOT_SHOW, chosen},
};

/// Which upgrade to look back on.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 nothing is worse than before, or only warnings; 1 errors; 2 wrong usage; 3 there is no such \
    UpgradePlan, it has no record, or the cluster cannot be read.\n\n\
    Examples:\n  \
    upgrade-toolkit postflight                        the upgrade that runs, or the last one\n  \
    upgrade-toolkit postflight hvst-upgrade -o json   for scripts\n  \
    upgrade-toolkit postflight --before before.zst    compare with a snapshot that was saved before the upgrade\n  \
    upgrade-toolkit postflight --snapshot bundle.zip  as it was in a support bundle"
)]
pub(super) struct Args {
    /// UpgradePlan to look back on; without it the one that runs, else the newest
    plan: Option<String>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Compare with this snapshot, which was saved before the upgrade, instead of the record of the plan
    #[arg(long, value_name = "FILE|BUNDLE|FOLDER", value_hint = clap::ValueHint::AnyPath)]
    before: Option<PathBuf>,
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

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let compared = args.cluster.load().and_then(|snapshot| {
        let plan = chosen(&snapshot, args.plan.as_deref())?;
        let report = compare(args, &snapshot, plan)?;
        print(args, &snapshot, plan, &report)?;
        Ok(report)
    });
    match compared {
        Ok(report) if report.count(Severity::Error) > 0 => Ok(ExitCode::FAILURE),
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            super::report(&error);
            Ok(ExitCode::from(CANNOT_SHOW))
        }
    }
}

fn compare(args: &Args, snapshot: &Snapshot, plan: &UpgradePlan) -> anyhow::Result<Report> {
    let before = match &args.before {
        Some(path) => Record::of(&snapshot::load(path)?),
        None => recorded(snapshot, plan)?,
    };
    Ok(postflight::compare_with(&before, snapshot, &Target::of(plan)))
}

/// The record of the plan.
fn recorded(snapshot: &Snapshot, plan: &UpgradePlan) -> anyhow::Result<Record> {
    let maps = snapshot.config_maps.as_ref().map_err(Clone::clone);
    let maps = maps.context("failed to list ConfigMaps")?;
    stored::record(&plan.metadata, maps)?.context(
        "the plan has no record of the cluster before it: compare with a snapshot that was saved before the upgrade, with \
         --before FILE",
    )
}

fn print(args: &Args, snapshot: &Snapshot, plan: &UpgradePlan, found: &Report) -> anyhow::Result<()> {
    let text = match args.output {
        Output::Json => report::json(found)?,
        Output::Yaml => report::yaml(found)?,
        Output::Text => {
            let is_terminal = io::stdout().is_terminal();
            let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let style = Style {
                colours: is_terminal && !no_color,
            };
            let note = if plan.phase().is_some_and(Phase::is_terminal) {
                ""
            } else {
                "The upgrade has not ended: what it has changed for now is shown as well.\n\n"
            };
            format!("{note}{}", report::text(found, snapshot.taken_at, style))
        }
    };
    super::print(&text)
}
