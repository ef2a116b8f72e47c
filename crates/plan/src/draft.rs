//! A decision while it is being made: rules read what is seen and add to the draft.

mod waits;

use std::{collections::BTreeMap, time::Duration};

use api::{NodeState, Phase, PhaseTransition, UpgradePlanStatus, WaitingFor, annotations, reasons};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use self::waits::Trouble;
use crate::{
    announce,
    decision::{Action, Child, Decision, Need, PlanEvent},
    node::{self, Progress},
    observed::Observed,
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
    degraded: Option<Trouble>,
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
        self.change(phase, None);
    }

    /// Moves the plan to Failed and notes when and why.
    pub fn fail(&mut self, why: &str) {
        self.change(Phase::Failed, Some(why.to_owned()));
    }

    fn change(&mut self, phase: Phase, message: Option<String>) {
        self.status.current_phase = Some(phase.to_string());
        self.status.phase_transition_timestamps.push(PhaseTransition {
            phase: phase.to_string(),
            phase_transition_timestamp: Time(self.now),
            message,
        });
    }

    /// Adds an event of this try.
    pub fn event(&mut self, event: PlanEvent) {
        let attempt = announce::running_attempt(&self.status.phase_transition_timestamps);
        self.events.push(event.in_attempt(attempt));
    }

    /// Adds an action.
    pub fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Creates an object of ours.
    pub fn create(&mut self, child: Child) {
        self.actions.push(Action::Create(child));
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

    /// The plan as it has ended, with what is waited for nevertheless.
    #[must_use]
    pub fn still_ended(mut self) -> Decision {
        self.status.waiting_for = std::mem::take(&mut self.waits);
        self.unchanged()
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
            .filter(|phase| !phase.is_empty())
            .unwrap_or_else(|| reasons::NOT_STARTED.to_owned());
        let message = message.unwrap_or_else(|| one_line(&self.waits));
        self.set_condition(reasons::PROGRESSING, progressing, &phase, &message);
        let degraded = self.degraded.take();
        if let Some(Trouble { reason, message, known }) = degraded {
            if self.set_condition(reasons::DEGRADED, true, reason, &message) && !known {
                let text = if reason == reasons::STALLED {
                    message
                } else {
                    format!("Pipeline error: {message}")
                };
                self.event(PlanEvent::warning(reason, text));
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
