//! `rehearse --serve`: the cluster of a rehearsal, for kubectl.

use std::{
    fs::File,
    io::Read,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
};

use anyhow::Context;
use tokio::net::TcpListener;

use crate::rehearsal::{Rehearsal, follow::View, kubeconfig::Kubeconfig};

/// Serves the cluster and says how to reach it.
pub(super) async fn serve(
    rehearsal: &Rehearsal,
    address: SocketAddr,
    token: Option<&str>,
    view: &Mutex<View>,
) -> anyhow::Result<Kubeconfig> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("failed to listen on --serve {address}"))?;
    let address = listener.local_addr()?;
    let token = match token {
        Some("") => Some(random_token()?),
        token => token.map(str::to_owned),
    };
    let kubeconfig = Kubeconfig::write(address, token.as_deref())?;
    if let Some(token) = &token {
        rehearsal.server.require_token(token);
    }
    tokio::spawn(rehearsal.server.clone().serve(listener, std::future::pending()));
    let text = format!(
        "serving on http://{address}; in another terminal:\nexport KUBECONFIG={}",
        kubeconfig.path().display()
    );
    view.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .say(rehearsal.clock.now(), &text);
    Ok(kubeconfig)
}

/// A token that cannot be guessed.
fn random_token() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.context("failed to make a token: give one with --token")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
