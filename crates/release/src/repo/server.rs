//! Takes connections, as many as the limits allow, until it is told to end.

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use clock::Clock;
use serving::{Limits, Places};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::timeout,
};

use super::connection::{self, Shared};
use crate::iso::Iso;

/// How long no connection is taken after taking one failed: what fails is having too many files open.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Serves an image until `end` is ready. Then no connection is taken any more, and requests that are being answered
/// have [`Limits::grace`] to finish.
pub async fn serve(listener: TcpListener, iso: Arc<Iso>, limits: Limits, clock: Clock, end: impl Future<Output = ()>) {
    let (stop, stopping) = watch::channel(false);
    let shared = Shared {
        iso,
        limits,
        clock: clock.clone(),
        stopping,
    };
    let places = Places::new(&limits);
    let mut connections = JoinSet::new();
    let mut end = std::pin::pin!(end);
    loop {
        let accepted: io::Result<(TcpStream, SocketAddr)> = tokio::select! {
            biased;
            () = &mut end => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok((stream, address)) => (stream, address.ip()),
            Err(error) => {
                tracing::warn!(%error, "failed to take a connection");
                clock.sleep(AFTER_FAILURE).await;
                continue;
            }
        };
        let place = places.enter(peer);
        let shared = shared.clone();
        connections.spawn(async move {
            tokio::select! {
                biased;
                () = connection::run(stream, shared, &place) => {}
                () = place.lost() => tracing::debug!(%peer, "a connection was closed: somebody else has its place"),
            }
        });
    }
    drop(listener);
    let _ = stop.send(true);
    let rest = async { while connections.join_next().await.is_some() {} };
    if timeout(limits.grace, rest).await.is_err() {
        tracing::warn!("some downloads were cut off: they did not end in time");
    }
}
