//! A decision while it is being made: rules read what is seen and add to the draft.

use std::{collections::BTreeMap, time::Duration};

use api::{NodeState, Phase, PhaseTransition, UpgradePlanStatus, WaitingFor, annotations, reasons};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::{
    decision::{Action, Child, Decision, Need, PlanEvent},
    node::{self, Progress},
    observed::{Fetched, Observed},
};

/// What a rule found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything it is about holds.
    Done,
    /// Not yet; the draft says what is waited for.
    Wait,
    /// It can never hold.
    Fail(String),
}

/// How long to pause before an unanswered question is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// How many things of those that programs wait for are shown; the others are counted.
const MOST_SAID: usize = 10;

/// A limit for what has none by its nature.
pub const UNBOUNDED: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A decision while it is being made.
pub struct Draft<'a> {
    /// What is observed.
    pub seen: &'a Observed,
    /// The moment of the decision.
    pub now: Timestamp,
    status: UpgradePlanStatus,
    annotations: BTreeMap<String, Option<String>>,
    finalizer: bool,
    events: Vec<PlanEvent>,
    actions: Vec<Action>,
    needs: Vec<Need>,
    waits: Vec<WaitingFor>,
    degraded: Option<(&'static str, String)>,
    ask_again_at: Option<Timestamp>,
}

impl<'a> Draft<'a> {
    /// Starts from the plan as it is.
    #[must_use]
    pub fn new(now: Timestamp, seen: &'a Observed) -> Self {
        let finalizers = seen.plan.metadata.finalizers.as_ref();
        Self {
            seen,
            now,
            status: seen.plan.status.clone().unwrap_or_default(),
            annotations: BTreeMap::new(),
            finalizer: finalizers.is_some_and(|all| all.iter().any(|one| one == annotations::FINALIZER)),
            events: Vec::new(),
            actions: Vec::new(),
            needs: Vec::new(),
            waits: Vec::new(),
            degraded: None,
            ask_again_at: None,
        }
    }

    /// The status as drafted so far.
    #[must_use]
    pub fn status(&self) -> &UpgradePlanStatus {
        &self.status
    }

    /// The status as drafted so far, to be changed. Phase, conditions and nodes have their own ways in.
    pub fn status_mut(&mut self) -> &mut UpgradePlanStatus {
        &mut self.status
    }

