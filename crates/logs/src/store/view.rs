//! The store at one moment, to be read while collection continues.

use std::{
    io::{self, Cursor as Bytes, Read},
    sync::Arc,
};

use super::index::{Index, Outage, Segment, Stream};
use crate::{disk::Disk, line};

/// All logs as they were when the view was made.
pub struct View {
    disk: Arc<dyn Disk>,
    index: Index,
    /// While it lives, files that were merged into others stay.
    _pin: Arc<()>,
}

impl View {
    pub(super) fn new(disk: Arc<dyn Disk>, index: Index, pin: Arc<()>) -> Self {
        Self { disk, index, _pin: pin }
    }

    /// The logs, in order of namespace, pod, container and instance.
    #[must_use]
    pub fn streams(&self) -> Vec<&Stream> {
        let mut streams: Vec<_> = self.index.streams.values().collect();
        streams.sort_by(|a, b| a.key.cmp(&b.key));
        streams
    }

    /// When nothing was collected.
    #[must_use]
    pub fn outages(&self) -> &[Outage] {
        &self.index.outages
    }

    /// The lines of a log. Where lines were removed because space was short, a line says so.
    #[must_use]
    pub fn read(&self, stream: &Stream) -> StreamReader {
        let mut begin = String::new();
        if let Some(dropped) = stream.dropped {
            let (from, to) = (line::timestamp(dropped.from), line::timestamp(dropped.to));
            let what = format!(
                "dropped: {} lines ({} bytes) from {from} to {to}, because the space for logs was full",
                dropped.lines, dropped.bytes
            );
            line::add_mark(&mut begin, dropped.from, &what);
        }
        if stream.cursor.as_ref().is_some_and(|cursor| cursor.lacks_beginning) {
            let what = format!(
                "gap: the container restarted before its status said so; lines of start {} before this one can be missing",
                stream.key.instance
            );
            line::add_mark(&mut begin, stream.first(), &what);
        }
        StreamReader {
            disk: Arc::clone(&self.disk),
            segments: stream.segments.clone().into_iter(),
            tail: Some(stream.tail.text.clone()),
            current: Box::new(Bytes::new(begin.into_bytes())),
        }
    }
}

/// Reads one log, one segment after the other.
pub struct StreamReader {
    disk: Arc<dyn Disk>,
    segments: std::vec::IntoIter<Segment>,
    tail: Option<String>,
    current: Box<dyn Read + Send>,
}

impl StreamReader {
    fn segment(&self, segment: &Segment) -> io::Result<Box<dyn Read + Send>> {
        match self.disk.open(&segment.file(), 0) {
            Ok(file) => Ok(Box::new(zstd::stream::read::Decoder::new(file)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut text = String::new();
                let what = format!("dropped: {} lines, because the space for logs was full", segment.lines);
                line::add_mark(&mut text, segment.first, &what);
                Ok(Box::new(Bytes::new(text.into_bytes())))
            }
            Err(error) => Err(error),
        }
    }
}

impl Read for StreamReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.current.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.current = match (self.segments.next(), self.tail.take()) {
                (Some(segment), tail) => {
                    self.tail = tail;
                    self.segment(&segment)?
                }
                (None, Some(tail)) => Box::new(Bytes::new(tail.into_bytes())),
                (None, None) => return Ok(0),
            };
        }
    }
}
