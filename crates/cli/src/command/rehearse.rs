//! `rehearse`: a whole upgrade on an embedded, simulated cluster, by the real manager.

use std::{
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail};
use api::{NodeState, Phase, UpgradePlan};
use clap::{CommandFactory, ValueEnum, error::ErrorKind};
use clock::Clock;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use world::{ProgramStep, Shape};

use super::{manager::terminated, rehearse_serve};
use crate::rehearsal::{Bars, Rehearsal, Scenario, beginning, follow::View, summary};

/// How long a node is paused before the rehearsed administrator resumes it.
const PAUSED_FOR: Duration = Duration::from_secs(30 * 60);
/// How often the clock on a terminal moves.
const TICK: Duration = Duration::from_millis(250);
/// Speed of a served rehearsal when none is given.
const SERVED_SPEED: f64 = 60.0;
/// Up to this speed the manager uses leader election: it then has a third of a second to renew its lease.
const LEASE_SPEED: f64 = 60.0;

/// What to rehearse.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 the upgrade succeeded, 1 it failed or did not end, 2 wrong usage.\n\n\
    Examples:\n  \
    upgrade-toolkit rehearse                                    three nodes, at once\n  \
    upgrade-toolkit rehearse --nodes 5 --vms 20                 more of everything\n  \
    upgrade-toolkit rehearse --steps                            with every step of every program\n  \
    upgrade-toolkit rehearse --nodes 1 -o yaml                  a single node; prints the final UpgradePlan\n  \
    upgrade-toolkit rehearse --speed 60 --serve 127.0.0.1:8001  a minute per second, for kubectl"
)]
pub(super) struct Args {
    /// Nodes of the cluster: up to three control planes, the rest workers; 1 is a single-node cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    nodes: u16,
    /// One of the nodes is a witness
    #[arg(long)]
    witness: bool,
    /// VMs in the cluster; two per node when not given
    #[arg(long)]
    vms: Option<u16>,
    /// Version that runs before the upgrade
    #[arg(long, value_name = "VERSION", default_value = "v1.7.1")]
    from: String,
    /// Version to upgrade to
    #[arg(long, value_name = "VERSION", default_value = "v1.8.0")]
    to: String,
    /// Upgrade with a VirtualMachineImage of this name instead of a Version
    #[arg(long, value_name = "NAME")]
    image: Option<String>,
    /// Seed of all random values; the same seed gives the same rehearsal
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Start the VMs again that were shut down for the upgrade; with =false admission refuses VMs that cannot migrate
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1,
          default_missing_value = "true", require_equals = true)]
    restore_vm: bool,
    /// Pause this node before its upgrade, and resume it after half an hour; may be given several times
    #[arg(long, value_name = "NODE")]
    pause: Vec<String>,
    /// Run this many times as fast as real time
    #[arg(long, value_name = "N", conflicts_with = "instant")]
    speed: Option<f64>,
    /// Run as fast as possible (the default)
    #[arg(long)]
    instant: bool,
    /// Serve the cluster on this loopback address for kubectl, until Ctrl-C
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
    /// What to print on standard output at the end; progress then goes to standard error
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Progress and a summary
    Text,
    /// The final UpgradePlan
    Json,
    /// The final UpgradePlan
    Yaml,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shape = Shape {
        nodes: usize::from(args.nodes),
        witness: args.witness,
        vms: usize::from(args.vms.unwrap_or(args.nodes.saturating_mul(2))),
        from: args.from.clone(),
        to: args.to.clone(),
        image: args.image.clone(),
        seed: args.seed,
    };
    check(args, &shape);
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
    runtime.block_on(async {
        let clock = Clock::simulated(beginning(), speed.unwrap_or(1.0));
        let work = rehearse(args, shape, clock, speed, view.clone());
        if speed.is_none() {
            return work.await;
        }
        tokio::select! {
            biased;
            // Not only Ctrl-C: files for kubectl are removed however this ends.
            () = terminated() => {
                view.lock().unwrap_or_else(PoisonError::into_inner).end();
                // Serving has no other end; an upgrade that was cut off has not succeeded.
                Ok(if args.serve.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            result = work => result,
        }
    })
}

/// What clap cannot check; ends the program with exit code 2.
fn check(args: &Args, shape: &Shape) {
    let problem = if args.speed.is_some_and(|speed| !speed.is_finite() || speed <= 0.0) {
        Some("--speed must be a number greater than 0".to_owned())
    } else if args.serve.is_some_and(|address| !address.ip().is_loopback()) {
        Some("--serve must be a loopback address such as 127.0.0.1:8001".to_owned())
    } else if args.witness && args.nodes < 3 {
        Some("--witness needs at least 3 --nodes".to_owned())
    } else {
        let names = shape.node_names();
        let unknown = args.pause.iter().find(|name| !names.contains(name));
        unknown.map(|name| {
            format!(
                "--pause {name}: the cluster has no such node; its nodes are {}",
                names.join(", ")
            )
        })
    };
    if let Some(problem) = problem {
        let mut cli = super::Cli::command();
        cli.build();
        let mut command = cli.find_subcommand("rehearse").cloned().unwrap_or(cli);
        command.error(ErrorKind::ValueValidation, problem).exit();
    }
}

async fn rehearse(
    args: &Args,
    shape: Shape,
    clock: Clock,
    speed: Option<f64>,
    view: Arc<Mutex<View>>,
) -> anyhow::Result<ExitCode> {
    let (nodes, vms) = (shape.nodes, shape.vms);
    let rehearsal = Rehearsal::start(
        Scenario {
            shape,
            open: args.serve.is_some(),
            ..Scenario::default()
        },
        clock.clone(),
    )
    .await?;
    // This run does not need the history of writes; the plan of a large cluster alone would fill memory.
    rehearsal.server.store().set_history_limit(0);
    // Removed when this function ends, or is cut off by Ctrl-C.
    let _kubeconfig = match args.serve {
        Some(address) => Some(rehearse_serve::serve(&rehearsal, address, args.token.as_deref(), &view).await?),
        None => None,
    };
    if args.steps {
        let view = view.clone();
        rehearsal.observe_steps(move |step| {
            let view = view.lock().unwrap_or_else(PoisonError::into_inner);
            view.say(step.at, &step_line(step));
        });
    }
    let manager = match speed {
        None => rehearsal.start_only_manager(),
        Some(speed) if speed > LEASE_SPEED => rehearsal.start_lone_manager(),
        Some(_) => rehearsal.start_manager("rehearsal"),
    };
    if args.no_plan {
        std::future::pending::<()>().await;
    }
    let plan = rehearsal.create(&rehearsal.plan(args.restore_vm, &args.pause)).await?;
    let name = plan.name_any();
    let ticker = speed.map(|_| tokio::spawn(tick(clock.clone(), view.clone())));
    let limit = longest(nodes, vms);
    let look = |plan: &UpgradePlan| {
        view.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .show(clock.now(), plan);
        plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty()
    };
    let followed = rehearsal.follow(&name, args.serve.is_none().then_some(limit), look);
    let ended = tokio::select! {
        biased;
        ended = followed => ended,
        error = administer(&rehearsal, &name, args.serve.is_some(), &view) => return Err(error),
    };
    view.lock().unwrap_or_else(PoisonError::into_inner).end();
    if let Some(ticker) = ticker {
        ticker.abort();
    }
    let plan = match &ended {
        Some(plan) => (**plan).clone(),
        None => rehearsal.read(&name).await?,
    };
    if ended.is_none() {
        say_that_it_gives_up(limit);
    }
    settle(&rehearsal, &clock).await;
    print(&rehearsal, &plan, args.output)?;
    if args.serve.is_some() {
        view.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .say(clock.now(), "still serving; Ctrl-C ends");
        std::future::pending::<()>().await;
    }
    manager.abort();
    rehearsal.stop();
    Ok(if plan.phase() == Some(Phase::Succeeded) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Far longer than any upgrade that makes progress: two VMs leave a node at a time, and many leave more than one.
fn longest(nodes: usize, vms: usize) -> Duration {
    let times = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
    Duration::from_hours(24) + Duration::from_hours(2) * times(nodes) + Duration::from_secs(90) * times(vms)
}

/// A step that begins, in one line.
fn step_line(step: &ProgramStep) -> String {
    let ProgramStep {
        program, node, step, ..
    } = step;
    format!(
        "    {program} {node}: step {} of {}: {}",
        step.number, step.count, step.name
    )
}

/// Jobs that start VMs again, and the last events, may still be on their way when the plan has ended.
async fn settle(rehearsal: &Rehearsal, clock: &Clock) {
    for _ in 0..60 {
        let running = rehearsal.objects("batch", "jobs").iter().any(|job| {
            job.labels().contains_key(api::labels::UPGRADE_PLAN) && job.data["status"]["conditions"].is_null()
        });
        clock.sleep(Duration::from_secs(10)).await;
        if !running {
            return;
        }
    }
}

async fn tick(clock: Clock, view: Arc<Mutex<View>>) {
    loop {
        tokio::time::sleep(TICK).await;
        view.lock().unwrap_or_else(PoisonError::into_inner).tick(clock.now());
    }
}

/// The rehearsed administrator: resumes paused nodes after a while. With `--serve`, the user does that.
async fn administer(rehearsal: &Rehearsal, name: &str, served: bool, view: &Mutex<View>) -> anyhow::Error {
    if served {
        return std::future::pending().await;
    }
    loop {
        let paused = rehearsal
            .follow(name, None, |plan| {
                plan.status
                    .iter()
                    .any(|s| s.node_upgrade_statuses.values().any(is_paused))
            })
            .await;
        let Some(paused) = paused else { continue };
        rehearsal.clock.sleep(PAUSED_FOR).await;
        let paused: Vec<String> = paused
            .status
            .iter()
            .flat_map(|status| &status.node_upgrade_statuses)
            .filter(|(_, node)| is_paused(node))
            .map(|(name, _)| name.clone())
            .collect();
        if let Err(error) = resume(rehearsal, name, &paused, view).await {
            return error;
        }
    }
}

/// The node is paused. A resumed node keeps its state until its turn has come, with another reason.
fn is_paused(node: &api::NodeUpgradeStatus) -> bool {
    node.is(NodeState::UpgradePaused) && node.reason.as_deref() == Some(api::reasons::ADMINISTRATIVELY_PAUSED)
}

async fn resume(rehearsal: &Rehearsal, name: &str, paused: &[String], view: &Mutex<View>) -> anyhow::Result<()> {
    let plan = rehearsal.read(name).await?;
    let Some(names) = plan.spec.node_upgrade_option.and_then(|option| option.pause_nodes) else {
        bail!(
            "nodes {} are paused although the plan pauses no node",
            paused.join(", ")
        )
    };
    let left: Vec<_> = names.into_iter().filter(|name| !paused.contains(name)).collect();
    let plans: Api<UpgradePlan> = Api::all(rehearsal.server.client());
    let patch = json!({"spec": {"nodeUpgradeOption": {"pauseNodes": left}}});
    plans
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .context("failed to resume nodes")?;
    let text = format!("administrator resumes {}", paused.join(", "));
    view.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .say(rehearsal.clock.now(), &text);
    let is_gone = |plan: &UpgradePlan| {
        let states = plan.status.iter().flat_map(|status| &status.node_upgrade_statuses);
        states
            .filter(|(name, _)| paused.contains(name))
            .all(|(_, node)| !is_paused(node))
    };
    rehearsal.follow(name, None, is_gone).await;
    Ok(())
}

/// Prints the result that the user requested.
fn print(rehearsal: &Rehearsal, plan: &UpgradePlan, output: Output) -> anyhow::Result<()> {
    let mut plan = plan.clone();
    plan.metadata.managed_fields = None;
    let text = match output {
        Output::Text => summary::summarize(rehearsal, &plan),
        Output::Json => serde_json::to_string_pretty(&plan)? + "\n",
        Output::Yaml => serde_saphyr::to_string(&plan).context("failed to write YAML")?,
    };
    match io::stdout().write_all(text.as_bytes()) {
        // A reader that has seen enough (`| head`) is no failure of the upgrade.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("failed to print the result"),
        _ => Ok(()),
    }
}

#[allow(clippy::print_stderr, reason = "the edge, where errors reach a person")]
fn say_that_it_gives_up(limit: Duration) {
    let hours = limit.as_secs() / 3600;
    eprintln!("the upgrade did not end within {hours} hours of cluster time: the rehearsal gives up");
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(3, 6)]
    #[case(3, 3_200)]
    #[case(3, 65_535)]
    fn r33_a_rehearsal_waits_longer_than_all_its_vms_take_to_leave_their_nodes(
        #[case] nodes: usize,
        #[case] vms: usize,
    ) {
        // Two at a time, 25 s each, and a third of them twice.
        let leaving = Duration::from_secs(25) * u32::try_from(vms).unwrap() / 2 * 4 / 3;
        assert!(longest(nodes, vms) > leaving * 2);
    }
}
