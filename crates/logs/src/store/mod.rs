//! The store: lines of many logs on one small volume, within quotas, whole after a crash at any write.
//!
//! Lines go into a journal first, all logs together: one write and one sync for each commit, whatever the number of logs.
//! Lines and how far the log was read with them are one record. Longer runs of lines become compressed segments, a file
//! each. The journal is begun again when it is long; until then it has all lines that segments may lack after a crash.

mod evict;
pub mod index;
mod journal;
mod limits;
mod packer;
mod recover;
mod view;
mod write;

use std::{collections::BTreeMap, io, sync::Arc};

pub use limits::{Limits, VOLUME};
pub use recover::read_only;
pub use view::{StreamReader, View};

use crate::{
    collector::Cursor,
    disk::Disk,
    key::{ContainerKey, StreamInfo, StreamKey},
    line::Nanos,
};
use index::{Gap, Index, Outage, Stream};
use journal::BatchItem;

/// Why the store cannot do something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The volume cannot be read.
    #[error("failed to read the volume of logs")]
    Read(#[source] io::Error),
    /// The volume cannot be written.
    #[error("failed to write to the volume of logs")]
    Write(#[source] io::Error),
}

/// Lines of one log that are to be kept, and how far it was read with them.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// Which log.
    pub key: StreamKey,
    /// Whose.
    pub info: StreamInfo,
    /// How far it was read.
    pub cursor: Cursor,
    /// The lines, each with its end.
    pub text: String,
    /// How many.
    pub lines: u64,
    /// The timestamp of the first one.
    pub first: Nanos,
    /// The timestamp of the last one.
    pub last: Nanos,
    /// What is missing, as the lines among them say.
    pub gaps: Vec<Gap>,
}

/// Whether lines reach the volume: what the UpgradeLog's condition is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// They do.
    #[default]
    Good,
    /// They do not. Lines are kept in memory while there is room.
    Failing {
        /// Since when.
        since: Nanos,
        /// The error.
        error: String,
    },
}

/// What was removed since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lines that were removed because space was short.
    pub dropped_lines: u64,
    /// Bytes of these lines.
    pub dropped_bytes: u64,
    /// Writes that failed.
    pub write_errors: u64,
}

struct Pending {
    item: BatchItem,
    text: String,
}

/// Logs on a volume.
pub struct Store {
    disk: Arc<dyn Disk>,
    limits: Limits,
    /// What the journal says; lines that are not committed are not in it.
    index: Index,
    ids: BTreeMap<StreamKey, u32>,
    /// Logs that the journal does not know yet.
    fresh: Vec<u32>,
    pending: BTreeMap<u32, Pending>,
    outages: Vec<Outage>,
    journal: u64,
    journal_length: u64,
    /// After a failed write the end of the journal is unknown: it must be begun again.
    is_broken: bool,
    /// Files that are not needed once the journal was begun again.
    superseded: Vec<String>,
    /// Files that are not needed, but may still be read by a view.
    condemned: Vec<String>,
    pin: Arc<()>,
    health: Health,
    counters: Counters,
    packer: packer::Packer,
}

impl Store {
    /// Adds lines, in memory: [`Self::commit`] writes them.
    pub fn append(&mut self, append: Append) {
        let id = self.id(&append.key, &append.info);
        let pending = self.pending.entry(id).or_insert_with(|| Pending {
            item: BatchItem {
                stream: id,
                cursor: None,
                bytes: 0,
                lines: 0,
                first: append.first,
                last: append.last,
                gaps: Vec::new(),
            },
            text: String::new(),
        });
        if pending.text.is_empty() {
            pending.item.first = append.first;
            pending.text = append.text;
        } else {
            pending.text.push_str(&append.text);
        }
        pending.item.cursor = Some(append.cursor);
        pending.item.lines += append.lines;
        if append.lines > 0 {
            pending.item.last = append.last;
        }
        pending.item.gaps.extend(append.gaps);
    }

    fn id(&mut self, key: &StreamKey, info: &StreamInfo) -> u32 {
        if let Some(id) = self.ids.get(key).copied() {
            if let Some(stream) = self.index.streams.get_mut(&id)
                && stream.info != *info
            {
                stream.info = info.clone();
                // No record says this alone: the next journal begins with it.
                self.is_broken = true;
            }
            return id;
        }
        let id = self.index.streams.last_key_value().map_or(0, |(id, _)| id + 1);
        let stream = Stream {
            key: key.clone(),
            info: info.clone(),
            cursor: None,
            segments: Vec::new(),
            dropped: None,
            gaps: Vec::new(),
            tail: index::Tail::default(),
        };
        self.index.streams.insert(id, stream);
        self.ids.insert(key.clone(), id);
        self.fresh.push(id);
        id
    }

    /// Records a time in which nothing was collected.
    pub fn add_outage(&mut self, outage: Outage) {
        self.outages.push(outage);
    }

    /// There is room for more lines. Without it, logs are not read: the API has the lines for some time.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.in_memory() < 2 * self.limits.memory
    }

    fn in_memory(&self) -> usize {
        let pending: usize = self.pending.values().map(|pending| pending.text.len()).sum();
        pending + self.tails()
    }

    fn tails(&self) -> usize {
        self.index.streams.values().map(|stream| stream.tail.text.len()).sum()
    }

    /// How far each container was read, by what is committed: what a collector continues with.
    #[must_use]
    pub fn known(&self) -> BTreeMap<ContainerKey, (StreamInfo, Cursor)> {
        let mut known: BTreeMap<ContainerKey, (StreamInfo, Cursor)> = BTreeMap::new();
        for stream in self.index.streams.values() {
            let Some(cursor) = &stream.cursor else { continue };
            let newest = known.get(&stream.key.container);
            if newest.is_none_or(|(_, newest)| newest.instance <= cursor.instance) {
                known.insert(stream.key.container.clone(), (stream.info.clone(), cursor.clone()));
            }
        }
        known
    }

    /// All logs as they are now, without what is not committed.
    #[must_use]
    pub fn view(&self) -> View {
        View::new(Arc::clone(&self.disk), self.index.clone(), Arc::clone(&self.pin))
    }

    /// The logs with what is known of each.
    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.index.streams.values()
    }

    /// Bytes on the volume.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.segments() + self.journal_length
    }

    fn segments(&self) -> u64 {
        self.index.streams.values().map(Stream::stored).sum()
    }

    /// Whether lines reach the volume.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// What was removed, and what failed.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
