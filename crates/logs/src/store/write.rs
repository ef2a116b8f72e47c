//! How the store writes: commits, segments, a new journal, and room for them.

use std::{
    io::{self, Read as _},
    sync::Arc,
};

use super::{
    Health, Store, StoreError,
    evict::{self, Choice},
    index::{Segment, file},
    journal::{self, BatchItem, Record},
    recover::journal_file,
};
use crate::line::Nanos;

/// So many small segments of a log become one.
const MERGE: usize = 16;
/// Segments stay for long.
const SMALL: i32 = 3;
/// What is removed at least when the volume is full before the quota is.
const RELIEF: u64 = 1024 * 1024;

impl Store {
    /// Writes what was added. When it fails, nothing is lost: the next commit has the same lines and more.
    ///
    /// # Errors
    /// The volume is full, read-only or gone.
    pub fn commit(&mut self, now: Nanos) -> Result<(), StoreError> {
        let mut result = self.try_commit(now);
        if result
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::StorageFull)
            && self.relieve()
        {
            self.is_broken = true;
            result = self.try_commit(now);
        }
        match result {
            Ok(()) => {
                self.health = Health::Good;
                Ok(())
            }
            Err(error) => {
                self.is_broken = true;
                self.counters.write_errors += 1;
                let since = match &self.health {
                    Health::Failing { since, .. } => *since,
                    Health::Good => now,
                };
                self.health = Health::Failing {
                    since,
                    error: error.to_string(),
                };
                Err(StoreError::Write(error))
            }
        }
    }

    fn try_commit(&mut self, now: Nanos) -> io::Result<()> {
        let is_changed = !self.pending.is_empty() || !self.outages.is_empty() || !self.fresh.is_empty();
        if self.is_broken {
            self.begin_journal(now)?;
        } else if is_changed {
            let mut bytes = Vec::new();
            for id in &self.fresh {
                if let Some(stream) = self.index.streams.get(id) {
                    let stream = Box::new(stream.clone());
                    journal::encode(&Record::Stream { id: *id, stream }, &mut bytes)?;
                }
            }
            self.encode_pending(now, &mut bytes)?;
            self.write(&bytes)?;
            self.disk.sync(&journal_file(self.journal))?;
            self.apply_pending(now);
        }
        self.make_segments()?;
        if self.journal_length > self.limits.journal {
            self.begin_journal(now)?;
        }
        if Arc::strong_count(&self.pin) == 1 {
            for name in std::mem::take(&mut self.condemned) {
                self.disk.remove(&name)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.append(&journal_file(self.journal), bytes)?;
        self.journal_length += bytes.len() as u64;
        Ok(())
    }

    fn record(&mut self, record: &Record) -> io::Result<()> {
        let mut bytes = Vec::new();
        journal::encode(record, &mut bytes)?;
        self.write(&bytes)
    }

    fn encode_pending(&mut self, now: Nanos, bytes: &mut Vec<u8>) -> io::Result<()> {
        for outage in &self.outages {
            journal::encode(&Record::Outage(outage.clone()), bytes)?;
        }
        let items = self.pending.values().map(|pending| BatchItem {
            bytes: pending.text.len(),
            ..pending.item.clone()
        });
        let texts: Vec<_> = self.pending.values().map(|pending| pending.text.as_str()).collect();
        let items = items.collect();
        journal::encode_batch(&mut self.packer, now, items, &texts, bytes)
    }

    fn apply_pending(&mut self, now: Nanos) {
        for outage in std::mem::take(&mut self.outages) {
            self.index.apply(Record::Outage(outage));
        }
        for pending in std::mem::take(&mut self.pending).into_values() {
            self.index.add(now, &pending.item, &pending.text);
        }
        self.fresh.clear();
    }

    /// Writes everything into a new journal. From then on the old one and what it needed are of no use.
    fn begin_journal(&mut self, now: Nanos) -> io::Result<()> {
        let number = self.journal + 1;
        let (name, temporary) = (journal_file(number), format!("{}.tmp", journal_file(number)));
        self.disk.remove(&temporary)?;
        let mut bytes = Vec::new();
        journal::encode_snapshot(&self.index, &mut bytes)?;
        let tails = self
            .index
            .streams
            .iter()
            .filter(|(_, stream)| !stream.tail.text.is_empty());
        let items = tails.clone().map(|(id, stream)| BatchItem {
            stream: *id,
            cursor: None,
            bytes: stream.tail.text.len(),
            lines: stream.tail.lines,
            first: stream.tail.first,
            last: stream.tail.last,
            gaps: Vec::new(),
        });
        let texts: Vec<_> = tails.clone().map(|(_, stream)| stream.tail.text.as_str()).collect();
        let (items, written) = (items.collect(), self.index.written.unwrap_or(now));
        journal::encode_batch(&mut self.packer, written, items, &texts, &mut bytes)?;
        self.encode_pending(now, &mut bytes)?;
        self.disk.append(&temporary, &bytes)?;
        // Segments since the last journal, and this one.
        self.disk.sync_all()?;
        self.disk.rename(&temporary, &name)?;
        let old = journal_file(self.journal);
        self.journal = number;
        self.journal_length = bytes.len() as u64;
        self.is_broken = false;
        self.apply_pending(now);
        self.condemned.append(&mut self.superseded);
        self.disk.remove(&old)
    }

    /// Long tails become segments, and the longest of all when memory is short.
    fn make_segments(&mut self) -> io::Result<()> {
        let mut tails: Vec<(usize, u32)> = self
            .index
            .streams
            .iter()
            .map(|(id, stream)| (stream.tail.text.len(), *id))
            .filter(|(length, _)| *length > 0)
            .collect();
        tails.sort_unstable_by(|a, b| b.cmp(a));
        let mut all: usize = tails.iter().map(|(length, _)| length).sum();
        let goal = if all > self.limits.memory {
            self.limits.memory / 2
        } else {
            usize::MAX
        };
        for (length, id) in tails {
            if length < self.limits.segment && all <= goal {
                break;
            }
            self.make_segment(id)?;
            all -= length;
        }
        Ok(())
    }

    fn make_segment(&mut self, id: u32) -> io::Result<()> {
        let Some(stream) = self.index.streams.get(&id) else {
            return Ok(());
        };
        let compressed = self.packer.pack(stream.tail.text.as_bytes(), SMALL)?;
        let segment = Segment {
            number: self.index.next_segment,
            bytes: stream.tail.text.len() as u64,
            stored: compressed.len() as u64,
            lines: stream.tail.lines,
            first: stream.tail.first,
            last: stream.tail.last,
        };
        match evict::choose(&self.index, id, segment.stored, &self.limits) {
            Choice::Remove(victims) => self.remove(&victims),
            Choice::Refuse => {
                self.counters.dropped_lines += segment.lines;
                self.counters.dropped_bytes += segment.bytes;
                let record = Record::TailDropped { stream: id };
                self.record(&record)?;
                self.index.apply(record);
                return Ok(());
            }
        }
        self.write_segment(&segment, &compressed)?;
        let record = Record::Segment { stream: id, segment };
        self.record(&record)?;
        self.index.apply(record);
        self.merge(id)
    }

    fn write_segment(&mut self, segment: &Segment, compressed: &[u8]) -> io::Result<()> {
        // A number is used once, also when its file could not be written.
        self.index.next_segment = segment.number + 1;
        let written = self.disk.append(&segment.file(), compressed);
        if written.is_err() {
            let _ = self.disk.remove(&segment.file());
        }
        written
    }

    /// Many small files of a log become one. The old ones stay until the journal is begun again.
    fn merge(&mut self, id: u32) -> io::Result<()> {
        let Some(stream) = self.index.streams.get(&id) else {
            return Ok(());
        };
        let half = self.limits.segment as u64 / 2;
        let small = stream.segments.iter().rev().take_while(|segment| segment.bytes < half);
        let mut small: Vec<_> = small.take(MERGE).copied().collect();
        small.reverse();
        let (Some(first), Some(last)) = (small.first(), small.last()) else {
            return Ok(());
        };
        if small.len() < MERGE {
            return Ok(());
        }
        let mut text = Vec::new();
        for segment in &small {
            zstd::stream::read::Decoder::new(self.disk.open(&segment.file(), 0)?)?.read_to_end(&mut text)?;
        }
        let compressed = self.packer.pack(&text, SMALL)?;
        let segment = Segment {
            number: self.index.next_segment,
            bytes: text.len() as u64,
            stored: compressed.len() as u64,
            lines: small.iter().map(|segment| segment.lines).sum(),
            first: first.first,
            last: last.last,
        };
        let replaced: Vec<u64> = small.iter().map(|segment| segment.number).collect();
        self.write_segment(&segment, &compressed)?;
        self.superseded.extend(replaced.iter().map(|number| file(*number)));
        let record = Record::Merged {
            stream: id,
            replaced,
            segment,
        };
        self.record(&record)?;
        self.index.apply(record);
        Ok(())
    }

    /// Removes segments. The file goes first: on a full volume there is no room for a record, and a file that is missing
    /// counts as dropped after a start.
    fn remove(&mut self, victims: &[(u32, u64)]) {
        for (id, number) in victims {
            if self.disk.remove(&file(*number)).is_err() {
                continue;
            }
            if let Some(stream) = self.index.streams.get(id)
                && let Some(segment) = stream.segments.iter().find(|segment| segment.number == *number)
            {
                self.counters.dropped_lines += segment.lines;
                self.counters.dropped_bytes += segment.bytes;
            }
            let record = Record::Dropped {
                stream: *id,
                numbers: vec![*number],
            };
            if self.record(&record).is_err() {
                self.is_broken = true;
            }
            self.index.apply(record);
        }
    }

    /// Makes room on a volume that is full before the quota is.
    fn relieve(&mut self) -> bool {
        let victims = evict::oldest(&self.index, RELIEF.max(self.limits.total / 32));
        self.is_broken = true;
        for (id, number) in &victims {
            let _ = self.disk.remove(&file(*number));
            self.index.apply(Record::Dropped {
                stream: *id,
                numbers: vec![*number],
            });
        }
        !victims.is_empty()
    }
}
