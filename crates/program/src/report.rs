//! Says what a program waits for, when that changes, and waits for it no longer than it may.

use std::{
    convert::Infallible,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::{ProgramWait, upgrade_plan::WaitingFor};
use clock::Clock;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
pub use rules::Waiting;
use rules::{throttle::Throttle, waiting};
use tokio::sync::Notify;

use crate::board::{Board, StepStarted};

/// What is over sooner than this is not shown: each time is a write to the pod, and perhaps one to the plan.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// Progress with what is shown already, a percentage or one VM less, is not shown more often than this.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(30);
/// What is over is shown no longer than this. Mostly the next wait follows at once, and one write says both.
const LONGEST_OVER: Duration = Duration::from_secs(5);

/// What a step waits for: at least one named wait.
///
/// ```compile_fail,E0423
/// let nothing = program::report::Look::Wait(program::report::Waits(Vec::new()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits(Vec<Waiting>);

impl Deref for Waits {
    type Target = [Waiting];

    fn deref(&self) -> &[Waiting] {
        &self.0
    }
}

/// What a step found when it looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// There is nothing left to wait for.
    Done,
    /// Not yet.
    Wait(Waits),
    /// It will never be done.
    Fail(String),
}

impl Look {
    /// Done when nothing is left to wait for.
    #[must_use]
    pub fn of(waiting: Vec<Waiting>) -> Self {
        match waiting.is_empty() {
            true => Self::Done,
            false => Self::Wait(Waits(waiting)),
        }
    }

    /// Not yet, because of one thing.
    #[must_use]
    pub fn wait(waiting: Waiting) -> Self {
        Self::Wait(Waits(vec![waiting]))
    }
}

/// Reports what a program is doing. The runner of the steps shows it: [`Self::keep_showing`].
#[derive(Clone)]
pub struct Reporter {
    /// The program's clock.
    pub clock: Clock,
    board: Arc<dyn Board>,
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    /// What is waited for now.
    now: Vec<WaitingFor>,
    /// What users see.
    shown: Vec<WaitingFor>,
    shown_at: Timestamp,
    /// Since when [`Self::has_unshown`].
    unshown_since: Option<Timestamp>,
    /// When the step last got nearer to its end.
    progressed: Option<Timestamp>,
    /// What the program says when it has ended well.
    conclusion: Option<String>,
}

impl State {
    /// A wait that began again is not what users see, although it has the same name.
    fn is_shown(&self, item: &WaitingFor) -> bool {
        let same = |shown: &WaitingFor| {
            waiting::is_same(shown, &item.what, item.object.as_deref()) && shown.since == item.since
        };
        self.shown.iter().any(same)
    }

    /// Whether there is something that users do not see, or nothing although they see something.
    fn has_unshown(&self) -> bool {
        if self.now.is_empty() {
            !self.shown.is_empty()
        } else {
            !self.now.iter().all(|item| self.is_shown(item))
        }
    }

    /// When to show the waits; never when users already see them.
    fn due(&self) -> Option<Timestamp> {
        if self.now == self.shown {
            return None;
        }
        let throttle = Throttle {
            debounce: if self.now.is_empty() { LONGEST_OVER } else { DEBOUNCE },
            interval: SHORTEST_INTERVAL,
        };
        // What users do not see at all is worth a write soon after another one.
        let shown = self.unshown_since.is_none().then_some(self.shown_at);
        throttle.due(self.unshown_since, shown)
    }
}

