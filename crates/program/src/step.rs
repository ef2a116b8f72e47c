//! A program is a table of steps. This runs one: in order, again on a transient error, never beyond a deadline.

use api::ProgramWait;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use jiff::Timestamp;
use tokio::sync::Notify;

use crate::{
    board::StepStarted,
    error::{Error, Result},
    report::{Look, Reporter, Waiting},
};

/// The first pause after a transient error; each further one is twice as long, up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a forbidden request is retried: see [`Error::is_forbidden`].
const FORBIDDEN_FOR: Duration = Duration::from_mins(2);
/// Changes come in bursts, and a look may go through thousands of objects: one look at the end of a burst sees them all.
const BURST: Duration = Duration::from_millis(5);

/// One line of a program's table. `run` is safe to repeat: it looks first and does only what is missing.
pub struct Step<C> {
    /// Its name, in kebab-case.
    pub name: &'static str,
    /// How long it may take, all tries together, counted from when it last got nearer to its end.
    pub limit: Duration,
    /// What it does.
    pub run: for<'a> fn(&'a C, StepContext<'a>) -> BoxFuture<'a, Result<()>>,
}

/// How long a running step may still take, and where it says what it waits for.
#[derive(Clone, Copy)]
pub struct StepContext<'a> {
    /// Where to say it.
    pub report: &'a Reporter,
    /// When the step's time is up, unless it makes progress in the meantime: see [`Self::ends`].
    pub deadline: Timestamp,
    /// How long the step may take without getting nearer to its end.
    pub limit: Duration,
}

impl StepContext<'_> {
    /// When the step's time is up, as things are now.
    #[must_use]
    pub fn ends(&self) -> Timestamp {
        let extended = self.report.progressed().and_then(|at| at.checked_add(self.limit).ok());
        extended.map_or(self.deadline, |extended| extended.max(self.deadline))
    }

    /// Waits until the step's time is up.
    async fn is_over(&self) {
        while self.report.clock.now() < self.ends() {
            self.report.clock.sleep_until(self.ends()).await;
        }
    }

    /// Looks whenever the bell rings until there is nothing to wait for. The deadline is kept by the runner.
    ///
    /// # Errors
    /// When it will never be done.
    pub async fn until(&self, bell: &Notify, mut look: impl FnMut() -> Look) -> Result<()> {
        loop {
            let rung = bell.notified();
            match look() {
                Look::Done => {
                    self.report.clear_waits();
                    return Ok(());
                }
                Look::Wait(waiting) => self.report.waiting(&waiting, Some(self.ends())),
                Look::Fail(why) => return Err(Error::Permanent(why)),
            }
            rung.await;
            self.burst(bell).await;
        }
    }

    /// The bell has rung: waits until the burst of changes is over. What has rung in the meantime has been heard.
    pub async fn burst(&self, bell: &Notify) {
        self.report.clock.sleep(BURST).await;
        let _ = bell.notified().now_or_never();
    }
}

/// A table with other limits for some of its steps, by their names.
#[must_use]
pub fn with_limits<C>(steps: &[Step<C>], limits: &[(String, Duration)]) -> Vec<Step<C>> {
    let limit_of = |step: &Step<C>| limits.iter().rfind(|(name, _)| name == step.name);
    let steps = steps.iter().map(|step| Step {
        name: step.name,
        limit: limit_of(step).map_or(step.limit, |(_, limit)| *limit),
        run: step.run,
    });
    steps.collect()
}

/// Runs all steps in order and leaves a termination message.
///
/// # Errors
/// The first permanent error, or the step whose time was up.
pub async fn run_all<C: Sync>(context: &C, steps: &[Step<C>], report: &Reporter) -> Result<()> {
    for (number, step) in steps.iter().enumerate() {
        report.begins(StepStarted {
            name: step.name,
            number: number + 1,
            count: steps.len(),
        });
        if let Err(error) = run(context, step, report).await {
            report.termination_message(&format!("{}: {error}", step.name));
            return Err(error);
        }
    }
    report.ends().await;
    report.termination_message(&report.conclusion());
    Ok(())
}

