//! Keeps at it until no VM is left on a node.

use std::time::Duration;

use api::ProgramWait;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::Notify;

use program::{error::Result, progress::Left, report::Waiting, step::StepContext};
use rules::evacuation::{Act, Decision};

/// An action on a VM is not repeated before this has passed: KubeVirt needs a short time.
const SAME_AGAIN: Duration = Duration::from_secs(30);
/// The taint is set again sooner: KubeVirt looks for it every five seconds before it moves the next VMs.
const TAINT_AGAIN: Duration = Duration::from_secs(5);

/// Waits until nothing is left to wait for, and carries out decisions in the meantime. Failed actions are shown, and tried
/// again; it does not end the program, since an administrator may help. `look` decides nothing before it can.
///
/// Moving hundreds of VMs takes hours. Each time fewer are left than ever before, the step's limit starts again, and
/// what it says of the node as a whole is waited for since then.
///
/// # Errors
/// None of its own: the deadline is kept by the runner.
pub async fn attend<'a>(
    node: &str,
    ctx: StepContext<'_>,
    bell: &Notify,
    look: impl Fn() -> Option<Decision>,
    carry_out: impl Fn(Act) -> BoxFuture<'a, Result<()>>,
) -> Result<()> {
    let clock = &ctx.report.clock;
    let mut done: Vec<Done> = Vec::new();
    let whole = || format!("Node {node}");
    let mut progress = Left::new(ProgramWait::VmsLeft, whole());
    loop {
        let rung = bell.notified();
        let mut look_again = None;
        if let Some(mut decision) = look() {
            if decision.waiting.is_empty() {
                ctx.report.clear_waits();
                return Ok(());
            }
            done.retain(|done| clock.now() < done.again);
            for act in decision.acts {
                if done.iter().all(|done| done.act != act) {
                    let failure = carry_out(act.clone()).await.err().map(|error| error.to_string());
                    let pause = if act == Act::Taint { TAINT_AGAIN } else { SAME_AGAIN };
                    let again = clock.now().saturating_add(pause).unwrap_or(Timestamp::MAX);
                    done.push(Done { act, again, failure });
                }
            }
            for failure in done.iter().filter_map(|done| done.failure.as_ref()) {
                decision.waiting.push(Waiting {
                    what: ProgramWait::VmEvacuation,
                    object: whole(),
                    message: failure.clone(),
                });
            }
            if let Some(vms) = decision.left {
                let in_all = Waiting {
                    what: ProgramWait::VmsLeft,
                    object: whole(),
                    message: left(vms, node),
                };
                decision.waiting.insert(0, in_all);
                progress.sees(ctx, vms);
            }
            ctx.report.waiting(&decision.waiting, Some(ctx.ends()));
            look_again = done.iter().map(|done| done.again).chain(decision.look_again).min();
        }
        let due = async {
            match look_again {
                Some(moment) => clock.sleep_until(moment).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = rung => ctx.burst(bell).await,
            () = due => {}
        }
    }
}

fn left(vms: usize, node: &str) -> String {
    match vms {
        1 => format!("1 VM is still on node {node}"),
        vms => format!("{vms} VMs are still on node {node}"),
    }
}

/// Something that was done about a VM, when it may be done again, and what was wrong with it.
struct Done {
    act: Act,
    again: Timestamp,
    failure: Option<String>,
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use clock::Clock;
    use futures::FutureExt;
    use jiff::SignedDuration;

    use super::*;
    use program::{board::NoBoard, report::Reporter};

    fn waiting(left: Option<usize>) -> Decision {
        let still = Waiting {
            what: ProgramWait::VmEvacuation,
            object: "another user".to_owned(),
            message: "waits".to_owned(),
        };
        Decision {
            waiting: if left == Some(0) { Vec::new() } else { vec![still] },
            left,
            ..Decision::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn r33_a_time_in_which_the_remaining_vms_are_unknown_does_not_end_the_progress() {
        let clock = Clock::simulated("2026-03-13T03:57:09Z".parse().unwrap(), 1.0);
        let report = Reporter::new(clock.clone(), Arc::new(NoBoard));
        let limit = Duration::from_mins(10);
        let deadline = clock.now() + SignedDuration::from_mins(10);
        let ctx = StepContext {
            report: &report,
            deadline,
            limit,
        };
        // A kind is not served when the step begins; then a VM leaves every six minutes.
        let left = Mutex::new(vec![None, Some(3), Some(2), Some(1), Some(0)].into_iter());
        let ends = Mutex::new(Vec::new());
        let bell = Notify::new();
        let look = || {
            ends.lock().unwrap().push(ctx.ends());
            left.lock().unwrap().next().map(waiting)
        };
        let rings = async {
            loop {
                clock.sleep(Duration::from_mins(6)).await;
                bell.notify_one();
            }
        };
        tokio::select! {
            ended = attend("node-1", ctx, &bell, look, |_| async { Ok(()) }.boxed()) => ended.unwrap(),
            () = rings => {}
        }
        let ends = ends.into_inner().unwrap();
        assert!(ends.is_sorted_by(|one, next| one <= next), "{ends:?}");
        assert!(
            ends[4] >= deadline + SignedDuration::from_mins(18),
            "the last VM leaves, and the time does not begin again: {ends:?}"
        );
    }
}
