//! The manager: watches, competes for the lease, and goes through the plans whenever something changed.

use std::{future::Future, sync::Arc, time::Duration};

use api::{UpgradePlan, image::Sources, names, node::is_managed};
use clock::Clock;
use futures::{StreamExt, stream::FuturesUnordered};
use jiff::Timestamp;
use kube::{Client, ResourceExt};
use plan::{announce, decide, observed::Settings};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    act::{ActError, Actor, Versions},
    decision_log,
    facts::{self, Answering, Known},
    health,
    lease::{self, Leadership, LeaseTiming},
    memory::Memory,
    metrics::{self, Metrics, server::MetricsConfig},
    news::News,
    observe::{failed_restores, observe},
    outside::Outside,
    setbacks::Setbacks,
    watched::Watched,
    webhook::{self, WebhookConfig},
};

/// Changes come in bursts: one look at the end of a burst sees them all.
const BURST: Duration = Duration::from_millis(5);
/// How long caches may lag behind our own writes before we look anyway.
const LONGEST_LAG: Duration = Duration::from_secs(10);

/// How the manager runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// What decisions depend on.
    pub settings: Settings,
    /// The namespace of the lease; without it there is no election.
    pub lease_namespace: Option<String>,
    /// How long the lease is held, and how often it is renewed.
    pub lease_timing: LeaseTiming,
    /// Who this manager is, among those that compete.
    pub identity: String,
    /// Metrics; without it none are kept.
    pub metrics: Option<MetricsConfig>,
    /// Admission; without it plans are not checked when they are created, changed or deleted.
    pub webhook: Option<WebhookConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            lease_namespace: Some(names::HARVESTER_NAMESPACE.to_owned()),
            lease_timing: LeaseTiming::default(),
            identity: "manager".to_owned(),
            metrics: None,
            webhook: None,
        }
    }
}

/// Why the manager ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Another manager took over. This one ends so that it starts again with nothing in memory.
    #[error("the lease {} is lost; ending so that another manager can go on", names::LEASE)]
    LeaseLost,
}

/// Runs the manager until `shutdown`.
///
/// # Errors
/// The lease was lost.
pub async fn run(
    client: Client,
    clock: Clock,
    outside: Arc<dyn Outside>,
    config: Config,
    health_listener: Option<TcpListener>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), RunError> {
    let watched = Watched::default();
    // Everything in the background ends with this function.
    let mut background = JoinSet::new();
    for watch in watched.watches(&client) {
        background.spawn(watch);
    }
    if let Some(listener) = health_listener {
        let watched = watched.clone();
        background.spawn(health::serve(listener, watched));
    }
    if let Some(webhook) = config.webhook {
        let metrics = config.metrics.as_ref().map(|config| config.metrics.clone());
        background.spawn(webhook::run(
            client.clone(),
            clock.clone(),
            watched.clone(),
            webhook,
            Sources {
                own: config.settings.own_image.clone(),
                others: config.settings.allowed_repositories.clone(),
            },
            metrics,
        ));
    }
    let metrics = config.metrics.as_ref().map(|config| config.metrics.clone());
    if let Some(config) = config.metrics {
        background.spawn(metrics::server::run(
            client.clone(),
            clock.clone(),
            watched.clone(),
            config,
        ));
    }
    let leadership = match config.lease_namespace {
        Some(_) => Leadership::contested(clock.clone()),
        None => Leadership::unconditional(clock.clone()),
    };
    let lost = async {
        match &config.lease_namespace {
            Some(namespace) => {
                lease::compete(
                    client.clone(),
                    namespace,
                    &config.identity,
                    config.lease_timing,
                    &leadership,
                )
                .await
            }
            None => std::future::pending().await,
        }
    };
    let known = Known::default();
    let manager = Manager {
        metrics: metrics.clone(),
        actor: Actor::new(
            client.clone(),
            config.settings.clone(),
            leadership.clone(),
            metrics.clone(),
        )
        .with_keys(known.keyring().clone()),
        client: client.clone(),
        clock,
        outside,
        settings: config.settings.clone(),
        watched,
        memory: Memory::default(),
        news: News::default(),
        known,
        answers: FuturesUnordered::new(),
        written: Versions::new(),
        behind_since: None,
        setbacks: Setbacks::default(),
    };
    let work = async {
        leadership.gained().await;
        tracing::info!(identity = %config.identity, "leading");
        if let Some(metrics) = &metrics {
            metrics.leads(true);
        }
        manager.work().await
    };
    tokio::select! {
        biased;
        () = shutdown => Ok(()),
        () = lost => Err(RunError::LeaseLost),
        error = work => Err(error),
    }
}

/// Another manager may be at work.
struct LeaseLost;

struct Manager {
    client: Client,
    clock: Clock,
    outside: Arc<dyn Outside>,
    settings: Settings,
    watched: Watched,
    memory: Memory,
    news: News,
    metrics: Option<Metrics>,
    actor: Actor,
    known: Known,
    answers: FuturesUnordered<Answering>,
    /// What we wrote; caches that have not seen it are behind.
    written: Versions,
    behind_since: Option<Duration>,
    setbacks: Setbacks,
}

