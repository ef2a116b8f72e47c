//! Bytes to a socket: texts from memory, files from the page cache by sendfile. No send waits for ever.

use std::{
    io::{self, IoSliceMut},
    sync::Arc,
    time::Duration,
};

use rustix::io::ReadWriteFlags;
use tokio::{io::Interest, net::TcpStream, time::timeout};

use crate::iso::{Extent, Iso};

/// What is sent before other connections have their turn. Measured: larger turns fill the socket with what is no longer
/// in the processor's cache when it is taken, smaller ones cost more calls.
const TURN_BYTES: u64 = 256 * 1024;

/// Waits until the socket takes more, as long as a client may stall.
async fn writable(stream: &TcpStream, stall: Duration) -> io::Result<()> {
    match timeout(stall, stream.writable()).await {
        Ok(ready) => ready,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Sends bytes from memory.
pub(super) async fn bytes(stream: &TcpStream, mut bytes: &[u8], stall: Duration) -> io::Result<()> {
    while !bytes.is_empty() {
        writable(stream, stall).await?;
        match stream.try_write(bytes) {
            Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends a run of bytes of the image.
pub(super) async fn extent(stream: &Arc<TcpStream>, iso: &Arc<Iso>, extent: Extent, stall: Duration) -> io::Result<()> {
    let (mut offset, end) = (extent.offset, extent.offset + extent.length);
    while offset < end {
        writable(stream, stall).await?;
        let turn_end = end.min(offset + TURN_BYTES);
        offset = if is_in_memory(iso, offset, turn_end) {
            let reached = turn(stream, iso, offset, turn_end)?;
            tokio::task::yield_now().await;
            reached
        } else {
            let (stream, iso) = (Arc::clone(stream), Arc::clone(iso));
            // Reading from the disk must not hold up other connections.
            let turn = tokio::task::spawn_blocking(move || turn(&stream, &iso, offset, turn_end));
            turn.await.map_err(io::Error::other)??
        };
    }
    Ok(())
}

/// Whether sending these bytes will not wait for the disk, by a look at the first and the last one. Kernels and file
/// systems without support say no.
fn is_in_memory(iso: &Iso, begin: u64, end: u64) -> bool {
    [begin, end.saturating_sub(1)].into_iter().all(|at| {
        let mut byte = [0];
        let read = rustix::io::preadv2(
            iso.source().file(),
            &mut [IoSliceMut::new(&mut byte)],
            at,
            ReadWriteFlags::NOWAIT,
        );
        read == Ok(1)
    })
}

/// Sends until the socket is full or the end is reached. Says how far it came.
fn turn(stream: &TcpStream, iso: &Iso, begin: u64, end: u64) -> io::Result<u64> {
    let mut offset = begin;
    while offset < end {
        let count = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let sent = stream.try_io(Interest::WRITABLE, || {
            Ok(rustix::fs::sendfile(
                stream,
                iso.source().file(),
                Some(&mut offset),
                count,
            )?)
        });
        match sent {
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the image has become shorter",
                ));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(offset)
}
