//! An HTTPS server within the limits of [`serving`]. Never ends because of what a client does.

use std::sync::Arc;

use axum::Router;
use serving::Limits;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::tls::{Clients, Presented, TlsError};

/// Serves those clients until it is dropped; open connections end with it.
///
/// # Errors
/// The cryptography at hand cannot serve.
pub async fn serve(
    listener: Arc<TcpListener>,
    presented: Presented,
    clients: &Clients,
    router: Router,
    limits: Limits,
) -> Result<(), TlsError> {
    let acceptor = TlsAcceptor::from(Arc::new(presented.server_config(clients)?));
    let handshake = move |stream: TcpStream| acceptor.accept(stream);
    serving::http::serve(&listener, limits, handshake, router, std::future::pending()).await;
    Ok(())
}

/// The same without encryption.
pub async fn serve_plain(listener: &TcpListener, router: Router, limits: Limits) {
    let handshake = |stream: TcpStream| std::future::ready(Ok(stream));
    serving::http::serve(listener, limits, handshake, router, std::future::pending()).await;
}
