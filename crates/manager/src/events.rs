//! The manager's events on a plan, each one once. Events report decisions; they never block a decision.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::{UpgradePlan, names, reasons};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, ResourceExt, api::PostParams};
use rules::{
    PlanEvent,
    event_object::{EventReporter, build},
};
use tokio::time::error::Elapsed;

use crate::{act::ActError, backoff::ErrorStreak, lease::Leadership};

/// The reporter of these events.
const REPORTER: EventReporter<'_> = EventReporter {
    component: reasons::SOURCE_MANAGER,
    host: None,
};
/// How many events are kept for a retry. More occur only if none can be created for long, and then the newest matter most.
const MAX_UNRECORDED: usize = 200;
/// The timeout of an event. The upgrade waits during this time, and events are not worth a longer wait.
const ANSWER: Duration = Duration::from_secs(5);

/// Reports events.
pub struct Recorder {
    events: Api<Event>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Names of events that are known to be there, by the uid of the plan.
    recorded: BTreeMap<String, BTreeSet<String>>,
    /// Events that the API server did not take, oldest first.
    unrecorded: VecDeque<Event>,
    /// Why, by the uid of the plan.
    errors: BTreeMap<String, ErrorStreak>,
    /// When to try again, on the manager's clock.
    again_at: Duration,
}

impl State {
    fn knows(&self, plan: &str, name: &str) -> bool {
        let recorded = self.recorded.get(plan).is_some_and(|names| names.contains(name));
        recorded || self.unrecorded.iter().any(|event| event.name_any() == name)
    }

    /// Forgets all plans but those of these uids.
    fn keep_plans(&mut self, uids: &BTreeSet<String>) {
        self.recorded.retain(|uid, _| uids.contains(uid));
        self.errors.retain(|uid, _| uids.contains(uid));
    }

    /// Keeps an event for later.
    fn keep(&mut self, event: Event) {
        self.unrecorded.push_back(event);
        if self.unrecorded.len() > MAX_UNRECORDED {
            self.unrecorded.pop_front();
        }
    }

    /// Records the result of reporting an event; returns whether it succeeded.
    fn ended(&mut self, event: Event, result: Result<Result<Event, kube::Error>, Elapsed>, now: Duration) -> bool {
        let of_plan = event.involved_object.uid.clone().unwrap_or_default();
        let error = match result {
            Ok(Ok(_)) => None,
            Ok(Err(kube::Error::Api(status))) if status.is_already_exists() => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {} s", ANSWER.as_secs())),
        };
        let Some(error) = error else {
            self.errors.remove(&of_plan);
            self.recorded.entry(of_plan).or_default().insert(event.name_any());
            return true;
        };
        // Without the name, which differs each time: this is shown on the plan, and the same error must have the same message.
        let why = error.replace(&event.name_any(), "…");
        let message = format!(
            "failed to create Events in namespace {}: {why}",
            names::DEFAULT_NAMESPACE
        );
        tracing::warn!(event = %event.name_any(), "{message}");
        let pause = self.errors.entry(of_plan).or_default().add(message);
        self.again_at = now.saturating_add(pause);
        self.keep(event);
        false
    }
}

impl Recorder {
    /// Events of cluster-scoped objects live in namespace `default`, where `kubectl describe` looks for them.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            events: Api::namespaced(client, names::DEFAULT_NAMESPACE),
            state: Mutex::default(),
        }
    }

    /// Reports an event unless it was reported. One that the API server refuses is kept for later. `now` is the time on
    /// the manager's clock.
    ///
    /// # Errors
    /// The lease is lost.
    pub async fn record(
        &self,
        plan: &UpgradePlan,
        at: Timestamp,
        event: &PlanEvent,
        now: Duration,
        leadership: &Leadership,
    ) -> Result<(), ActError> {
        let built = build(&plan.metadata, REPORTER, at, event);
        if self.state().knows(&plan.uid().unwrap_or_default(), &built.name_any()) {
            return Ok(());
        }
        {
            let mut state = self.state();
            if !state.unrecorded.is_empty() && now < state.again_at {
                state.keep(built);
                return Ok(());
            }
        }
        leadership.fence()?;
        self.create(built, now).await;
        Ok(())
    }

    /// Reports events that could not be reported, if it is time.
    ///
    /// # Errors
    /// The lease is lost. The new leader reports the events.
    pub async fn catch_up(&self, now: Duration, leadership: &Leadership) -> Result<(), ActError> {
        let due = {
            let mut state = self.state();
            if now < state.again_at {
                return Ok(());
            }
            std::mem::take(&mut state.unrecorded)
        };
        let mut due = due.into_iter();
        for event in due.by_ref() {
            leadership.fence()?;
            if !self.create(event, now).await {
                break;
            }
        }
        // After one that fails the others would only take their time to fail too.
        self.state().unrecorded.extend(due);
        Ok(())
    }

    /// Returns whether the API server accepted it.
    async fn create(&self, event: Event, now: Duration) -> bool {
        let params = PostParams::default();
        let result = tokio::time::timeout(ANSWER, self.events.create(&params, &event)).await;
        self.state().ended(event, result, now)
    }

    /// How long until events that could not be created are retried.
    #[must_use]
    pub fn again_in(&self, now: Duration) -> Option<Duration> {
        let state = self.state();
        (!state.unrecorded.is_empty()).then(|| state.again_at.saturating_sub(now))
    }

    /// Why events of a plan cannot be created, when that happened more than once.
    #[must_use]
    pub fn trouble(&self, plan: &UpgradePlan) -> Option<String> {
        let state = self.state();
        let row = state.errors.get(&plan.uid().unwrap_or_default())?;
        row.trouble()
            .map(|why| format!("{why}; the upgrade continues without them"))
    }

    /// Forgets plans that are gone. Events of theirs that could not be reported are still reported.
    pub(crate) fn keep(&self, plans: &[Arc<UpgradePlan>]) {
        let known: BTreeSet<String> = plans.iter().filter_map(|plan| plan.uid()).collect();
        self.state().keep_plans(&known);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(plan: &str, name: &str) -> Event {
        let mut event = Event::default();
        event.metadata.name = Some(name.to_owned());
        event.involved_object.uid = Some(plan.to_owned());
        event
    }

    fn refused() -> kube::Error {
        kube::Error::Service("refused".into())
    }

    #[test]
    fn a_plan_that_is_gone_leaves_nothing_but_what_is_still_to_be_reported() {
        let mut state = State::default();
        for plan in ["gone", "here"] {
            assert!(!state.ended(event(plan, "later"), Ok(Err(refused())), Duration::ZERO));
            assert!(state.ended(event(plan, "told"), Ok(Ok(Event::default())), Duration::ZERO));
            assert!(!state.ended(event(plan, "last"), Ok(Err(refused())), Duration::ZERO));
        }
        state.keep_plans(&BTreeSet::from(["here".to_owned()]));
        assert!(state.knows("here", "told") && !state.knows("gone", "told"));
        assert_eq!(state.errors.keys().collect::<Vec<_>>(), ["here"]);
        assert_eq!(state.recorded.keys().collect::<Vec<_>>(), ["here"]);
        assert_eq!(state.unrecorded.len(), 4);
    }
}