impl Reporter {
    /// Reports to a board, and to the log.
    #[must_use]
    pub fn new(clock: Clock, board: Arc<dyn Board>) -> Self {
        Self {
            clock,
            board,
            state: Arc::default(),
            changed: Arc::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics with this lock; if it did, the data would still be valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step begins.
    pub fn begins(&self, step: StepStarted) {
        tracing::info!(step = step.name, "step {} of {}", step.number, step.count);
        self.state().progressed = None;
        self.board.begins(step);
    }

    /// The current waits, and until when. Waits from before keep their beginning.
    pub fn waiting(&self, items: &[Waiting], deadline: Option<Timestamp>) {
        let (now, stamp) = (self.clock.now(), self.clock.now_in_seconds());
        let mut state = self.state();
        let before = std::mem::take(&mut state.now);
        let item = |item: &Waiting| carry_on(item, &before, stamp, deadline);
        state.now = items.iter().map(item).collect();
        // An end and a beginning are different changes.
        let since = state.unshown_since.filter(|_| before.is_empty() == items.is_empty());
        state.unshown_since = state.has_unshown().then(|| since.unwrap_or(now));
        self.changed.notify_one();
    }

    /// The step has made progress: its limit starts again.
    pub fn progresses(&self) {
        self.state().progressed = Some(self.clock.now());
    }

    /// When the step last got nearer to its end.
    #[must_use]
    pub fn progressed(&self) -> Option<Timestamp> {
        self.state().progressed
    }

    /// What is waited for next under this name is waited for since then.
    pub fn restart_wait(&self, what: ProgramWait, object: &str) {
        self.state()
            .now
            .retain(|item| !waiting::is_same(item, what.as_str(), Some(object)));
    }

    /// Nothing is waited for any more.
    pub fn clear_waits(&self) {
        self.waiting(&[], None);
    }

    /// What is waited for, in one line.
    #[must_use]
    pub fn waited_for(&self) -> String {
        let state = self.state();
        let messages = state.now.iter().filter_map(|item| item.message.as_deref());
        messages.collect::<Vec<_>>().join("; ")
    }

    /// Shows what is waited for whenever that is due, for as long as this runs.
    pub async fn keep_showing(&self) -> Infallible {
        loop {
            let due = self.state().due();
            match due {
                None => self.changed.notified().await,
                Some(due) if due <= self.clock.now() => self.show().await,
                Some(due) => tokio::select! {
                    biased;
                    () = self.changed.notified() => {}
                    () = self.clock.sleep_until(due) => {}
                },
            }
        }
    }

    async fn show(&self) {
        let now = self.state().now.clone();
        for item in &now {
            let message = item.message.as_deref().unwrap_or_default();
            tracing::info!(what = item.what, object = item.object, "waiting: {message}");
        }
        self.board.show(&now).await;
        let mut state = self.state();
        state.shown = now;
        state.shown_at = self.clock.now();
        // In the meantime another wait may have begun.
        state.unshown_since = state.unshown_since.filter(|_| state.has_unshown());
    }

    /// The program has succeeded: no wait should be shown.
    pub async fn ends(&self) {
        self.clear_waits();
        if !self.state().shown.is_empty() {
            self.show().await;
        }
    }

    /// What the program is to say when it has ended well, instead of just that it has.
    pub fn conclude(&self, text: &str) {
        self.state().conclusion = Some(text.to_owned());
    }

    /// What the program says when it has ended well.
    #[must_use]
    pub fn conclusion(&self) -> String {
        self.state().conclusion.clone().unwrap_or_else(|| "done".to_owned())
    }

    /// The termination message of the program.
    pub fn termination_message(&self, text: &str) {
        self.board.termination_message(text);
    }
}

fn carry_on(item: &Waiting, before: &[WaitingFor], now: Timestamp, deadline: Option<Timestamp>) -> WaitingFor {
    WaitingFor {
        what: item.what.to_string(),
        object: Some(item.object.clone()),
        message: Some(item.message.clone()),
        since: Time(waiting::since(before, item.what.as_str(), Some(&item.object), now)),
        deadline: deadline.map(Time),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;

    use futures::future::{BoxFuture, ready};

    use super::*;

    /// Records how many waits were shown each time.
    #[derive(Default)]
    struct Notes(StdMutex<Vec<usize>>);

    impl Board for Notes {
        fn show<'a>(&'a self, waiting: &'a [WaitingFor]) -> BoxFuture<'a, ()> {
            self.0.lock().unwrap().push(waiting.len());
            Box::pin(ready(()))
        }

        fn termination_message(&self, _: &str) {}
    }

    fn vms(names: &[&str]) -> Vec<Waiting> {
        let vm = |name: &&str| Waiting {
            what: ProgramWait::VmEvacuation,
            object: format!("VirtualMachineInstance default/{name}"),
            message: format!("{name} has not left yet"),
        };
        names.iter().map(vm).collect()
    }

    /// How many waits were shown each time, for so many waits of so many milliseconds each.
    async fn shown(waits: &[(&[&str], u64)]) -> Vec<usize> {
        let board = Arc::new(Notes::default());
        let clock = Clock::simulated("2026-03-13T00:00:00Z".parse().unwrap(), 1.0);
        let report = Reporter::new(clock.clone(), board.clone());
        let steps = async {
            for (names, milliseconds) in waits {
                report.waiting(&vms(names), None);
                clock.sleep(Duration::from_millis(*milliseconds)).await;
            }
            report.ends().await;
        };
        tokio::select! {
            never = report.keep_showing() => match never {},
            () = steps => {}
        }
        board.0.lock().unwrap().clone()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_new_is_shown_soon_and_progress_now_and_then() {
        let waits: &[(&[&str], u64)] = &[
            (&["a", "b", "c"], 2_000),
            // Progress: too soon.
            (&["a", "b"], 2_000),
            // One of them is new.
            (&["b", "d"], 40_000),
            (&["d"], 1_000),
        ];
        assert_eq!(shown(waits).await, [3, 2, 1, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_quickly_is_never_shown() {
        assert_eq!(shown(&[(&["a"], 900), (&[], 10_000), (&["b"], 900)]).await, [0; 0]);
        assert_eq!(shown(&[(&["a"], 1_100), (&[], 6_000)]).await, [1, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_follows_another_takes_its_place_in_one_go() {
        assert_eq!(
            shown(&[(&["a", "b"], 2_000), (&[], 3_000), (&["c"], 9_000)]).await,
            [2, 1, 0]
        );
    }

    /// Takes two seconds to show anything, as an API server that is busy.
    struct Slow(Clock, Notes);

    impl Board for Slow {
        fn show<'a>(&'a self, waiting: &'a [WaitingFor]) -> BoxFuture<'a, ()> {
            Box::pin(async move {
                self.0.sleep(Duration::from_secs(2)).await;
                self.1.show(waiting).await;
            })
        }

        fn termination_message(&self, _: &str) {}
    }

    #[tokio::test(start_paused = true)]
    async fn what_begins_while_something_else_is_being_shown_is_shown_next() {
        let clock = Clock::simulated("2026-03-13T00:00:00Z".parse().unwrap(), 1.0);
        let board = Arc::new(Slow(clock.clone(), Notes::default()));
        let report = Reporter::new(clock.clone(), board.clone());
        let steps = async {
            report.waiting(&vms(&["a"]), None);
            // It is being shown from the first second to the third.
            clock.sleep(Duration::from_millis(2_000)).await;
            report.waiting(&vms(&["b", "c"]), None);
            clock.sleep(Duration::from_secs(4)).await;
        };
        tokio::select! {
            never = report.keep_showing() => match never {},
            () = steps => {}
        }
        assert_eq!(*board.1.0.lock().unwrap(), [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_begins_again_has_a_new_beginning_and_is_a_change() {
        let clock = Clock::simulated("2026-03-13T00:00:00Z".parse().unwrap(), 1.0);
        let report = Reporter::new(clock.clone(), Arc::new(Notes::default()));
        report.waiting(&vms(&["a"]), None);
        report.show().await;
        let since = report.state().now[0].since.clone();
        clock.sleep(Duration::from_secs(600)).await;
        report.clear_waits();
        clock.sleep(Duration::from_secs(2)).await;
        report.waiting(&vms(&["a"]), None);
        assert_ne!(report.state().now[0].since, since);
        assert!(report.state().has_unshown());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_keeps_its_beginning_and_is_known_before_it_is_shown() {
        let clock = Clock::simulated("2026-03-13T00:00:00Z".parse().unwrap(), 1.0);
        let report = Reporter::new(clock.clone(), Arc::new(Notes::default()));
        report.waiting(&vms(&["a"]), None);
        let since = report.state().now[0].since.clone();
        clock.sleep(Duration::from_secs(9)).await;
        report.waiting(&vms(&["a", "b"]), None);
        assert_eq!(report.state().now[0].since, since);
        assert_ne!(report.state().now[1].since, since);
        assert_eq!(report.waited_for(), "a has not left yet; b has not left yet");
        report.clear_waits();
        assert_eq!(report.waited_for(), "");
    }
}
