//! The run of a rehearsal: starts the cluster and the manager, follows plans, prints what came of them.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use api::{Phase, UpgradePlan};
use clock::Clock;
use kube::ResourceExt;
use tokio::task::JoinHandle;
use world::{ProgramStep, Shape};

use super::{
    rehearse::{Output, print},
    rehearse_logs, rehearse_serve,
};
use crate::rehearsal::{
    Rehearsal, Scenario, administrator,
    follow::View,
    has_ended, summary,
    trouble::{
        Chosen,
        act::{self, Manager},
    },
};

/// How often the clock on a terminal moves.
const TICK: Duration = Duration::from_millis(250);
/// Up to this speed the manager uses leader election: it then has a third of a second to renew its lease.
const LEASE_SPEED: f64 = 60.0;

/// What to rehearse, and how to show it.
pub(super) struct Request {
    pub(super) shape: Shape,
    pub(super) restore_vm: bool,
    pub(super) pause: Vec<String>,
    pub(super) troubles: Vec<Chosen>,
    pub(super) speed: Option<f64>,
    pub(super) serve: Option<SocketAddr>,
    pub(super) token: Option<String>,
    pub(super) no_plan: bool,
    pub(super) steps: bool,
    pub(super) logs: Option<PathBuf>,
    pub(super) output: Output,
}

/// Rehearses. While an upgrade runs, or after one that failed, `unfinished` says so.
pub(super) async fn rehearse(
    request: &Request,
    clock: Clock,
    view: Arc<Mutex<View>>,
    unfinished: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let rehearsal = Rehearsal::start(
        Scenario {
            shape: request.shape.clone(),
            troubles: act::at_start(&request.troubles),
            open: request.serve.is_some(),
            ..Scenario::default()
        },
        clock.clone(),
    )
    .await?;
    // This run does not need the history of writes; the plan of a large cluster alone would fill memory.
    rehearsal.server.store().set_history_limit(0);
    // Removed when this function ends, or is cut off by Ctrl-C.
    let _kubeconfig = match request.serve {
        Some(address) => Some(rehearse_serve::serve(&rehearsal, address, request.token.as_deref(), &view).await?),
        None => None,
    };
    if request.steps {
        let view = view.clone();
        rehearsal.observe_steps(move |step| {
            let view = view.lock().unwrap_or_else(PoisonError::into_inner);
            view.say(step.at, &step_line(step));
        });
    }
    let manager = Manager::start(|| start_manager(&rehearsal, request.speed));
    let ticker = request.speed.map(|_| tokio::spawn(tick(clock.clone(), view.clone())));
    let said = |trouble: &Chosen| {
        let text = format!("trouble: {}", trouble.describe());
        view.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .say(clock.now(), &text);
    };
    let played = act::play(&rehearsal, request.troubles.clone(), &manager, said);
    let followed = async {
        if request.serve.is_some() {
            serve(request, &rehearsal, &view, unfinished).await
        } else {
            let name = create(request, &rehearsal).await?;
            once(request, &rehearsal, &name, &view).await
        }
    };
    let result = tokio::select! {
        biased;
        // First, so that what is wrong from the start is so before there is a plan.
        error = played => Err(error),
        result = followed => result,
    };
    if let Some(ticker) = ticker {
        ticker.abort();
    }
    manager.end();
    drop(manager);
    rehearsal.stop();
    result
}

fn start_manager(rehearsal: &Rehearsal, speed: Option<f64>) -> JoinHandle<()> {
    match speed {
        None => rehearsal.start_only_manager(),
        Some(speed) if speed > LEASE_SPEED => rehearsal.start_lone_manager(),
        Some(_) => rehearsal.start_manager("rehearsal"),
    }
}

/// Creates the plan; returns its name.
async fn create(request: &Request, rehearsal: &Rehearsal) -> anyhow::Result<String> {
    let plan = rehearsal.plan(request.restore_vm, &request.pause);
    Ok(rehearsal.create(&plan).await?.name_any())
}

