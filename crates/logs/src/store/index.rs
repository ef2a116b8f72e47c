//! What the store knows: plain values that follow from the records of its journal, and from nothing else.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::journal::{BatchItem, Record};
use crate::{
    collector::Cursor,
    key::{StreamInfo, StreamKey},
    line::Nanos,
};

/// More gaps than this of one log are counted and not listed.
const LISTED_GAPS: usize = 100;
/// More outages than this are not listed.
const LISTED_OUTAGES: usize = 1000;

/// A compressed file with lines of one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The number of the file. Files are never written again, and the order of the numbers is that of the lines.
    pub number: u64,
    /// Bytes of its lines.
    pub bytes: u64,
    /// Bytes on the volume.
    pub stored: u64,
    /// Its lines.
    pub lines: u64,
    /// The timestamp of the first one.
    pub first: Nanos,
    /// The timestamp of the last one.
    pub last: Nanos,
}

impl Segment {
    /// The file of the segment.
    #[must_use]
    pub fn file(&self) -> String {
        file(self.number)
    }
}

/// The name of a segment's file.
pub(super) fn file(number: u64) -> String {
    format!("segment.{number:010}.zst")
}

/// Lines that were removed because space was short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// How many.
    pub lines: u64,
    /// How many bytes they had.
    pub bytes: u64,
    /// The timestamp of the first one.
    pub from: Nanos,
    /// The timestamp of the last one.
    pub to: Nanos,
}

/// Lines that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// When it was noticed.
    pub at: Nanos,
    /// Why, in a sentence.
    pub what: String,
}

/// A time in which nothing was collected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// The last write before it.
    pub from: Nanos,
    /// Its end.
    pub to: Nanos,
    /// Why.
    pub what: String,
}

/// The lines that are in the journal and not yet in a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The lines, each with its end.
    pub text: String,
    /// How many.
    pub lines: u64,
    /// The timestamp of the first one.
    pub first: Nanos,
    /// The timestamp of the last one.
    pub last: Nanos,
}

/// One log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Of which container.
    pub key: StreamKey,
    /// Of whom.
    pub info: StreamInfo,
    /// How far it was read.
    #[serde(default)]
    pub cursor: Option<Cursor>,
    /// Its files, oldest first.
    #[serde(default)]
    pub segments: Vec<Segment>,
    /// What was removed of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<Dropped>,
    /// What could not be read of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
    /// What is not in a file yet.
    #[serde(skip)]
    pub tail: Tail,
}

impl Stream {
    /// Bytes of all lines that were taken, those that were dropped included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let segments: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
        segments + self.tail.text.len() as u64 + self.dropped.map_or(0, |dropped| dropped.bytes)
    }

    /// All lines that were taken, those that were dropped included.
    #[must_use]
    pub fn lines(&self) -> u64 {
        let segments: u64 = self.segments.iter().map(|segment| segment.lines).sum();
        segments + self.tail.lines + self.dropped.map_or(0, |dropped| dropped.lines)
    }

    /// The timestamp of the first line that is kept.
    #[must_use]
    pub fn first(&self) -> Nanos {
        self.segments.first().map_or(self.tail.first, |segment| segment.first)
    }

    /// Bytes on the volume.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.segments.iter().map(|segment| segment.stored).sum()
    }

    pub(super) fn drop_lines(&mut self, lines: u64, bytes: u64, from: Nanos, to: Nanos) {
        let before = self.dropped.unwrap_or(Dropped {
            lines: 0,
            bytes: 0,
            from,
            to,
        });
        self.dropped = Some(Dropped {
            lines: before.lines + lines,
            bytes: before.bytes + bytes,
            from: before.from.min(from),
            to: before.to.max(to),
        });
    }

    pub(super) fn drop_segment(&mut self, number: u64) {
        if let Some(at) = self.segments.iter().position(|segment| segment.number == number) {
            let segment = self.segments.remove(at);
            self.drop_lines(segment.lines, segment.bytes, segment.first, segment.last);
        }
    }
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// The logs, by the numbers that records of the journal have for them.
    pub streams: BTreeMap<u32, Stream>,
    /// The number of the next file.
    pub next_segment: u64,
    /// When something was written last.
    #[serde(default)]
    pub written: Option<Nanos>,
    /// When nothing was collected.
    #[serde(default)]
    pub outages: Vec<Outage>,
}

impl Index {
    /// What is true after a record of the journal.
    pub(super) fn apply(&mut self, record: Record) {
        match record {
            Record::Snapshot(index) => *self = *index,
            Record::Stream { id, stream } => {
                self.streams.insert(id, *stream);
            }
            Record::Segment { stream, segment } => {
                self.next_segment = self.next_segment.max(segment.number + 1);
                if let Some(stream) = self.streams.get_mut(&stream) {
                    stream.take_from_tail(&segment);
                    stream.segments.push(segment);
                }
            }
            Record::Merged {
                stream,
                replaced,
                segment,
            } => {
                self.next_segment = self.next_segment.max(segment.number + 1);
                if let Some(stream) = self.streams.get_mut(&stream) {
                    stream.merge(&replaced, segment);
                }
            }
            Record::Dropped { stream, numbers } => {
                if let Some(stream) = self.streams.get_mut(&stream) {
                    numbers.into_iter().for_each(|number| stream.drop_segment(number));
                }
            }
            Record::TailDropped { stream } => {
                if let Some(stream) = self.streams.get_mut(&stream) {
                    stream.drop_tail();
                }
            }
            Record::Outage(outage) => {
                if self.outages.len() < LISTED_OUTAGES {
                    self.outages.push(outage);
                }
            }
        }
    }

    /// What is true after lines were added.
    pub(super) fn add(&mut self, at: Nanos, item: &BatchItem, text: &str) {
        self.written = Some(at);
        if let Some(stream) = self.streams.get_mut(&item.stream) {
            stream.add(item, text);
        }
    }
}

impl Stream {
    pub(super) fn add(&mut self, item: &BatchItem, text: &str) {
        if item.cursor.is_some() {
            self.cursor.clone_from(&item.cursor);
        }
        let listed = LISTED_GAPS.saturating_sub(self.gaps.len());
        self.gaps.extend(item.gaps.iter().take(listed).cloned());
        if text.is_empty() {
            return;
        }
        if self.tail.text.is_empty() {
            self.tail.first = item.first;
        }
        self.tail.text.push_str(text);
        self.tail.lines += item.lines;
        self.tail.last = item.last;
    }

    /// The beginning of the tail is in a file.
    pub(super) fn take_from_tail(&mut self, segment: &Segment) {
        let bytes = usize::try_from(segment.bytes).unwrap_or(usize::MAX);
        if bytes >= self.tail.text.len() {
            self.tail = Tail::default();
        } else {
            self.tail.text.drain(..bytes);
            self.tail.lines = self.tail.lines.saturating_sub(segment.lines);
            self.tail.first = segment.last;
        }
    }

    pub(super) fn merge(&mut self, replaced: &[u64], segment: Segment) {
        let at = self.segments.iter().position(|old| replaced.contains(&old.number));
        self.segments.retain(|old| !replaced.contains(&old.number));
        let at = at.unwrap_or(self.segments.len()).min(self.segments.len());
        self.segments.insert(at, segment);
    }

    pub(super) fn drop_tail(&mut self) {
        let tail = std::mem::take(&mut self.tail);
        if !tail.text.is_empty() {
            self.drop_lines(tail.lines, tail.text.len() as u64, tail.first, tail.last);
        }
    }
}
