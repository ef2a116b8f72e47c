//! From a download, which waits for a network, to a reader, which blocks a thread.

use std::io::{self, Read};

use hyper::body::Bytes;
use tokio::sync::mpsc;

use super::{download::Download, progress::Progress};
use program::error::Result;

/// Pieces under way at once; a piece has some dozen kilobytes.
const PIECES: usize = 32;

enum Piece {
    Bytes(Bytes),
    /// All came. A pipe that ends without it broke.
    End,
}

/// The end that bytes go in at.
pub(super) struct Feeder(mpsc::Sender<Piece>);

/// The end that bytes come out at.
pub(super) struct PipeReader {
    pieces: mpsc::Receiver<Piece>,
    rest: Bytes,
    ended: bool,
}

/// A pipe.
pub(super) fn pipe() -> (Feeder, PipeReader) {
    let (sender, pieces) = mpsc::channel(PIECES);
    let reader = PipeReader {
        pieces,
        rest: Bytes::new(),
        ended: false,
    };
    (Feeder(sender), reader)
}

impl Feeder {
    /// Feeds a whole download, and says how it goes. A reader that is gone ends it: the reader says why.
    ///
    /// # Errors
    /// When the download fails; the reader gets an error then, too, never an end.
    pub(super) async fn feed(self, mut download: Download<'_>, progress: &mut Progress<'_>) -> Result<()> {
        while let Some(bytes) = download.next().await? {
            if self.0.send(Piece::Bytes(bytes)).await.is_err() {
                return Ok(());
            }
            progress.moved_to(download.at());
        }
        let _ = self.0.send(Piece::End).await;
        Ok(())
    }
}

impl Read for PipeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Bytes(bytes)) => self.rest = bytes,
                Some(Piece::End) => self.ended = true,
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::ConnectionAborted,
                        "the download broke off",
                    ));
                }
            }
        }
        let length = buffer.len().min(self.rest.len());
        buffer[..length].copy_from_slice(&self.rest.split_to(length));
        Ok(length)
    }
}
