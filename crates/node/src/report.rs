//! Says what a program waits for, when that changes, and waits for it no longer than it may.

use std::{sync::Arc, time::Duration};

use api::upgrade_plan::WaitingFor;
use clock::Clock;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::sync::Mutex;

use crate::board::{Begun, Board};

/// Progress with what is shown already, a percentage or one VM less, is not shown more often than this: each time is a
/// write to the pod, and one to the plan.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(30);

/// One thing a step waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// In one word: LonghornVolume, VMEvacuation, …
    pub what: &'static str,
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// The same in a sentence that says why.
    pub message: String,
}

/// What a step found when it looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// There is nothing left to wait for.
    Done,
    /// Not yet.
    Wait(Vec<Waiting>),
    /// It will never be done.
    Fail(String),
}

impl Look {
    /// Done when nothing is left to wait for.
    #[must_use]
    pub fn of(waiting: Vec<Waiting>) -> Self {
        if waiting.is_empty() {
            Self::Done
        } else {
            Self::Wait(waiting)
        }
    }
}

/// Tells people what a program is doing.
#[derive(Clone)]
pub struct Reporter {
    /// The program's clock.
    pub clock: Clock,
    board: Arc<dyn Board>,
    shown: Arc<Mutex<Shown>>,
}

#[derive(Default)]
struct Shown {
    items: Vec<WaitingFor>,
    at: Option<Timestamp>,
}

impl Reporter {
    /// Reports to a board, and to the log.
    #[must_use]
    pub fn new(clock: Clock, board: Arc<dyn Board>) -> Self {
        Self {
            clock,
            board,
            shown: Arc::default(),
        }
    }

    /// A step begins.
    pub fn begins(&self, step: Begun) {
        tracing::info!(step = step.name, "step {} of {}", step.number, step.count);
        self.board.begins(step);
    }

    /// Shows what is waited for, until when. Things that were waited for before keep their beginning. What is new is shown
    /// at once, and so is the end; when it is too soon to show progress, tells how long to wait before it should be shown.
    pub async fn waiting(&self, items: &[Waiting], deadline: Option<Timestamp>) -> Option<Duration> {
        let now = self.clock.now_in_seconds();
        let mut shown = self.shown.lock().await;
        let next: Vec<WaitingFor> = items
            .iter()
            .map(|item| carry_on(item, &shown.items, now, deadline))
            .collect();
        if next == shown.items {
            return None;
        }
        let known = |item: &WaitingFor| shown.items.iter().any(|before| thing(before) == thing(item));
        let is_progress = !next.is_empty() && next.iter().all(known);
        let ago = shown.at.map(|at| now.duration_since(at).unsigned_abs());
        if let Some(left) = ago
            .and_then(|ago| SHORTEST_INTERVAL.checked_sub(ago))
            .filter(|left| !left.is_zero())
            && is_progress
        {
            return Some(left);
        }
        for item in items {
            tracing::info!(what = item.what, object = item.object, "waiting: {}", item.message);
        }
        self.board.show(&next).await;
        *shown = Shown {
            items: next,
            at: Some(now),
        };
        None
    }

    /// Nothing is waited for any more.
    pub async fn going_on(&self) {
        self.waiting(&[], None).await;
    }

    /// What was waited for last, in one line.
    pub async fn waited_for(&self) -> String {
        let shown = self.shown.lock().await;
        let messages = shown.items.iter().filter_map(|item| item.message.as_deref());
        messages.collect::<Vec<_>>().join("; ")
    }

    /// The last word of the program.
    pub fn last_word(&self, text: &str) {
        self.board.last_word(text);
    }
}

fn thing(item: &WaitingFor) -> (&str, Option<&str>) {
    (&item.what, item.object.as_deref())
}

fn carry_on(item: &Waiting, before: &[WaitingFor], now: Timestamp, deadline: Option<Timestamp>) -> WaitingFor {
    let known = before
        .iter()
        .find(|known| thing(known) == (item.what, Some(item.object.as_str())));
    WaitingFor {
        what: item.what.to_owned(),
        object: Some(item.object.clone()),
        message: Some(item.message.clone()),
        since: known.map_or(Time(now), |known| known.since.clone()),
        deadline: deadline.map(Time),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;

    use futures::future::{BoxFuture, ready};

    use super::*;

    /// Notes how many things were shown each time.
    #[derive(Default)]
    struct Notes(StdMutex<Vec<usize>>);

    impl Board for Notes {
        fn show<'a>(&'a self, waiting: &'a [WaitingFor]) -> BoxFuture<'a, ()> {
            self.0.lock().unwrap().push(waiting.len());
            Box::pin(ready(()))
        }

        fn last_word(&self, _: &str) {}
    }

    fn vms(names: &[&str]) -> Vec<Waiting> {
        let vm = |name: &&str| Waiting {
            what: "VMEvacuation",
            object: format!("VirtualMachineInstance default/{name}"),
            message: format!("{name} has not left yet"),
        };
        names.iter().map(vm).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_new_or_over_is_shown_at_once_and_progress_now_and_then() {
        let board = Arc::new(Notes::default());
        let clock = Clock::simulated("2026-03-13T00:00:00Z".parse().unwrap(), 1.0);
        let report = Reporter::new(clock.clone(), board.clone());
        assert_eq!(report.waiting(&vms(&["a", "b", "c"]), None).await, None);
        assert_eq!(report.waiting(&vms(&["a", "b"]), None).await, Some(SHORTEST_INTERVAL));
        assert_eq!(report.waiting(&vms(&["b", "d"]), None).await, None, "d is new");
        clock.sleep(SHORTEST_INTERVAL).await;
        assert_eq!(report.waiting(&vms(&["d"]), None).await, None);
        report.going_on().await;
        assert_eq!(*board.0.lock().unwrap(), [3, 2, 1, 0]);
    }
}