/// Runs one step, again on a transient error, until its deadline.
async fn run<C: Sync>(context: &C, step: &Step<C>, report: &Reporter) -> Result<()> {
    let deadline = report.clock.now().saturating_add(step.limit).unwrap_or(Timestamp::MAX);
    let ctx = StepContext {
        report,
        deadline,
        limit: step.limit,
    };
    tokio::select! {
        biased;
        done = tries(context, step, ctx) => done,
        never = report.keep_showing() => match never {},
        () = ctx.is_over() => Err(Error::Deadline {
            step: step.name,
            limit: step.limit,
            waiting: named(report.waited_for()),
        }),
    }
}

/// A step whose time is up before it could say what it waits for has not been answered.
fn named(waiting: String) -> String {
    if waiting.is_empty() {
        "no response: check the log of this program, the API server and the host".to_owned()
    } else {
        waiting
    }
}

async fn tries<C: Sync>(context: &C, step: &Step<C>, ctx: StepContext<'_>) -> Result<()> {
    let mut pause = SHORTEST_PAUSE;
    let mut forbidden_since: Option<Timestamp> = None;
    loop {
        let Err(error) = (step.run)(context, ctx).await else {
            ctx.report.clear_waits();
            return Ok(());
        };
        let now = ctx.report.clock.now();
        forbidden_since = error.is_forbidden().then(|| forbidden_since.unwrap_or(now));
        let is_doubted = |since: Timestamp| now.duration_since(since).unsigned_abs() < FORBIDDEN_FOR;
        if !error.is_transient() && !forbidden_since.is_some_and(is_doubted) {
            return Err(error);
        }
        let waiting = Waiting {
            what: ProgramWait::Retry,
            object: step.name.to_owned(),
            message: error.to_string(),
        };
        ctx.report.waiting(&[waiting], Some(ctx.deadline));
        ctx.report.clock.sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use clock::Clock;
    use futures::future::ready;

    use super::*;
    use crate::board::NoBoard;

    /// Answers with these codes, one after the other; the last one for ever.
    struct Answers(Mutex<Vec<u16>>);

    fn answer(answers: &Answers) -> Result<()> {
        let mut codes = answers.0.lock().unwrap();
        let code = if codes.len() > 1 { codes.remove(0) } else { codes[0] };
        if code == 200 {
            return Ok(());
        }
        let status = kube::core::Status::failure("no", "Some").with_code(code);
        Err(Error::api("look", kube::Error::Api(Box::new(status))))
    }

    const STEPS: &[Step<Answers>] = &[Step {
        name: "look",
        limit: Duration::from_hours(1),
        run: |answers, _| Box::pin(ready(answer(answers))),
    }];

    async fn ends(codes: &[u16]) -> (Result<()>, Duration) {
        let clock = Clock::simulated("2026-03-13T03:57:09Z".parse().unwrap(), 1.0);
        let report = Reporter::new(clock.clone(), Arc::new(NoBoard));
        let began = clock.now();
        let ended = run_all(&Answers(Mutex::new(codes.to_vec())), STEPS, &report).await;
        (ended, clock.now().duration_since(began).unsigned_abs())
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_has_just_started_may_forbid_everything_for_a_while() {
        ends(&[503, 403, 403, 403, 200]).await.0.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_stays_forbidden_ends_the_program_after_minutes_and_with_what_was_said() {
        let (ended, took) = ends(&[403]).await;
        let error = ended.unwrap_err();
        assert_eq!(error.to_string(), "failed to look: no");
        assert!(took >= FORBIDDEN_FOR && took < FORBIDDEN_FOR * 2, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_starts_twice_is_doubted_twice() {
        // Longer than it is doubted, but not in one row.
        let (ended, took) = ends(&[403, 403, 403, 403, 403, 503, 403, 403, 403, 200]).await;
        ended.unwrap();
        assert!(took > FORBIDDEN_FOR, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn other_refusals_are_permanent_at_once() {
        let (ended, took) = ends(&[404, 200]).await;
        assert!(ended.is_err() && took.is_zero());
    }

    #[test]
    fn limits_are_changed_by_the_names_of_steps_and_the_last_value_counts() {
        let named = |name: &str, seconds| (name.to_owned(), Duration::from_secs(seconds));
        let steps = with_limits(STEPS, &[named("look", 1), named("other", 2), named("look", 3)]);
        assert_eq!(steps[0].limit, Duration::from_secs(3));
        assert_eq!(with_limits(STEPS, &[])[0].limit, STEPS[0].limit);
    }
}
