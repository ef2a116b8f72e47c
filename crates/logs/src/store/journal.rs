//! The journal: records that are only added, each with its length and checksum. What a crash left of a record at the end
//! is recognised and ignored.

use std::io::{self, Read};

use flate2::Crc;
use serde::{Deserialize, Serialize};

use super::{
    index::{Gap, Index, Outage, Segment, Stream},
    packer::Packer,
};
use crate::{collector::Cursor, line::Nanos};

const HEAD: usize = 8;
/// A longer record is a damaged length.
const LONGEST: u32 = 256 * 1024 * 1024;
const JSON: u8 = b'J';
/// Lines are in the journal for a short time.
const QUICK: i32 = 1;
const BATCH: u8 = b'B';

/// A change of the index that has no lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Record {
    /// The whole index, without lines: what a journal begins with.
    Snapshot(Box<Index>),
    /// A new log.
    Stream { id: u32, stream: Box<Stream> },
    /// The beginning of a tail is in a file.
    Segment { stream: u32, segment: Segment },
    /// Several files became one.
    Merged {
        stream: u32,
        replaced: Vec<u64>,
        segment: Segment,
    },
    /// Files were removed because space was short, or were found to be missing.
    Dropped { stream: u32, numbers: Vec<u64> },
    /// The tail was removed because space was short.
    TailDropped { stream: u32 },
    /// Nothing was collected for a time.
    Outage(Outage),
}

/// Lines of one log, and how far it was read with them: both are there or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct BatchItem {
    pub(super) stream: u32,
    pub(super) cursor: Option<Cursor>,
    pub(super) bytes: usize,
    pub(super) lines: u64,
    pub(super) first: Nanos,
    pub(super) last: Nanos,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) gaps: Vec<Gap>,
}

#[derive(Serialize, Deserialize)]
struct BatchHead {
    at: Nanos,
    items: Vec<BatchItem>,
}

/// Adds a record to bytes that will be written.
pub(super) fn encode(record: &Record, out: &mut Vec<u8>) -> io::Result<()> {
    let mut payload = vec![JSON];
    serde_json::to_writer(&mut payload, record)?;
    frame(&payload, out)
}

/// Adds the record of lines. `texts` are those of the items, in their order.
pub(super) fn encode_batch(
    packer: &mut Packer,
    at: Nanos,
    items: Vec<BatchItem>,
    texts: &[&str],
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let mut raw = serde_json::to_vec(&BatchHead { at, items })?;
    raw.push(b'\n');
    texts.iter().for_each(|text| raw.extend_from_slice(text.as_bytes()));
    let mut payload = vec![BATCH];
    payload.extend(packer.pack(&raw, QUICK)?);
    frame(&payload, out)
}

fn frame(payload: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let length = u32::try_from(payload.len()).ok().filter(|length| *length <= LONGEST);
    let length = length.ok_or_else(|| io::Error::other("a record of the journal is too long"))?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&checksum(payload).to_le_bytes());
    out.extend_from_slice(payload);
    Ok(())
}

fn checksum(payload: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(payload);
    crc.sum()
}

/// The beginning of a journal: the whole index.
pub(super) fn encode_snapshot(index: &Index, out: &mut Vec<u8>) -> io::Result<()> {
    #[derive(Serialize)]
    enum Borrowed<'a> {
        Snapshot(&'a Index),
    }
    let mut payload = vec![JSON];
    serde_json::to_writer(&mut payload, &Borrowed::Snapshot(index))?;
    frame(&payload, out)
}

/// What a journal says, and how many of its bytes are whole records. Nothing when it does not begin with a snapshot.
/// `keep` decides about each record, for files that a crash has damaged.
pub(super) fn replay(
    mut journal: impl Read,
    keep: &mut dyn FnMut(&Record) -> bool,
) -> io::Result<Option<(Index, u64)>> {
    let mut index = None;
    let mut good = 0;
    while let Some(payload) = next(&mut journal)? {
        let applied = match (payload.first(), &mut index) {
            (Some(&JSON), index) => apply_json(&payload[1..], index, keep),
            (Some(&BATCH), Some(index)) => apply_batch(&payload[1..], index),
            _ => None,
        };
        if applied.is_none() {
            break;
        }
        good += (HEAD + payload.len()) as u64;
    }
    Ok(index.map(|index| (index, good)))
}

/// The next whole record; nothing at the end, torn or not.
fn next(journal: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; HEAD];
    if read_up_to(journal, &mut head)? < HEAD {
        return Ok(None);
    }
    let [a, b, c, d, e, f, g, h] = head;
    let length = u32::from_le_bytes([a, b, c, d]);
    if length > LONGEST {
        return Ok(None);
    }
    let mut payload = Vec::new();
    // Not allocated by what a damaged length says.
    journal.take(u64::from(length)).read_to_end(&mut payload)?;
    let is_whole = payload.len() == length as usize && checksum(&payload) == u32::from_le_bytes([e, f, g, h]);
    Ok(is_whole.then_some(payload))
}

fn read_up_to(journal: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match journal.read(&mut buffer[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

fn apply_json(payload: &[u8], index: &mut Option<Index>, keep: &mut dyn FnMut(&Record) -> bool) -> Option<()> {
    let record: Record = serde_json::from_slice(payload).ok()?;
    match (record, index) {
        (Record::Snapshot(snapshot), index) => *index = Some(*snapshot),
        (record, _) if !keep(&record) => {}
        (record, Some(index)) => index.apply(record),
        (_, None) => return None,
    }
    Some(())
}

fn apply_batch(payload: &[u8], index: &mut Index) -> Option<()> {
    let raw = zstd::stream::decode_all(payload).ok()?;
    let end = raw.iter().position(|byte| *byte == b'\n')?;
    let head: BatchHead = serde_json::from_slice(&raw[..end]).ok()?;
    let mut text = std::str::from_utf8(&raw[end + 1..]).ok()?;
    index.written = Some(head.at);
    for item in &head.items {
        let (lines, rest) = text.split_at_checked(item.bytes)?;
        index.add(head.at, item, lines);
        text = rest;
    }
    Some(())
}
