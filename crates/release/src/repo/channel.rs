//! A connection in either form: plain, where the kernel sends files by itself, or over TLS, where they pass through us.

use std::{io, sync::Arc, time::Duration};

use rustix::net::Shutdown;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::server::TlsStream;

use super::{sealed, send};
use crate::iso::{Extent, Iso};

/// A connection.
pub(super) enum Channel {
    Plain(Arc<TcpStream>),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Channel {
    /// Reads what is there, at most so much that the buffer stays bounded.
    pub(super) async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let mut part = [0; 4096];
        let count = match self {
            Self::Plain(stream) => loop {
                stream.readable().await?;
                match stream.try_read(&mut part) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => break read?,
                }
            },
            Self::Tls(stream) => stream.read(&mut part).await?,
        };
        buffer.extend_from_slice(part.get(..count).unwrap_or_default());
        Ok(count)
    }

    /// Sends bytes from memory.
    pub(super) async fn send(&mut self, bytes: &[u8], stall: Duration) -> io::Result<()> {
        match self {
            Self::Plain(stream) => send::bytes(stream, bytes, stall).await,
            Self::Tls(stream) => sealed::bytes(stream, bytes, stall).await,
        }
    }

    /// Sends a run of bytes of the image.
    pub(super) async fn send_extent(&mut self, iso: &Arc<Iso>, extent: Extent, stall: Duration) -> io::Result<()> {
        match self {
            Self::Plain(stream) => send::extent(stream, iso, extent, stall).await,
            Self::Tls(stream) => sealed::extent(stream, iso, extent, stall).await,
        }
    }

    /// Sends buffered data.
    pub(super) async fn flush(&mut self, stall: Duration) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(stream) => in_time(stall, stream.flush()).await,
        }
    }

    /// Says that nothing more is sent.
    pub(super) async fn shut(&mut self, stall: Duration) -> io::Result<()> {
        match self {
            Self::Plain(stream) => Ok(rustix::net::shutdown(stream.as_ref(), Shutdown::Write)?),
            Self::Tls(stream) => in_time(stall, stream.shutdown()).await,
        }
    }
}

/// As long as a client may stall.
pub(super) async fn in_time<T>(stall: Duration, doing: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(stall, doing).await {
        Ok(done) => done,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