impl Manager {
    /// Goes through the plans on every change, for ever.
    async fn work(mut self) -> RunError {
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
            tokio::select! {
                biased;
                Some(answer) = self.answers.next(), if !self.answers.is_empty() => self.known.take(answer, &self.clock),
                () = self.watched.changed.notified() => tokio::time::sleep(BURST).await,
                () = timer => {}
            }
        }
    }

    /// Looks at every plan once; tells when to look again at the latest. What goes wrong with one plan holds up no other.
    async fn pass(&mut self) -> Result<Option<Timestamp>, LeaseLost> {
        if !self.watched.is_synced() {
            return Ok(None);
        }
        if let Some(until) = self.behind() {
            return Ok(Some(until));
        }
        let mut plans = self.watched.plans.list();
        plans.sort_by_key(|plan| (plan.creation_timestamp().map(|time| time.0), plan.uid()));
        self.known.keep(&plans);
        self.news.keep(&plans);
        self.setbacks.keep(&plans);
        if let Some(metrics) = &self.metrics {
            metrics.look(&plans, &self.watched);
        }
        self.actor.catch_up(self.clock.elapsed()).await.map_err(|_| LeaseLost)?;
        let mut wake_at: Option<Timestamp> = None;
        for plan in &plans {
            let again_at = match self.look_at(plan).await {
                Ok(again_at) => {
                    self.setbacks.clear(plan);
                    again_at
                }
                Err(ActError::NotLeader) => return Err(LeaseLost),
                Err(error) => {
                    let pause = self.setbacks.note(plan, &error);
                    self.after(pause)
                }
            };
            wake_at = [wake_at, again_at].into_iter().flatten().min();
        }
        let untold = self.actor.recorder().again_in(self.clock.elapsed());
        let told_at = untold.and_then(|pause| self.after(pause));
        Ok([wake_at, told_at].into_iter().flatten().min())
    }

    /// Decides about a plan and carries the decision out; tells when to look again at the latest.
    async fn look_at(&mut self, plan: &Arc<UpgradePlan>) -> Result<Option<Timestamp>, ActError> {
        let (now, elapsed) = (self.clock.now_in_seconds(), self.clock.elapsed());
        let mut changes = announce::phase_events(plan, now);
        changes.extend(announce::override_events(plan));
        self.actor.announce(plan, changes, elapsed).await?;
        if plan::decide::is_settled(plan) {
            let late = announce::late_restore_events(plan, &failed_restores(&self.watched, plan), now);
            self.actor.announce(plan, late, elapsed).await?;
            return Ok(None);
        }
        let trouble = self.setbacks.trouble(plan).map(str::to_owned);
        let seen = observe(
            &self.watched,
            &mut self.memory,
            &self.settings,
            plan,
            self.known.of(plan),
            trouble.or_else(|| self.actor.recorder().trouble(plan)),
        );
        let mut decision = decide(now, &seen);
        let rest = self.news.rest(plan, &decision, elapsed);
        if let (Some(_), Some(status)) = (rest, &plan.status) {
            decision.status = status.clone();
        }
        decision_log::log(plan, &decision);
        self.actor
            .carry_out(plan, &self.watched, &decision, (now, elapsed), &mut self.written)
            .await?;
        for need in &decision.needs {
            self.ask(plan, *need);
        }
        let told_at = rest.and_then(|rest| self.after(rest));
        Ok([decision.wake_at, told_at].into_iter().flatten().min())
    }

    /// So long from now.
    fn after(&self, pause: Duration) -> Option<Timestamp> {
        self.clock.now().saturating_add(pause).ok()
    }

    /// Until when to wait for the caches to catch up with our own writes. Deciding on what we know to be outdated
    /// would only produce conflicts.
    fn behind(&mut self) -> Option<Timestamp> {
        self.written.retain(|kind, version| self.watched.seen(*kind) < *version);
        if self.written.is_empty() {
            self.behind_since = None;
            return None;
        }
        let since = *self.behind_since.get_or_insert(self.clock.elapsed());
        let lag = self.clock.elapsed().saturating_sub(since);
        if lag >= LONGEST_LAG {
            // What we wrote may be gone again; then it will never be seen.
            self.written.clear();
            self.behind_since = None;
            return None;
        }
        self.clock.now().saturating_add(LONGEST_LAG.saturating_sub(lag)).ok()
    }

    fn ask(&mut self, plan: &UpgradePlan, need: plan::Need) {
        if !self.known.ask(plan, need) {
            return;
        }
        let nodes = self.watched.nodes.list();
        let managed = nodes.iter().filter(|node| is_managed(node));
        let managed = managed.map(|node| facts::kubelet_of(node)).collect();
        self.answers.push(facts::answer(
            self.client.clone(),
            self.outside.clone(),
            plan,
            need,
            managed,
        ));
    }
}
