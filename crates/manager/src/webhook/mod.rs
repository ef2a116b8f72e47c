//! Admission over HTTPS: the API server asks whether an UpgradePlan may be created, changed or deleted.
//!
//! What is decided is in [`checks::admission`]; here are the wire ([`review`]), what is read of the cluster
//! ([`facts`]), the sockets ([`server`]) and the objects that make the API server ask ([`configurations`]).

pub mod configurations;
pub mod facts;
pub mod review;
pub mod server;

use std::sync::Arc;

use clock::Clock;
use kube::Client;
use tokio::net::TcpListener;

pub use configurations::configurations;

use crate::{
    https,
    metrics::Metrics,
    tls::{
        Presented,
        files::{Files, Follower},
        managed::{Keeper, Managed},
    },
    watched::Watched,
};

use facts::Facts;

/// How the webhook server runs.
#[derive(Clone, Debug)]
pub struct WebhookConfig {
    /// Where it listens.
    pub listener: Arc<TcpListener>,
    /// Where its certificate comes from.
    pub certificate: CertificateSource,
}

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// The managers make and renew it by themselves.
    Managed(Managed),
    /// Somebody else puts it into files.
    Files(Files),
}

/// Serves until it is dropped. Never ends by itself: what fails is tried again.
pub async fn run(client: Client, clock: Clock, watched: Watched, config: WebhookConfig, metrics: Option<Metrics>) {
    let presented = Presented::told_to(metrics);
    let facts = Facts::new(client.clone(), watched, clock.clone());
    let serve = https::serve(config.listener, presented.clone(), server::router(facts), clock.clone());
    let keep = async {
        match config.certificate {
            CertificateSource::Managed(managed) => Keeper::new(client, clock, managed, presented).run().await,
            CertificateSource::Files(files) => Follower::new(files, presented).run(clock).await,
        }
    };
    let (served, ()) = futures::join!(serve, keep);
    if let Err(error) = served {
        tracing::error!(%error, "the webhook server failed");
    }
}
