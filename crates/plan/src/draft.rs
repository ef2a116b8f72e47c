//! A decision while it is being made: rules read what is seen and add to the draft.

mod nodes;
mod notes;
mod progress;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

use api::{
    CheckSummary, Insight, Phase, PhaseTransition, ReleaseDigests, ReleaseMetadata, RepositoryAccess,
    UpgradePlanStatus, VersionSnapshot, Wait, WaitingFor, annotations,
    annotations::NOTES,
    names::{self, RepoScheme},
    quoted::plain,
    reasons,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use self::waits::Trouble;
pub use self::waits::{Noted, Waits};
use crate::{
    decision::{Action, Child, Decision, Need},
    observed::{Observed, ObservedJob, name_of},
};
use rules::{PlanEvent, tries};

/// What a rule found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything it is about holds.
    Done,
    /// Not yet: it waits for these.
    Wait(Waits),
    /// It can never hold.
    Fail(String),
}

impl From<Noted> for Outcome {
    fn from(noted: Noted) -> Self {
        Self::Wait(noted.into())
    }
}

/// The most characters of a condition, and of why a phase ended. The API server refuses a status with more than 32,768 in a
/// condition, and it would be refused for ever.
const LONGEST_SUMMARY: usize = 8_000;

/// The parts of a status that rules write. Phase, conditions, waits and what nodes have reached are not among them: they
/// have their own ways in, so that no rule can take a node back.
pub struct Record<'d> {
    /// The Version that the plan named when it began.
    pub version: &'d mut Option<VersionSnapshot>,
    /// The release that ran then.
    pub previous_version: &'d mut Option<String>,
    /// The only node.
    pub single_node: &'d mut Option<String>,
    /// The image that holds the ISO.
    pub iso_image_id: &'d mut Option<String>,
    /// Digests of the release.
    pub release_digests: &'d mut Option<ReleaseDigests>,
    /// What the ISO says about its release.
    pub release_metadata: &'d mut Option<ReleaseMetadata>,
    /// How the repository is identified.
    pub repository: &'d mut Option<RepositoryAccess>,
    /// The generation that we give the Rancher cluster.
    pub provision_generation: &'d mut Option<i64>,
    /// What checks found before the first change.
    pub preflight: &'d mut Option<CheckSummary>,
    /// What is worse than before, after the end.
    pub postflight: &'d mut Option<CheckSummary>,
}

/// A decision while it is being made.
pub struct Draft<'a> {
    /// What is observed.
    pub observed: &'a Observed,
    /// The time of the decision.
    pub now: Timestamp,
    status: UpgradePlanStatus,
    annotations: BTreeMap<String, Option<String>>,
    finalizer: bool,
    events: Vec<PlanEvent>,
    actions: Vec<Action>,
    needs: Vec<Need>,
    waits: Vec<WaitingFor>,
    /// What the plan waits for. Other waits are only shown: programs wait for them, or nothing does any more.
    noted: Vec<Wait>,
    degraded: Option<Trouble>,
    ask_again_at: Option<Timestamp>,
}

impl<'a> Draft<'a> {
    /// Starts from the plan as it is.
    #[must_use]
    pub fn new(now: Timestamp, observed: &'a Observed) -> Self {
        let finalizers = observed.plan.metadata.finalizers.as_ref();
        let mut status = observed.plan.status.clone().unwrap_or_default();
        let left = NOTES
            .into_iter()
            .filter_map(|key| Some((key, observed.plan.annotation(key)?)));
        // Notes of an older manager move into the status, and their annotations are removed once they are there. Other
        // annotations are ignored.
        let annotations = match status.notes {
            Some(_) => left.map(|(key, _)| (key.to_owned(), None)).collect(),
            None => BTreeMap::new(),
        };
        status.notes.get_or_insert_with(|| {
            let known = NOTES
                .into_iter()
                .filter_map(|key| Some((key, observed.plan.note(key)?)));
            let known = known.filter(|(key, value)| notes::is_sound(observed, key, value));
            known.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        });
        Self {
            observed,
            now,
            status,
            annotations,
            finalizer: finalizers.is_some_and(|all| all.iter().any(|one| one == annotations::FINALIZER)),
            events: Vec::new(),
            actions: Vec::new(),
            needs: Vec::new(),
            waits: Vec::new(),
            noted: Vec::new(),
            degraded: None,
            ask_again_at: None,
        }
    }

    /// The status as drafted so far.
    #[must_use]
    pub fn status(&self) -> &UpgradePlanStatus {
        &self.status
    }

