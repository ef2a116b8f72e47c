//! The store after a start: what the journal says, compared with the files that are there.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    sync::Arc,
};

use super::{
    Counters, Health, Limits, Store, StoreError, View,
    index::{Index, Outage},
    journal::{self, Record},
    packer::Packer,
};
use crate::{disk::Disk, line::Nanos, line::SECOND};

const JOURNAL: &str = "journal.";
const SEGMENT: &str = "segment.";

/// A shorter time without a write is no outage.
const RESTART: Nanos = 2 * SECOND;

/// The name of a journal's file.
pub(super) fn journal_file(number: u64) -> String {
    format!("{JOURNAL}{number:06}")
}

struct Found {
    index: Index,
    journal: u64,
    /// Bytes of whole records.
    good: u64,
    /// Bytes of the file.
    length: u64,
}

impl Store {
    /// Opens a volume, and removes what a crash left behind.
    ///
    /// # Errors
    /// The volume cannot be read.
    pub fn open(disk: Arc<dyn Disk>, limits: Limits, now: Nanos) -> Result<Self, StoreError> {
        let files = disk.list().map_err(StoreError::Read)?;
        let found = find(disk.as_ref(), &files).map_err(StoreError::Read)?;
        let last_number = files.iter().filter_map(|(name, _)| journal_number(name)).max();
        let is_new = found.is_none();
        let found = found.unwrap_or(Found {
            index: Index::default(),
            journal: last_number.unwrap_or(0),
            good: 0,
            length: 0,
        });
        let mut index = found.index;
        drop_missing(&mut index, &files);
        index.next_segment = files
            .iter()
            .filter_map(|(name, _)| segment_number(name))
            .fold(index.next_segment, |next, number| next.max(number + 1));
        let ids = index
            .streams
            .iter()
            .map(|(id, stream)| (stream.key.clone(), *id))
            .collect();
        let mut store = Self {
            disk,
            limits,
            ids,
            fresh: Vec::new(),
            pending: BTreeMap::new(),
            outages: Vec::new(),
            journal: last_number.unwrap_or(0).max(found.journal),
            journal_length: found.good,
            is_broken: is_new || found.journal != last_number.unwrap_or(0),
            superseded: Vec::new(),
            condemned: Vec::new(),
            pin: Arc::new(()),
            health: Health::Good,
            counters: Counters::default(),
            packer: Packer::default(),
            index,
        };
        store.clean(&files, found.journal, found.good, found.length);
        if let Some(written) = store.index.written
            && now - written > RESTART
        {
            store.outages.push(Outage {
                from: written,
                to: now,
                what: "the collector was started again".to_owned(),
            });
        }
        Ok(store)
    }

    /// Removes what the journal does not know. An error is no obstacle: the next start tries again.
    fn clean(&mut self, files: &[(String, u64)], journal: u64, good: u64, length: u64) {
        let known: BTreeSet<String> = self
            .index
            .streams
            .values()
            .flat_map(|stream| stream.segments.iter().map(|s| s.file()))
            .collect();
        for (name, _) in files {
            let is_old = journal_number(name).is_some_and(|number| number < journal);
            let is_orphan = segment_number(name).is_some() && !known.contains(name);
            if is_old || is_orphan || name.ends_with(".tmp") {
                let _ = self.disk.remove(name);
            }
        }
        if length > good && self.disk.truncate(&journal_file(journal), good).is_err() {
            self.is_broken = true;
        }
    }
}

/// The logs of a volume that no collector writes to, or of which only what is committed is wanted. Nothing is changed.
///
/// # Errors
/// The volume cannot be read.
pub fn read_only(disk: Arc<dyn Disk>) -> Result<View, StoreError> {
    let files = disk.list().map_err(StoreError::Read)?;
    let found = find(disk.as_ref(), &files).map_err(StoreError::Read)?;
    let mut index = found.map(|found| found.index).unwrap_or_default();
    drop_missing(&mut index, &files);
    Ok(View::new(disk, index, Arc::new(())))
}

/// The newest journal that can be read.
fn find(disk: &dyn Disk, files: &[(String, u64)]) -> io::Result<Option<Found>> {
    let mut journals: Vec<_> = files
        .iter()
        .filter_map(|(name, size)| Some((journal_number(name)?, *size)))
        .collect();
    journals.sort_unstable();
    for (number, length) in journals.into_iter().rev() {
        let name = journal_file(number);
        let damaged = damaged(disk, &name, files)?;
        let mut streams = BTreeSet::new();
        // After a file that is damaged, the journal has the lines of all later ones of that log.
        let mut keep = |record: &Record| match record {
            Record::Segment { stream, segment } | Record::Merged { stream, segment, .. } => {
                if damaged.contains(&segment.number) {
                    streams.insert(*stream);
                }
                !streams.contains(stream)
            }
            _ => true,
        };
        if let Some((index, good)) = journal::replay(disk.open(&name, 0)?, &mut keep)? {
            return Ok(Some(Found {
                index,
                journal: number,
                good,
                length,
            }));
        }
    }
    Ok(None)
}

/// The segments since the beginning of a journal that a crash has damaged: nothing made sure that they are on the volume.
fn damaged(disk: &dyn Disk, journal: &str, files: &[(String, u64)]) -> io::Result<BTreeSet<u64>> {
    let mut written = BTreeMap::new();
    journal::replay(disk.open(journal, 0)?, &mut |record| {
        match record {
            Record::Segment { segment, .. } | Record::Merged { segment, .. } => {
                written.insert(segment.number, *segment);
            }
            Record::Dropped { numbers, .. } => written.retain(|number, _| !numbers.contains(number)),
            _ => {}
        }
        true
    })?;
    let damaged = written.into_values().filter(|segment| {
        let size = files
            .iter()
            .find(|(name, _)| *name == segment.file())
            .map(|(_, size)| *size);
        size != Some(segment.stored) || length(disk, &segment.file()) != Some(segment.bytes)
    });
    Ok(damaged.map(|segment| segment.number).collect())
}

/// How many bytes of lines a segment has, if it is whole.
fn length(disk: &dyn Disk, name: &str) -> Option<u64> {
    let file = disk.open(name, 0).ok()?;
    let mut decoder = zstd::stream::read::Decoder::new(file).ok()?;
    let mut buffer = vec![0; 64 * 1024];
    let mut length = 0;
    loop {
        match decoder.read(&mut buffer).ok()? {
            0 => return Some(length),
            read => length += read as u64,
        }
    }
}

/// Segments whose files are not there are counted as dropped.
fn drop_missing(index: &mut Index, files: &[(String, u64)]) {
    let there: BTreeSet<(&str, u64)> = files.iter().map(|(name, size)| (name.as_str(), *size)).collect();
    for stream in index.streams.values_mut() {
        let segments = stream.segments.iter();
        let missing = segments.filter(|segment| !there.contains(&(segment.file().as_str(), segment.stored)));
        let missing: Vec<_> = missing.map(|segment| segment.number).collect();
        missing.into_iter().for_each(|number| stream.drop_segment(number));
    }
}

fn journal_number(name: &str) -> Option<u64> {
    name.strip_prefix(JOURNAL)?.parse().ok()
}

fn segment_number(name: &str) -> Option<u64> {
    name.strip_prefix(SEGMENT)?.strip_suffix(".zst")?.parse().ok()
}
