//! Admission over HTTPS: the API server asks whether an UpgradePlan may be created, changed or deleted.
//!
//! What is decided is in [`checks::admission`]; here are the wire ([`review`]), how much of it is taken in at once
//! ([`review_budget`], [`measure`]), what is read of the cluster ([`facts`], `kept`), the paths ([`server`]) and the objects that make the
//! API server call it ([`configurations`]).

pub mod access_reviews;
pub mod configurations;
pub mod facts;
mod kept;
mod measure;
pub mod review;
pub mod review_budget;
pub mod server;

use std::sync::Arc;

use api::image::Sources;
use clock::Clock;
use kube::Client;
use serving::Limits;
use tokio::net::TcpListener;

pub use configurations::configurations;

use crate::{
    https,
    metrics::Metrics,
    tls::{
        Clients, Presented,
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
    /// Which clients are served.
    pub clients: Clients,
}

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum CertificateSource {
    /// The managers make and renew it by themselves.
    Managed(Managed),
    /// Another program writes it to files.
    Files(Files),
}

/// Serves until it is dropped. Never ends by itself: what fails is tried again.
pub async fn run(
    client: Client,
    clock: Clock,
    watched: Watched,
    config: WebhookConfig,
    sources: Sources,
    metrics: Option<Metrics>,
) {
    let presented = Presented::reporting_to(metrics);
    let facts = Facts::new(client.clone(), watched, clock.clone()).with_images_from(sources);
    let router = server::router(facts);
    let serve = https::serve(
        config.listener,
        presented.clone(),
        &config.clients,
        router,
        Limits::WEBHOOK,
    );
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
