//! Bytes to a socket: texts from memory, files from the page cache by sendfile. Nobody waits for ever.

use std::{io, sync::Arc, time::Duration};

use rustix::io::Errno;
use tokio::{io::Interest, net::TcpStream, time::timeout};

use crate::iso::{Extent, Iso};

/// What one call hands to the kernel.
const CALL_BYTES: u64 = 4 * 1024 * 1024;
/// What is sent before other connections may have the thread.
const TURN_BYTES: u64 = 64 * 1024 * 1024;

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
        let (stream, iso) = (Arc::clone(stream), Arc::clone(iso));
        // Pages that are not in memory are read from the disk meanwhile, which must not hold up other connections.
        let turn = tokio::task::spawn_blocking(move || turn(&stream, &iso, offset, end));
        offset = turn.await.map_err(io::Error::other)??;
    }
    Ok(())
}

/// Sends until the socket is full, the end is reached, or others should have their turn. Says how far it came.
fn turn(stream: &TcpStream, iso: &Iso, begin: u64, end: u64) -> io::Result<u64> {
    let mut offset = begin;
    while offset < end && offset - begin < TURN_BYTES {
        let count = CALL_BYTES.min(end - offset) as usize;
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
            Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(offset)
}
