//! An HTTPS server: sockets and handshakes. Never ends because of what a client does.

use std::{sync::Arc, time::Duration};

use axum::Router;
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

/// Most connections at once. API servers and Prometheus keep one or two each.
const CONNECTIONS: usize = 64;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a connection may be idle: longer than the API server's own limit of 90 seconds, so that it hangs up first.
const IDLE: Duration = Duration::from_secs(120);
/// Pause after a connection could not be accepted, for example for want of file handles.
const BREATH: Duration = Duration::from_secs(1);

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
        tracing::debug!(%error, "a connection ended");
    }
}