/// Follows a plan to its end, and prints what came of it.
async fn once(
    request: &Request,
    rehearsal: &Rehearsal,
    name: &str,
    view: &Arc<Mutex<View>>,
) -> anyhow::Result<ExitCode> {
    let limit = longest(request.shape.nodes, request.shape.vms);
    let logs = match &request.logs {
        Some(file) => Some(rehearse_logs::Collecting::start(rehearsal, name, file.clone()).await?),
        None => None,
    };
    let said = |text: &str| {
        let view = view.lock().unwrap_or_else(PoisonError::into_inner);
        view.say(rehearsal.clock.now(), text);
    };
    let ended = tokio::select! {
        biased;
        ended = follow(rehearsal, name, Some(limit), view) => ended,
        error = administrator::resume_nodes(rehearsal, name, said) => return Err(error),
    };
    view.lock().unwrap_or_else(PoisonError::into_inner).end();
    let plan = match &ended {
        Some(plan) => (**plan).clone(),
        None => rehearsal.read(name).await?,
    };
    if ended.is_none() {
        say_that_it_gives_up(limit);
    }
    settle(rehearsal).await;
    if let Some(logs) = logs {
        logs.finish(rehearsal, &plan).await?;
    }
    show_result(rehearsal, &plan, request.output)?;
    Ok(if plan.phase() == Some(Phase::Succeeded) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Serves until it is cut off: follows one plan after another, also those of users, and those that are tried again.
async fn serve(
    request: &Request,
    rehearsal: &Rehearsal,
    view: &Arc<Mutex<View>>,
    unfinished: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    if !request.no_plan {
        create(request, rehearsal).await?;
    }
    loop {
        let Some(name) = rehearsal.next_unfinished().await else {
            return Ok(ExitCode::FAILURE);
        };
        unfinished.store(true, Ordering::Relaxed);
        view.lock().unwrap_or_else(PoisonError::into_inner).begin();
        let ended = follow(rehearsal, &name, None, view).await;
        view.lock().unwrap_or_else(PoisonError::into_inner).end();
        let Some(plan) = ended else { continue };
        settle(rehearsal).await;
        show_result(rehearsal, &plan, request.output)?;
        unfinished.store(plan.phase() != Some(Phase::Succeeded), Ordering::Relaxed);
        view.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .say(rehearsal.clock.now(), "still serving; Ctrl-C ends");
    }
}

/// Shows a plan until it has ended. `None` when that takes too long, or the plan is gone.
async fn follow(
    rehearsal: &Rehearsal,
    name: &str,
    limit: Option<Duration>,
    view: &Mutex<View>,
) -> Option<Arc<UpgradePlan>> {
    let look = |plan: &UpgradePlan| {
        view.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .show(rehearsal.clock.now(), plan);
        has_ended(plan)
    };
    tokio::select! {
        biased;
        ended = rehearsal.follow(name, limit, look) => ended,
        () = rehearsal.until_gone(name) => None,
    }
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
async fn settle(rehearsal: &Rehearsal) {
    for _ in 0..60 {
        let running = rehearsal.objects("batch", "jobs").iter().any(|job| {
            job.labels().contains_key(api::labels::UPGRADE_PLAN) && job.data["status"]["conditions"].is_null()
        });
        rehearsal.clock.sleep(Duration::from_secs(10)).await;
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

/// Prints the result that the user requested.
fn show_result(rehearsal: &Rehearsal, plan: &UpgradePlan, output: Output) -> anyhow::Result<()> {
    let mut plan = plan.clone();
    plan.metadata.managed_fields = None;
    let text = match output {
        Output::Text | Output::Markdown => summary::summarize(rehearsal, &plan),
        Output::Json => serde_json::to_string_pretty(&plan)? + "\n",
        Output::Yaml => serde_saphyr::to_string(&plan).context("failed to write YAML")?,
    };
    print(&text)
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
