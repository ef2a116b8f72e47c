//! A program is a table of steps. This runs one: in order, again on passing trouble, never beyond a deadline.

use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::Notify;

use crate::{
    board::Begun,
    error::{Error, Result},
    report::{Look, Reporter, Waiting},
};

/// The first pause after passing trouble; each further one is twice as long, up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// One line of a program's table. `run` is safe to repeat: it looks first and does only what is missing.
pub struct Step<C> {
    /// Its name, in kebab-case.
    pub name: &'static str,
    /// How long it may take, all tries together.
    pub limit: Duration,
    /// What it does.
    pub run: for<'a> fn(&'a C, Pace<'a>) -> BoxFuture<'a, Result<()>>,
}

/// How long a running step may still take, and where it says what it waits for.
#[derive(Clone, Copy)]
pub struct Pace<'a> {
    /// Where to say it.
    pub report: &'a Reporter,
    /// When the step's time is up.
    pub deadline: Timestamp,
}

impl Pace<'_> {
    /// Looks whenever the bell rings until there is nothing to wait for. The deadline is kept by the runner.
    ///
    /// # Errors
    /// When it will never be done.
    pub async fn until(&self, bell: &Notify, mut look: impl FnMut() -> Look) -> Result<()> {
        loop {
            let rung = bell.notified();
            let show_later = match look() {
                Look::Done => {
                    self.report.going_on().await;
                    return Ok(());
                }
                Look::Wait(waiting) => self.report.waiting(&waiting, Some(self.deadline)).await,
                Look::Fail(why) => return Err(Error::Lasting(why)),
            };
            tokio::select! {
                biased;
                () = rung => {}
                () = after(self.report, show_later) => {}
            }
        }
    }
}

/// Waits so long, or for ever.
pub(crate) async fn after(report: &Reporter, pause: Option<Duration>) {
    match pause {
        Some(pause) => report.clock.sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// Runs all steps in order and leaves a last word.
///
/// # Errors
/// The first lasting trouble, or the step whose time was up.
pub async fn run_all<C: Sync>(context: &C, steps: &[Step<C>], report: &Reporter) -> Result<()> {
    for (number, step) in steps.iter().enumerate() {
        report.begins(Begun {
            name: step.name,
            number: number + 1,
            count: steps.len(),
        });
        if let Err(error) = run(context, step, report).await {
            report.last_word(&format!("{}: {error}", step.name));
            return Err(error);
        }
    }
    report.last_word("done");
    Ok(())
}

/// Runs one step, again on passing trouble, until its deadline.
async fn run<C: Sync>(context: &C, step: &Step<C>, report: &Reporter) -> Result<()> {
    let deadline = report.clock.now().saturating_add(step.limit).unwrap_or(Timestamp::MAX);
    let pace = Pace { report, deadline };
    tokio::select! {
        biased;
        done = tries(context, step, pace) => done,
        () = report.clock.sleep(step.limit) => Err(Error::Deadline {
            step: step.name,
            limit: step.limit,
            waiting: named(report.waited_for().await),
        }),
    }
}

/// A step whose time is up before it could say what it waits for has not been answered.
fn named(waiting: String) -> String {
    if waiting.is_empty() {
        "nothing answered: look at the log of this program, and whether the API server and the host do answer"
            .to_owned()
    } else {
        waiting
    }
}

async fn tries<C: Sync>(context: &C, step: &Step<C>, pace: Pace<'_>) -> Result<()> {
    let mut pause = SHORTEST_PAUSE;
    loop {
        match (step.run)(context, pace).await {
            Ok(()) => {
                pace.report.going_on().await;
                return Ok(());
            }
            Err(error) if error.passes() => {
                let waiting = Waiting {
                    what: "Retry",
                    object: step.name.to_owned(),
                    message: error.to_string(),
                };
                pace.report.waiting(&[waiting], Some(pace.deadline)).await;
                pace.report.clock.sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}
