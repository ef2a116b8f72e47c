//! Bytes to a TLS connection. What is in the page cache is copied once, encrypted into what is sent, and never waits for the
//! disk; the rest is read by a thread that may.

use std::{
    io::{self, IoSliceMut},
    sync::Arc,
    time::Duration,
};

use rustix::io::ReadWriteFlags;
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_rustls::server::TlsStream;

use super::channel::in_time;
use crate::iso::{Extent, Iso, ReadAt};

/// What is read at once, and sent before other connections have their turn. Chosen, not measured against other sizes: small
/// enough for the processor's cache, large enough that calls cost little. A connection needs up to about three times as much
/// memory while it serves a file.
const TURN_BYTES: usize = 128 * 1024;

/// Sends bytes from memory. A part of them may be buffered, to be sent with more.
pub(super) async fn bytes(stream: &mut TlsStream<TcpStream>, mut bytes: &[u8], stall: Duration) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = in_time(stall, stream.write(bytes)).await?;
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}

/// Sends a run of bytes of the image.
pub(super) async fn extent(
    stream: &mut TlsStream<TcpStream>,
    iso: &Arc<Iso>,
    extent: Extent,
    stall: Duration,
) -> io::Result<()> {
    stream.get_mut().1.set_buffer_limit(Some(2 * TURN_BYTES));
    let (mut offset, end) = (extent.offset, extent.offset + extent.length);
    let mut buffer = vec![0; TURN_BYTES];
    while offset < end {
        let wanted = usize::try_from(end - offset).unwrap_or(usize::MAX).min(TURN_BYTES);
        buffer.resize(wanted, 0);
        let count = match in_memory(iso, &mut buffer, offset) {
            Some(count) => {
                tokio::task::yield_now().await;
                count
            }
            None => {
                let (iso, mut taken) = (Arc::clone(iso), std::mem::take(&mut buffer));
                // Reading from the disk must not hold up other connections.
                let reading = tokio::task::spawn_blocking(move || {
                    iso.source().read_exact_at(&mut taken, offset)?;
                    Ok::<_, io::Error>(taken)
                });
                buffer = reading.await.map_err(io::Error::other)??;
                wanted
            }
        };
        bytes(stream, buffer.get(..count).unwrap_or_default(), stall).await?;
        offset += count as u64;
    }
    Ok(())
}

/// Reads what can be read without waiting for the disk, if anything. Kernels and file systems without support say that they
/// would have to wait.
fn in_memory(iso: &Iso, buffer: &mut [u8], offset: u64) -> Option<usize> {
    let into = &mut [IoSliceMut::new(buffer)];
    let read = rustix::io::preadv2(iso.source().file(), into, offset, ReadWriteFlags::NOWAIT);
    read.ok().filter(|count| *count > 0)
}
