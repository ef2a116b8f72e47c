//! `rehearse`: a whole upgrade on an embedded, simulated cluster, by the real manager.

use std::{
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use clap::{ValueEnum, error::ErrorKind};
use clock::Clock;
use world::Shape;

use super::{
    manager::terminated,
    rehearse_run::{Request, rehearse},
    rehearse_snapshot,
};
use crate::rehearsal::{
    Bars, beginning,
    follow::View,
    trouble::{self, Chosen, Scene},
};

/// Speed of a served rehearsal when none is given.
const SERVED_SPEED: f64 = 60.0;
/// Faster than that, an upgrade does not keep up with its own deadlines; slower, it takes days.
const SPEEDS: std::ops::RangeInclusive<f64> = 0.01..=3600.0;

/// What to rehearse.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 the upgrade succeeded, 1 it failed or did not end, 2 wrong usage. With --snapshot: 0 it would \
    succeed, 1 it would be refused, blocked or fail, 2 wrong usage, 3 the snapshot could not be read.\n\n\
    Examples:\n  \
    upgrade-toolkit rehearse                                    three nodes, at once\n  \
    upgrade-toolkit rehearse --nodes 5 --vms 20                 more of everything\n  \
    upgrade-toolkit rehearse --steps                            with every step of every program\n  \
    upgrade-toolkit rehearse --nodes 1 -o yaml                  a single node; prints the final UpgradePlan\n  \
    upgrade-toolkit rehearse --logs logs.zip                    and keep what its pods say\n  \
    upgrade-toolkit rehearse --trouble list                     what can go wrong\n  \
    upgrade-toolkit rehearse --trouble drain-blocked=node-2     practise a failure\n  \
    upgrade-toolkit rehearse --speed 60 --serve 127.0.0.1:8001  a minute per second, for kubectl\n  \
    upgrade-toolkit rehearse --snapshot live                    a forecast for your cluster, which is only read\n  \
    upgrade-toolkit rehearse --snapshot bundle.zip -o markdown  a forecast from a support bundle, for a change request"
)]
pub(super) struct Args {
    /// Nodes of the cluster: up to three control planes, the rest workers; 1 is a single-node cluster
    #[arg(long, default_value_t = 3, allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1000))]
    nodes: u16,
    /// Make one node an etcd witness
    #[arg(long)]
    witness: bool,
    /// VMs in the cluster; two per node when not given
    #[arg(long, allow_negative_numbers = true)]
    vms: Option<u16>,
    /// Version that runs before the upgrade; v1.7.1 when not given, or that of the snapshot
    #[arg(long, value_name = "VERSION")]
    pub(super) from: Option<String>,
    /// Version to upgrade to; v1.8.0 when not given, or the newest Version of the snapshot
    #[arg(long, value_name = "VERSION")]
    pub(super) to: Option<String>,
    /// Upgrade with a VirtualMachineImage of this name instead of a Version
    #[arg(long, value_name = "NAME")]
    image: Option<String>,
    /// Seed of all random values; the same seed gives the same rehearsal
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Start the VMs again that were shut down for the upgrade; with =false admission refuses VMs that cannot migrate
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1,
          default_missing_value = "true", require_equals = true)]
    pub(super) restore_vm: bool,
    /// Pause this node before its upgrade, and resume it half an hour after its turn has come; may be given several times
    #[arg(long, value_name = "NODE")]
    pause: Vec<String>,
    /// Cause this failure; may be given several times. `list` explains what there is. The id of a situation of doctor works too
    #[arg(long, value_name = "NAME[=OBJECT][@PHASE]")]
    trouble: Vec<String>,
    /// Run N times faster than real time, 0.01 to 3600; with --serve 60 unless given
    #[arg(long, value_name = "N", conflicts_with = "instant")]
    speed: Option<f64>,
    /// Run as fast as possible (the default without --serve)
    #[arg(long)]
    instant: bool,
    /// Serve the cluster on this loopback address for kubectl, until Ctrl-C; a minute of the cluster takes a second
    #[arg(long, value_name = "ADDR", conflicts_with = "instant")]
    serve: Option<SocketAddr>,
    /// Require this token; without a value, a random one. The kubeconfig has it
    #[arg(long, value_name = "TOKEN", requires = "serve", num_args = 0..=1, default_missing_value = "")]
    token: Option<String>,
    /// Only serve: you create the UpgradePlan
    #[arg(long, requires = "serve")]
    no_plan: bool,
    /// Also print every step that the programs on nodes and in Jobs begin, as their logs do in a real cluster
    #[arg(long)]
    steps: bool,
    /// Write the logs of the upgrade to this archive, as `logs download` does for a real one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["serve", "snapshot"], value_hint = clap::ValueHint::FilePath)]
    logs: Option<PathBuf>,
    /// What to print on standard output at the end; progress then goes to standard error
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) snapshot: rehearse_snapshot::SnapshotArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Progress and a summary, or the forecast
    Text,
    /// The final UpgradePlan, the forecast, or the list of troubles
    Json,
    /// The final UpgradePlan, or the forecast
    Yaml,
    /// The forecast, for a change request
    Markdown,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.trouble.iter().any(|name| name == "list") {
        return list(args.output);
    }
    if args.snapshot.is_given() {
        return rehearse_snapshot::run(args);
    }
    let usual = Shape::default();
    let shape = Shape {
        nodes: usize::from(args.nodes),
        witness: args.witness,
        vms: usize::from(args.vms.unwrap_or(args.nodes.saturating_mul(2))),
        from: args.from.clone().unwrap_or(usual.from),
        to: args.to.clone().unwrap_or(usual.to),
        image: args.image.clone(),
        seed: args.seed,
        layout: None,
    };
    let troubles = check(args, &shape).unwrap_or_else(|problem| refuse(&problem.to_string()));
    let speed = args.speed.or(args.serve.map(|_| SERVED_SPEED));
    let runtime = match speed {
        // Nothing but this process takes part, so time can jump from one timer to the next.
        None => tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()?,
        Some(_) => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?,
    };
    let view = if io::stderr().is_terminal() {
        View::Bars(Box::<Bars>::default())
    } else {
        View::Lines {
            before: None,
            to_stderr: args.output != Output::Text,
        }
    };
    let view = Arc::new(Mutex::new(view));
    let request = Request {
        shape,
        restore_vm: args.restore_vm,
        pause: args.pause.clone(),
        troubles,
        speed,
        serve: args.serve,
        token: args.token.clone(),
        no_plan: args.no_plan,
        steps: args.steps,
        logs: args.logs.clone(),
        output: args.output,
    };
    let unfinished = Arc::default();
    runtime.block_on(async {
        let clock = Clock::simulated(beginning(), speed.unwrap_or(1.0));
        let work = rehearse(&request, clock, view.clone(), &unfinished);
        if speed.is_none() {
            return work.await;
        }
        tokio::select! {
            biased;
            // Not only Ctrl-C: files for kubectl are removed however this ends.
            () = terminated() => {
                view.lock().unwrap_or_else(PoisonError::into_inner).end();
                // Serving has no other end; an upgrade that was cut off has not succeeded.
                let is_cut_off = unfinished.load(std::sync::atomic::Ordering::Relaxed);
                Ok(if is_cut_off || request.serve.is_none() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
            }
            result = work => result,
        }
    })
}

