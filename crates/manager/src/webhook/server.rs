//! The HTTPS server: sockets, handshakes, paths. Never ends because of what a client does.

use std::{sync::Arc, time::Duration};

use axum::{Json, Router, body::Bytes, extract::DefaultBodyLimit, routing::post};
use clock::Clock;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::tls::{Presented, TlsError};

use super::{
    configurations::{MUTATING_PATH, VALIDATING_PATH},
    facts::Facts,
    review::{Answer, Review},
};

/// Largest request: two objects of the largest size that an API server stores.
const BODY_LIMIT: usize = 3 * 1024 * 1024;
/// Most connections at once. API servers keep one or two each.
const CONNECTIONS: usize = 64;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a connection may be idle: longer than the API server's own limit of 90 seconds, so that it hangs up first.
const IDLE: Duration = Duration::from_secs(120);
/// Pause after a connection could not be accepted, for example for want of file handles.
const BREATH: Duration = Duration::from_secs(1);

/// Both webhooks at their paths.
pub fn router(facts: Facts) -> Router {
    let validate = move |body: Bytes| {
        let facts = facts.clone();
        async move { Json(validate(&facts, &body).await) }
    };
    let mutate = async |body: Bytes| Json(mutate(&body));
    Router::new()
        .route(VALIDATING_PATH, post(validate))
        .route(MUTATING_PATH, post(mutate))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
}

/// What the validating webhook answers.
pub async fn validate(facts: &Facts, body: &[u8]) -> Answer {
    match Review::read(body) {
        Ok(review) => {
            let cluster = facts.read(review.reads()).await;
            review.validate(&cluster)
        }
        Err(answer) => *answer,
    }
}

/// What the mutating webhook answers.
#[must_use]
pub fn mutate(body: &[u8]) -> Answer {
    Review::read(body).map_or_else(|answer| *answer, Review::mutate)
}

/// Serves until it is dropped; open connections end with it.
///
/// # Errors
/// The cryptography at hand cannot serve.
pub async fn serve(
    listener: Arc<TcpListener>,
    presented: Presented,
    router: Router,
    clock: Clock,
) -> Result<(), TlsError> {
    let acceptor = TlsAcceptor::from(Arc::new(presented.server_config()?));
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return Ok(());
        };
        let accepted = tokio::select! {
            biased;
            // Finished connections are forgotten as they finish, not only when the next one comes.
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let (acceptor, router, clock) = (acceptor.clone(), router.clone(), clock.clone());
                connections.spawn(async move {
                    connection(stream, acceptor, router, clock).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                clock.sleep(BREATH).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, router: Router, clock: Clock) {
    let stream = tokio::select! {
        biased;
        stream = acceptor.accept(stream) => stream,
        () = clock.sleep(HANDSHAKE) => return,
    };
    let stream = match stream {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "a TLS handshake failed");
            return;
        }
    };
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a webhook connection ended");
    }
}
