//! The loop of the manager: observe → decide → throttle → record → report → act → ask, for every plan, whenever something
//! changed. Each step is a value in and a value out; no step edits what another decided.

use std::{sync::Arc, time::Duration};

use api::{UpgradePlan, node::is_managed};
use clock::Clock;
use futures::{StreamExt, stream::FuturesUnordered};
use jiff::Timestamp;
use kube::{Client, ResourceExt};
use plan::{
    Need, announce, decide,
    decide::is_settled,
    look_back::{self, LookBack},
    observed::{Observed, Settings},
};

use crate::{
    act::{ActError, Actor, Versions},
    backoff::Backoff,
    decision_log,
    external_probes::ExternalProbes,
    facts::{self, Answering, Known},
    memo::Memos,
    metrics::Metrics,
    observe::{aftermath::aftermath, failed_restores, insights::Insights, observe},
    run::RunError,
    status_throttle::{StatusThrottle, StatusWrite},
    upgrade_record::Look,
    watched::Watched,
};

/// Changes come in bursts: one pass at the end of a burst handles them all.
const BURST: Duration = Duration::from_millis(5);
/// How long caches may lag behind our own writes before we look anyway.
const MAX_LAG: Duration = Duration::from_secs(10);

/// Another manager may be at work.
struct LeaseLost;

/// The manager, once it leads.
pub(crate) struct Manager {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) probes: Arc<dyn ExternalProbes>,
    pub(crate) settings: Settings,
    pub(crate) watched: Watched,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) actor: Actor,
    pub(crate) known: Known,
    pub(crate) state: State,
}

/// What the loop keeps from one pass to the next. None of it is needed to continue after a restart.
#[derive(Default)]
pub(crate) struct State {
    memos: Memos,
    throttle: StatusThrottle,
    backoff: Backoff,
    insights: Insights,
    answers: FuturesUnordered<Answering>,
    /// What we wrote; caches that have not seen it are behind.
    written: Versions,
    behind_since: Option<Duration>,
}

/// Whether plans can be looked at.
enum Readiness {
    /// These plans, oldest first.
    Plans(Vec<Arc<UpgradePlan>>),
    /// Not before the caches change, or this time comes.
    NotYet(Option<Timestamp>),
}

/// The earlier of two times.
fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    [one, other].into_iter().flatten().min()
}

impl Manager {
    /// Goes through the plans on every change, for ever.
    pub(crate) async fn work(mut self) -> RunError {
        loop {
            let wake_at = match self.pass().await {
                Ok(wake_at) => wake_at,
                Err(LeaseLost) => return RunError::LeaseLost,
            };
            let clock = self.clock.clone();
            let timer = async {
                match wake_at {
                    Some(moment) => clock.sleep_until(moment).await,
                    None => std::future::pending().await,
                }
            };
            let answers = &mut self.state.answers;
            tokio::select! {
                biased;
                Some(answer) = answers.next(), if !answers.is_empty() => self.known.take(answer, &self.clock),
                () = self.watched.changed.notified() => tokio::time::sleep(BURST).await,
                () = timer => {}
            }
        }
    }

    /// Looks at every plan once; when to look again at the latest.
    async fn pass(&mut self) -> Result<Option<Timestamp>, LeaseLost> {
        let plans = match self.readiness() {
            Readiness::Plans(plans) => plans,
            Readiness::NotYet(until) => return Ok(until),
        };
        self.forget_all_but(&plans);
        if let Some(metrics) = &self.metrics {
            metrics.look(&plans, &self.watched);
        }
        let mut wake_at = None;
        self.report_late().await?;
        for plan in &plans {
            wake_at = earliest(wake_at, self.reconcile_with_backoff(plan).await?);
        }
        Ok(earliest(wake_at, self.next_report()))
    }

    /// Reconciles one plan. Its errors are shown on it, and block no other plan.
    async fn reconcile_with_backoff(&mut self, plan: &Arc<UpgradePlan>) -> Result<Option<Timestamp>, LeaseLost> {
        match self.reconcile(plan).await {
            Ok(wake_at) => {
                self.state.backoff.clear(plan);
                Ok(wake_at)
            }
            Err(ActError::NotLeader) => Err(LeaseLost),
            Err(error) => {
                let pause = self.state.backoff.note(plan, &error);
                Ok(self.after(pause))
            }
        }
    }

    /// Takes a plan one step further; when to look again at the latest.
    async fn reconcile(&mut self, plan: &Arc<UpgradePlan>) -> Result<Option<Timestamp>, ActError> {
        let (now, elapsed) = (self.clock.now_in_seconds(), self.clock.elapsed());
        self.actor.report(plan, self.history(plan, now), elapsed).await?;
        if is_settled(plan) {
            return self.look_back(plan, now).await;
        }
        let observed = self.observe(plan, now);
        let decision = decide(now, &observed);
        let write = self.state.throttle.admit(plan, &decision, elapsed);
        decision_log::log(plan, &decision, write);
        let written = &mut self.state.written;
        let recorded = self.actor.record(plan, &decision, write, written).await?;
        self.state.throttle.record(plan, write, elapsed);
        let Some(recorded) = recorded else { return Ok(None) };
        let events = decision.events.iter().map(|event| (now, event.clone())).collect();
        self.actor.report(&recorded, events, elapsed).await?;
        self.actor
            .carry_out(&recorded, &self.watched, &decision, written)
            .await?;
        self.ask(plan, &decision.needs);
        Ok(earliest(
            decision.wake_at,
            write.later().and_then(|left| self.after(left)),
        ))
    }

