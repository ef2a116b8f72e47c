//! Takes connections, as many as the limits allow, until it is told to end.

use std::{future::Future, io, sync::Arc, time::Duration};

use clock::Clock;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::timeout,
};

use super::{
    Limits, REFUSALS,
    connection::{self, Shared},
};
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
    let places = Arc::new(Semaphore::new(limits.connections));
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    let mut connections = JoinSet::new();
    let mut end = std::pin::pin!(end);
    loop {
        let accepted: io::Result<(TcpStream, _)> = tokio::select! {
            biased;
            () = &mut end => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "failed to take a connection");
                clock.sleep(AFTER_FAILURE).await;
                continue;
            }
        };
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            let shared = shared.clone();
            connections.spawn(async move {
                connection::run(stream, shared).await;
                drop(place);
            });
        } else if let Ok(place) = Arc::clone(&refusals).try_acquire_owned() {
            connections.spawn(async move {
                connection::refuse(stream, limits).await;
                drop(place);
            });
        }
    }
    drop(listener);
    let _ = stop.send(true);
    let rest = async { while connections.join_next().await.is_some() {} };
    if timeout(limits.grace, rest).await.is_err() {
        tracing::warn!("some downloads were cut off: they did not end in time");
    }
}
