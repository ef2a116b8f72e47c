//! A stream that reports when data is received, and breaks when nothing is sent for too long.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use crate::phase::Connection;

/// A stream of a connection.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: S,
    connection: Connection,
    stall: Duration,
    /// Since something waits to go out.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S, connection: Connection, stall: Duration) -> Self {
        Self {
            stream,
            connection,
            stall,
            waiting: None,
        }
    }

    /// Passes on what writing gave, or breaks off when that was nothing for too long.
    fn or_stalled<T>(&mut self, context: &mut Context<'_>, went: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if went.is_ready() {
            self.waiting = None;
            return went;
        }
        let stall = self.stall;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(stall)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client takes nothing of its answer",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        if into.filled().len() > before {
            self.connection.heard();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let went = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.or_stalled(context, went)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let went = Pin::new(&mut self.stream).poll_flush(context);
        self.or_stalled(context, went)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let went = Pin::new(&mut self.stream).poll_shutdown(context);
        self.or_stalled(context, went)
    }
}