    /// Compares the cluster with what was there before a plan that has ended, once; when to look again at the latest.
    async fn look_back(&mut self, plan: &Arc<UpgradePlan>, now: Timestamp) -> Result<Option<Timestamp>, ActError> {
        if look_back::to_be_compared(plan).is_none() {
            return Ok(None);
        }
        let seen = aftermath(&self.watched, plan, self.known.comparison(plan));
        match look_back::decide(now, plan, &seen) {
            LookBack::Nothing => Ok(None),
            LookBack::Wait(until) => Ok(Some(until)),
            LookBack::Compare => {
                self.known.compares(plan);
                self.state.answers.push(facts::compare(self.look(), plan));
                Ok(None)
            }
            LookBack::Report(decision) => {
                let written = &mut self.state.written;
                self.actor.record(plan, &decision, StatusWrite::Now, written).await?;
                Ok(None)
            }
        }
    }

    /// How the cluster is read.
    fn look(&self) -> Look {
        Look::new(self.client.clone(), self.watched.clone(), self.clock.clone())
    }

    /// The events that follow from the record. A manager that stopped between a write and its events catches up.
    fn history(&self, plan: &UpgradePlan, now: Timestamp) -> Vec<(Timestamp, rules::PlanEvent)> {
        let mut events = announce::phase_events(plan, now);
        events.extend(announce::override_events(plan));
        events.extend(announce::check_events(plan, now));
        if is_settled(plan) {
            let failed = failed_restores(&self.watched, plan);
            events.extend(announce::late_restore_events(plan, &failed, now));
        }
        events
    }

    /// Everything that a decision about a plan may depend on.
    fn observe(&mut self, plan: &Arc<UpgradePlan>, now: Timestamp) -> Observed {
        let insights = self.state.insights.of(&self.watched, plan, now);
        let error = self.state.backoff.trouble(plan).map(str::to_owned);
        observe(
            &self.watched,
            &mut self.state.memos,
            &self.settings,
            plan,
            self.known.of(plan),
            error.or_else(|| self.actor.recorder().trouble(plan)),
            insights,
        )
    }

    /// Starts to answer questions that are not being answered already.
    fn ask(&mut self, plan: &UpgradePlan, needs: &[Need]) {
        for need in needs {
            if !self.known.ask(plan, *need) {
                continue;
            }
            let nodes = self.watched.nodes.list();
            let managed = nodes.iter().filter(|node| is_managed(node));
            let managed = managed.map(|node| facts::kubelet_of(node)).collect();
            let answer = facts::answer(self.look(), self.probes.clone(), plan, *need, managed);
            self.state.answers.push(answer);
        }
    }

    /// Whether the caches are up to date.
    fn readiness(&mut self) -> Readiness {
        if !self.watched.is_synced() {
            return Readiness::NotYet(None);
        }
        if let Some(until) = self.behind() {
            return Readiness::NotYet(Some(until));
        }
        let mut plans = self.watched.plans.list();
        plans.sort_by_key(|plan| (plan.creation_timestamp().map(|time| time.0), plan.uid()));
        Readiness::Plans(plans)
    }

    /// Until when to wait for the caches to catch up with our own writes. Deciding on what we know to be outdated
    /// would only produce conflicts.
    fn behind(&mut self) -> Option<Timestamp> {
        let state = &mut self.state;
        state
            .written
            .retain(|kind, version| self.watched.observed(*kind) < *version);
        if state.written.is_empty() {
            state.behind_since = None;
            return None;
        }
        let since = *state.behind_since.get_or_insert(self.clock.elapsed());
        let lag = self.clock.elapsed().saturating_sub(since);
        if lag >= MAX_LAG {
            // What we wrote may be gone again; then it will never be seen.
            state.written.clear();
            state.behind_since = None;
            return None;
        }
        self.clock.now().saturating_add(MAX_LAG.saturating_sub(lag)).ok()
    }

    /// Forgets plans that are gone.
    fn forget_all_but(&mut self, plans: &[Arc<UpgradePlan>]) {
        self.known.keep(plans);
        self.state.throttle.keep(plans);
        self.state.backoff.keep(plans);
        self.state.insights.keep(plans);
        self.actor.recorder().keep(plans);
    }

    /// Reports events that could not be reported before, if it is time.
    async fn report_late(&mut self) -> Result<(), LeaseLost> {
        self.actor.catch_up(self.clock.elapsed()).await.map_err(|_| LeaseLost)
    }

    /// When events are tried again that could not be reported.
    fn next_report(&self) -> Option<Timestamp> {
        let left = self.actor.recorder().again_in(self.clock.elapsed())?;
        self.after(left)
    }

    /// So long from now.
    fn after(&self, pause: Duration) -> Option<Timestamp> {
        self.clock.now().saturating_add(pause).ok()
    }
}
