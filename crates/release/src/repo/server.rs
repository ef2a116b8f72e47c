//! Takes connections, as many as the limits allow, until it is stopped. Plain and encrypted ones share the places.

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use clock::Clock;
use serving::{Limits, Places};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::timeout,
};

use tokio_rustls::TlsAcceptor;

use super::connection::{self, Shared};
use crate::iso::Iso;

/// How long no connection is taken after taking one failed: what fails is having too many files open.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Threads that may wait for the disk at once.
const DISK_THREADS: usize = 16;

/// What a repository runs on. The kernel copies; one thread only starts the copies, and is faster than two that get in each other's
/// way. Encryption over TLS takes the same thread: see docs/benchmarks.md.
///
/// # Errors
/// The system has no threads left.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(DISK_THREADS)
        .build()
}

/// The listeners.
pub struct Doors {
    plain: TcpListener,
    secure: Option<(TcpListener, TlsAcceptor)>,
}

impl From<TcpListener> for Doors {
    fn from(plain: TcpListener) -> Self {
        Self { plain, secure: None }
    }
}

impl Doors {
    /// The same files over TLS, too.
    #[must_use]
    pub fn and(self, listener: TcpListener, acceptor: TlsAcceptor) -> Self {
        Self {
            secure: Some((listener, acceptor)),
            ..self
        }
    }

    /// The next connection, and what makes it an encrypted one.
    async fn next(&self) -> (io::Result<(TcpStream, SocketAddr)>, Option<&TlsAcceptor>) {
        let Some((listener, acceptor)) = &self.secure else {
            return (self.plain.accept().await, None);
        };
        tokio::select! {
            accepted = self.plain.accept() => (accepted, None),
            accepted = listener.accept() => (accepted, Some(acceptor)),
        }
    }
}

/// Serves an image until `end` is ready. Then no connection is taken any more, and requests that are being answered
/// have [`Limits::grace`] to finish.
pub async fn serve(
    doors: impl Into<Doors>,
    iso: Arc<Iso>,
    limits: Limits,
    clock: Clock,
    end: impl Future<Output = ()>,
) {
    let doors = doors.into();
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
        let (accepted, acceptor) = tokio::select! {
            biased;
            () = &mut end => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = doors.next() => accepted,
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
        let (shared, acceptor) = (shared.clone(), acceptor.cloned());
        connections.spawn(async move {
            tokio::select! {
                biased;
                () = connection::run(stream, acceptor, shared, &place) => {}
                () = place.lost() => tracing::debug!(%peer, "a connection was closed: another one has replaced it"),
            }
        });
    }
    drop(doors);
    let _ = stop.send(true);
    let rest = async { while connections.join_next().await.is_some() {} };
    if timeout(limits.grace, rest).await.is_err() {
        tracing::warn!("some downloads were cut off: they did not end in time");
    }
}