    /// What rules may write of the status.
    pub fn record(&mut self) -> Record<'_> {
        let status = &mut self.status;
        Record {
            version: &mut status.version,
            previous_version: &mut status.previous_version,
            single_node: &mut status.single_node,
            iso_image_id: &mut status.iso_image_id,
            release_digests: &mut status.release_digests,
            release_metadata: &mut status.release_metadata,
            repository: &mut status.repository,
            provision_generation: &mut status.provision_generation,
            preflight: &mut status.preflight,
            postflight: &mut status.postflight,
        }
    }

    /// The name of the plan.
    #[must_use]
    pub fn plan_name(&self) -> &'a str {
        self.observed.plan.metadata.name.as_deref().unwrap_or_default()
    }

    /// Where the repository is, as recorded in the plan.
    #[must_use]
    pub fn repo_url(&self) -> String {
        names::repo_url(self.plan_name(), RepoScheme::by(self.status.repository.as_ref()))
    }

    /// The value of an annotation of the plan: what its user says.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.observed.plan.annotation(key)
    }

    /// A note about the plan, with what the draft changes.
    #[must_use]
    pub fn noted(&self, key: &str) -> Option<&str> {
        self.status.notes.as_ref()?.get(key).map(String::as_str)
    }

    /// Takes (`Some`) or forgets (`None`) a note about the plan. Written before any action is carried out.
    pub fn note(&mut self, key: &str, value: Option<String>) {
        let notes = self.status.notes.get_or_insert_default();
        match value {
            Some(value) => notes.insert(key.to_owned(), value),
            None => notes.remove(key),
        };
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
        let message = message.map(|text| plain(&text, LONGEST_SUMMARY));
        self.status.current_phase = Some(phase.to_string());
        self.status.phase_transition_timestamps.push(PhaseTransition {
            phase: phase.to_string(),
            phase_transition_timestamp: Time(self.now),
            message,
        });
    }

    /// Adds an event of this try.
    pub fn event(&mut self, event: PlanEvent) {
        let attempt = tries::failed_before(Some(&self.status));
        self.events.push(event.in_attempt(attempt));
    }

    /// Adds an action.
    pub fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Deletes a Job that is seen, and no other that has taken its name since.
    pub fn delete_job(&mut self, key: &str, job: &ObservedJob) {
        self.act(Action::DeleteJob {
            namespace: job.namespace.clone(),
            name: name_of(key).to_owned(),
            uid: job.uid.clone(),
        });
    }

    /// Creates an object of ours. Its image is recorded first.
    pub fn create(&mut self, child: Child) {
        if child.runs_programs() && self.noted(annotations::TOOLKIT_IMAGE).is_none() {
            let own = self.observed.settings.own_image.to_string();
            self.note(annotations::TOOLKIT_IMAGE, Some(own));
        }
        self.actions.push(Action::Create(child));
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

    /// The plan as it has ended, with its remaining waits; past their deadline they are reported like any other wait.
    #[must_use]
    pub fn still_ended(mut self) -> Decision {
        let waited = self
            .observed
            .plan
            .status
            .iter()
            .any(|status| !status.waiting_for.is_empty());
        if !self.show_trouble() && waited && self.waits.is_empty() {
            // No retry is requested any more, so nothing stalls.
            let why = self.observed.plan.condition(reasons::PROGRESSING);
            let why = why.map(|condition| condition.message.clone()).unwrap_or_default();
            self.show_no_trouble(&why);
        }
        self.waiting()
    }

    /// Nothing is wrong, unless the upgrade has failed: a failed plan must not have the conditions of one that succeeded.
    fn show_no_trouble(&mut self, why: &str) {
        if self.status.current_phase.as_deref() == Some(Phase::Failed.as_str()) {
            self.set_condition(reasons::DEGRADED, true, reasons::UPGRADE_FAILED, why);
        } else {
            self.set_condition(reasons::DEGRADED, false, reasons::RECONCILE_SUCCESS, "");
        }
    }

    /// Reports what needs attention. Returns whether there is anything.
    fn show_trouble(&mut self) -> bool {
        let Some(Trouble { reason, message, known }) = self.degraded.take() else {
            self.status.insights.clear();
            return false;
        };
        let message = if reason == reasons::STALLED {
            self.explain(message)
        } else {
            self.status.insights.clear();
            message
        };
        if self.set_condition(reasons::DEGRADED, true, reason, &message) && !known {
            let text = if reason == reasons::STALLED {
                message
            } else {
                format!("Pipeline error: {message}")
            };
            self.event(PlanEvent::warning(reason, text));
        }
        true
    }

    /// The message about a wait that is past its deadline, with the known situation that explains it. All of them are in the
    /// status, and each new one is reported.
    fn explain(&mut self, message: String) -> String {
        let before: BTreeSet<(String, Option<String>)> = self
            .status
            .insights
            .iter()
            .map(|insight| (insight.id.clone(), insight.object.clone()))
            .collect();
        self.status.insights.clone_from(&self.observed.insights);
        for insight in &self.observed.insights {
            if !before.contains(&(insight.id.clone(), insight.object.clone())) {
                self.event(PlanEvent::warning(reasons::INSIGHT, insight.to_string()));
            }
        }
        match self.observed.insights.first() {
            Some(Insight { id, message: why, .. }) => format!("{message}{}{id}: {why}", waits::EXPLAINED_BY),
            None => message,
        }
    }

    /// The decision, with its waits, to be looked at again when one of them should be over.
    fn waiting(mut self) -> Decision {
        let deadlines = self
            .waits
            .iter()
            .filter_map(|wait| wait.deadline.as_ref().map(|time| time.0));
        let wake_at = deadlines.filter(|at| *at > self.now).chain(self.ask_again_at).min();
        self.status.waiting_for = std::mem::take(&mut self.waits);
        self.set_progress();
        Decision {
            wake_at,
            ..self.unchanged()
        }
    }

    /// The decision, with conditions and waits. `available` is status, reason and message of that condition;
    /// `progressing` whether the upgrade continues, and with which message instead of the one made from the waits.
    #[must_use]
    pub fn finish(mut self, available: (bool, &str, &str), progressing: bool, message: Option<String>) -> Decision {
        if let Some(error) = &self.observed.trouble {
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
        if !self.show_trouble() {
            self.show_no_trouble(&message);
        }
        let (status, reason, message) = available;
        self.set_condition(reasons::AVAILABLE, status, reason, message);
        self.waiting()
    }

    /// Sets a condition; its time moves only when its status does. Returns whether anything but the time changed.
    fn set_condition(&mut self, type_: &str, status: bool, reason: &str, message: &str) -> bool {
        let status = if status { "True" } else { "False" };
        let wanted = Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: plain(message, LONGEST_SUMMARY),
            last_transition_time: Time(self.now),
            observed_generation: self.observed.plan.metadata.generation,
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