    /// The name of the plan.
    #[must_use]
    pub fn plan_name(&self) -> &'a str {
        self.seen.plan.metadata.name.as_deref().unwrap_or_default()
    }

    /// The value of an annotation of the plan, with what the draft changes.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        match self.annotations.get(key) {
            Some(value) => value.as_deref(),
            None => self.seen.plan.annotation(key),
        }
    }

    /// Sets (`Some`) or removes (`None`) an annotation of the plan. Written before any action is carried out.
    pub fn annotate(&mut self, key: &str, value: Option<String>) {
        if self.annotation(key) != value.as_deref() {
            self.annotations.insert(key.to_owned(), value);
        }
    }

    /// Whether the plan should carry our finalizer.
    pub fn set_finalizer(&mut self, wanted: bool) {
        self.finalizer = wanted;
    }

    /// Moves the plan to a phase and notes when.
    pub fn enter(&mut self, phase: Phase) {
        self.status.current_phase = Some(phase.to_string());
        self.status.phase_transition_timestamps.push(PhaseTransition {
            phase: phase.to_string(),
            phase_transition_timestamp: Time(self.now),
        });
    }

    /// Adds an event.
    pub fn event(&mut self, event: PlanEvent) {
        self.events.push(event);
    }

    /// Adds an action.
    pub fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Creates an object of ours.
    pub fn create(&mut self, child: Child) {
        self.actions.push(Action::Create(child));
    }

    /// Notes what is waited for, since when, and until when. Tells whether the deadline has passed.
    pub fn wait(&mut self, what: &str, object: Option<String>, message: impl Into<String>, limit: Duration) -> bool {
        let known = self.seen.plan.status.iter().flat_map(|status| &status.waiting_for);
        let since = known
            .clone()
            .find(|wait| wait.what == what && wait.object == object)
            .map_or(self.now, |wait| wait.since.0);
        let deadline = since.saturating_add(limit).unwrap_or(Timestamp::MAX);
        let message = message.into();
        let expired = deadline <= self.now;
        if expired && self.degraded.is_none() {
            self.degraded = Some((reasons::STALLED, format!("{message} (stalled: waiting since {since})")));
        }
        self.waits.push(WaitingFor {
            what: what.to_owned(),
            object,
            message: Some(message),
            since: Time(since),
            // What has no limit has no deadline to show.
            deadline: (limit < UNBOUNDED).then_some(Time(deadline)),
        });
        expired
    }

    /// Notes pods of a component that cannot start, and why; and what the programs of the others say that they wait
    /// for, as far as that fits into a status that people read.
    pub fn wait_for_pods(&mut self, component: &str, job_type: Option<&str>, node: Option<&str>) {
        let seen = self.seen;
        let limit = seen.settings.deadlines.pod;
        let pods = seen.pods.values().filter(|pod| {
            let same_step = job_type.is_none_or(|step| pod.job_type.as_deref() == Some(step));
            let same_node = node.is_none_or(|node| pod.node.as_deref() == Some(node));
            pod.component == component && same_step && same_node
        });
        let mut said = Vec::new();
        for pod in pods {
            if let Some(problem) = &pod.problem {
                let message = format!("pod {} cannot start: {problem}", pod.name);
                self.wait("Pod", Some(format!("Pod {}", pod.name)), message, limit);
            } else {
                said.extend(pod.said.iter().map(|entry| (pod.node.as_deref(), entry)));
            }
        }
        for (of_node, entry) in said.iter().take(MOST_SAID) {
            // Where several nodes are at work, people must see which one speaks.
            let prefix = of_node.filter(|_| node.is_none());
            self.repeat(prefix, entry);
        }
        if let Some(more) = said.len().checked_sub(MOST_SAID).filter(|more| *more > 0) {
            let object = Some(format!("{component} pods"));
            self.wait("More", object, format!("{more} more things are waited for"), UNBOUNDED);
        }
    }

    /// Notes what a program says that it waits for, with its own beginning and end. Past that end the program gives up
    /// by itself; if it has not, a person should look.
    fn repeat(&mut self, node: Option<&str>, entry: &WaitingFor) {
        let message = entry.message.as_deref().unwrap_or(&entry.what);
        let message = match node {
            Some(node) => format!("node {node}: {message}"),
            None => message.to_owned(),
        };
        let expired = entry.deadline.as_ref().is_some_and(|deadline| deadline.0 <= self.now);
        if expired && self.degraded.is_none() {
            let since = entry.since.0;
            self.degraded = Some((reasons::STALLED, format!("{message} (stalled: waiting since {since})")));
        }
        self.waits.push(WaitingFor {
            message: Some(message),
            ..entry.clone()
        });
    }

    /// Something is waited for.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.waits.is_empty()
    }

    /// Notes something that a person should look at.
    pub fn degrade(&mut self, message: impl Into<String>) {
        self.degraded = Some((reasons::RECONCILE_ERROR, message.into()));
    }

    /// The answer to a question, if it is there; else it is asked, or asked again after a pause, and the wait is noted:
    /// `waiting` is its word, its object and its message.
    pub fn ask<T>(
        &mut self,
        need: Need,
        fetched: &'a Fetched<T>,
        waiting: (&str, String, &str),
        limit: Duration,
    ) -> Option<&'a T> {
        let (what, object, message) = waiting;
        match fetched {
            Fetched::Got(answer) => return Some(answer),
            Fetched::Unknown => {
                self.needs.push(need);
                self.wait(what, Some(object), message, limit);
            }
            Fetched::Failed { error, at, .. } => {
                let again = at.saturating_add(ASK_AGAIN).unwrap_or(Timestamp::MAX);
                if again <= self.now {
                    self.needs.push(need);
                } else {
                    self.ask_again_at = Some(again);
                }
                self.wait(what, Some(object), error.clone(), limit);
            }
        }
        None
    }

    /// What a node has reached, as drafted so far.
    #[must_use]
    pub fn progress(&self, node: &str) -> Progress {
        Progress::recorded(
            self.status
                .node_upgrade_statuses
                .get(node)
                .and_then(|entry| entry.state.as_deref()),
        )
    }

    /// Joins a state that is seen into what the node has reached.
    pub fn reach(&mut self, node: &str, state: NodeState, reason: Option<&str>, message: Option<&str>) {
        let before = self.progress(node);
        if before.join(state).state() != Some(state) {
            return;
        }
        let now = Time(self.now);
        let entry = self.status.node_upgrade_statuses.entry(node.to_owned()).or_default();
        entry.state = Some(state.to_string());
        entry.reason = reason.map(str::to_owned);
        entry.message = message.map(str::to_owned);
        if node::ordinal(state) >= 3 && node::ordinal(state) <= 7 {
            entry.started_at.get_or_insert_with(|| now.clone());
        }
        if node::is_upgraded(state) && node::ordinal(state) == 7 {
            entry.finished_at.get_or_insert(now);
        }
    }

    /// The plan as it is, without any change but its finalizer.
    #[must_use]
    pub fn unchanged(self) -> Decision {
        Decision {
            annotations: self.annotations,
            finalizer: self.finalizer,
            status: self.status,
            events: self.events,
            actions: self.actions,
            needs: self.needs,
            wake_at: None,
        }
    }

    /// The decision, with conditions and waits. `available` is status, reason and message of that condition;
    /// `progressing` whether the upgrade goes on, and with which message instead of the one made from the waits.
    #[must_use]
    pub fn finish(mut self, available: (bool, &str, &str), progressing: bool, message: Option<String>) -> Decision {
        if let Some(error) = &self.seen.trouble {
            self.degrade(error.clone());
        }
        let phase = self
            .status
            .current_phase
            .clone()
            .unwrap_or_else(|| Phase::Initializing.to_string());
        let message = message.unwrap_or_else(|| one_line(&self.waits));
        self.set_condition(reasons::PROGRESSING, progressing, &phase, &message);
        let degraded = self.degraded.take();
        if let Some((reason, message)) = degraded {
            if self.set_condition(reasons::DEGRADED, true, reason, &message) {
                let text = if reason == reasons::STALLED {
                    message
                } else {
                    format!("Pipeline error: {message}")
                };
                self.events.push(PlanEvent::warning(reason, text));
            }
        } else {
            self.set_condition(reasons::DEGRADED, false, reasons::RECONCILE_SUCCESS, "");
        }
        let (status, reason, message) = available;
        self.set_condition(reasons::AVAILABLE, status, reason, message);
        let deadlines = self
            .waits
            .iter()
            .filter_map(|wait| wait.deadline.as_ref().map(|time| time.0));
        let wake_at = deadlines.filter(|at| *at > self.now).chain(self.ask_again_at).min();
        self.status.waiting_for = std::mem::take(&mut self.waits);
        Decision {
            wake_at,
            ..self.unchanged()
        }
    }

    /// Sets a condition; its time moves only when its status does. Tells whether anything but the time changed.
    fn set_condition(&mut self, type_: &str, status: bool, reason: &str, message: &str) -> bool {
        let status = if status { "True" } else { "False" };
        let wanted = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: Time(self.now),
            observed_generation: self.seen.plan.metadata.generation,
        };
        let Some(known) = self
            .status
            .conditions
            .iter_mut()
            .find(|condition| condition.type_ == type_)
        else {
            self.status.conditions.push(wanted);
            return true;
        };
        let moved = known.status != wanted.status;
        let changed = moved || known.reason != wanted.reason || known.message != wanted.message;
        let since = if moved {
            wanted.last_transition_time.clone()
        } else {
            known.last_transition_time.clone()
        };
        *known = Condition {
            last_transition_time: since,
            ..wanted
        };
        changed
    }
}

/// All waits in one line.
fn one_line(waits: &[WaitingFor]) -> String {
    let texts = waits.iter().map(|wait| wait.message.as_deref().unwrap_or(&wait.what));
    texts.collect::<Vec<_>>().join("; ")
}
