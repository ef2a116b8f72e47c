//! The manager: what it is made of, and how the pieces are wired. What it does with plans is in [`crate::reconcile`].

use std::{future::Future, sync::Arc};

use api::{image::Sources, names};
use clock::Clock;
use kube::Client;
use plan::observed::Settings;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    act::Actor,
    external_probes::ExternalProbes,
    facts::Known,
    health,
    lease::{self, Leadership, LeaseTiming},
    metrics::{self, Metrics, server::MetricsConfig},
    reconcile::Manager,
    watched::Watched,
    webhook::{self, WebhookConfig},
};

/// How the manager runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// What decisions depend on.
    pub settings: Settings,
    /// The namespace of the lease; without it there is no election.
    pub lease_namespace: Option<String>,
    /// How long the lease is held, and how often it is renewed.
    pub lease_timing: LeaseTiming,
    /// The identity of this manager in the leader election.
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
    #[error("the lease {} is lost; ending so that another manager can continue", names::LEASE)]
    LeaseLost,
}

/// Runs the manager until `shutdown`.
///
/// # Errors
/// The lease was lost.
pub async fn run(
    client: Client,
    clock: Clock,
    probes: Arc<dyn ExternalProbes>,
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
    spawn_servers(&mut background, &client, &clock, &watched, &config, health_listener);
    let leadership = leadership(&config, &clock);
    let lost = compete(client.clone(), &config, &leadership);
    let manager = assemble(client, clock, probes, watched, &config, leadership.clone());
    let work = async {
        leadership.gained().await;
        lead(&config.identity, manager.metrics.as_ref());
        manager.work().await
    };
    tokio::select! {
        biased;
        () = shutdown => Ok(()),
        () = lost => Err(RunError::LeaseLost),
        error = work => Err(error),
    }
}

/// Whether this manager may write: with leader election only after it is elected.
fn leadership(config: &Config, clock: &Clock) -> Leadership {
    match config.lease_namespace {
        Some(_) => Leadership::contested(clock.clone()),
        None => Leadership::unconditional(clock.clone()),
    }
}

/// The manager, of its pieces. It does nothing yet.
fn assemble(
    client: Client,
    clock: Clock,
    probes: Arc<dyn ExternalProbes>,
    watched: Watched,
    config: &Config,
    leadership: Leadership,
) -> Manager {
    let metrics = config.metrics.as_ref().map(|config| config.metrics.clone());
    let known = Known::default();
    let actor = Actor::new(client.clone(), config.settings.clone(), leadership, metrics.clone());
    Manager {
        client,
        clock,
        probes,
        settings: config.settings.clone(),
        watched,
        metrics,
        actor: actor
            .with_keys(known.keyring().clone())
            .with_records(known.unstored().clone()),
        known,
        state: Default::default(),
    }
}

/// Starts what answers others: health, webhooks, metrics.
fn spawn_servers(
    background: &mut JoinSet<()>,
    client: &Client,
    clock: &Clock,
    watched: &Watched,
    config: &Config,
    health_listener: Option<TcpListener>,
) {
    if let Some(listener) = health_listener {
        background.spawn(health::serve(listener, watched.clone()));
    }
    if let Some(webhook) = &config.webhook {
        let sources = Sources {
            own: config.settings.own_image.clone(),
            others: config.settings.allowed_repositories.clone(),
        };
        background.spawn(webhook::run(
            client.clone(),
            clock.clone(),
            watched.clone(),
            webhook.clone(),
            sources,
            config.metrics.as_ref().map(|config| config.metrics.clone()),
        ));
    }
    if let Some(metrics) = &config.metrics {
        background.spawn(metrics::server::run(
            client.clone(),
            clock.clone(),
            watched.clone(),
            metrics.clone(),
        ));
    }
}

/// Competes for the lease until it is lost; without an election, for ever.
async fn compete(client: Client, config: &Config, leadership: &Leadership) {
    match &config.lease_namespace {
        Some(namespace) => {
            lease::compete(client, namespace, &config.identity, config.lease_timing, leadership).await;
        }
        None => std::future::pending().await,
    }
}

fn lead(identity: &str, metrics: Option<&Metrics>) {
    tracing::info!(identity, "leading");
    if let Some(metrics) = metrics {
        metrics.leads(true);
    }
}