/// Explains the troubles.
fn list(output: Output) -> anyhow::Result<ExitCode> {
    let text = match output {
        Output::Text | Output::Markdown => trouble::as_text(),
        Output::Json => serde_json::to_string_pretty(&trouble::as_json())? + "\n",
        Output::Yaml => serde_saphyr::to_string(&trouble::as_json()).context("failed to write YAML")?,
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a result.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // A reader that has seen enough (`| head`) is no failure of the upgrade.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("failed to print the result"),
        _ => Ok(()),
    }
}

/// What is wrong with the arguments, for the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Misuse(String);

/// What clap cannot check. The troubles that were requested, or what is wrong.
fn check(args: &Args, shape: &Shape) -> Result<Vec<Chosen>, Misuse> {
    if let Some(problem) = args.snapshot.problem(args.output) {
        return Err(Misuse(problem));
    }
    if args.speed.is_some_and(|speed| !SPEEDS.contains(&speed)) {
        return Err(Misuse(format!(
            "--speed must be a number from {} to {}",
            SPEEDS.start(),
            SPEEDS.end()
        )));
    }
    if args.serve.is_some_and(|address| !address.ip().is_loopback()) {
        return Err(Misuse(
            "--serve must be a loopback address such as 127.0.0.1:8001".to_owned(),
        ));
    }
    if args.witness && args.nodes < 3 {
        return Err(Misuse("--witness needs at least 3 --nodes".to_owned()));
    }
    let names = shape.node_names();
    if let Some(name) = args.pause.iter().find(|name| !names.contains(name)) {
        let names = names.join(", ");
        return Err(Misuse(format!(
            "--pause {name}: the cluster has no such node; its nodes are {names}"
        )));
    }
    check_versions(&shape.from, &shape.to)?;
    let scene = Scene::of(shape, args.serve.is_some());
    let chosen = args.trouble.iter().map(|text| trouble::choose(text, &scene));
    chosen
        .collect::<Result<_, _>>()
        .map_err(|problem| Misuse(problem.to_string()))
}

/// Harvester is upgraded within a minor version, or to the next one.
fn check_versions(from: &str, to: &str) -> Result<(), Misuse> {
    let line = |flag: &str, version: &str| {
        let line = rules::version::line(version);
        line.ok_or_else(|| Misuse(format!("{flag} {version}: this is no version such as v1.8.0")))
    };
    let ((major, minor), target) = (line("--from", from)?, line("--to", to)?);
    if let Err(why) = rules::version::check(from, to, "", false) {
        return Err(Misuse(format!("--to {to}: {from} cannot be upgraded to {to}: {why}")));
    }
    let next = [(major, minor), (major, minor + 1), (major + 1, 0)];
    if !next.contains(&target) {
        return Err(Misuse(format!(
            "--to {to}: {from} cannot be upgraded to {to}: a minor version must not be skipped (from {from}, the next is v{major}.{}.0)",
            minor + 1
        )));
    }
    Ok(())
}

/// Ends the program with exit code 2.
pub(super) fn refuse(problem: &str) -> ! {
    let mut cli = super::help::command();
    cli.build();
    let mut command = cli.find_subcommand("rehearse").cloned().unwrap_or(cli);
    command.error(ErrorKind::ValueValidation, problem).exit()
}
