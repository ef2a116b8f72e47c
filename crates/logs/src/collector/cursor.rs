//! How far the log of a container was read.
//!
//! The API shows one file of the kubelet at a time, without its name, and finds lines by whole seconds. So a file is known by
//! its first line, and the position in it by the last line that was taken: its timestamp, its text, and how many lines like
//! that in a row were taken. Files only grow at their end. Hence a file that has the last line has all taken lines before
//! it and none after it, and a file that does not have it has no taken line at all.

use serde::{Deserialize, Serialize};

use crate::{
    line::{self, Nanos, SECOND},
    mask::Masker,
};

/// Lines of the two outputs of a container can be written out of order by so much.
const DISORDER: Nanos = SECOND / 4;
/// What the kubelet writes to its file in addition to what the API shows of a line.
const OVERHEAD: u64 = 9;
/// The file that is read, and those that the API may still show: of the start before, and of a start that was seen too early.
const KEPT: usize = 3;

/// The position in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The first line.
    pub head: u64,
    /// The last line that was taken.
    pub last: u64,
    /// Its timestamp.
    pub last_time: Nanos,
    /// How many lines equal to it were taken in a row.
    pub count: u32,
    /// The newest timestamp of the file.
    pub newest: Nanos,
    /// Bytes of the file, about.
    pub bytes: u64,
}

impl Mark {
    pub(super) fn new(head: u64) -> Self {
        Self {
            head,
            last: 0,
            last_time: Nanos::MIN,
            count: 0,
            newest: Nanos::MIN,
            bytes: 0,
        }
    }

    pub(super) fn take(&mut self, time: Nanos, identity: u64, length: usize) {
        if self.last == identity && self.last_time == time {
            self.count += 1;
        } else {
            (self.last, self.last_time, self.count) = (identity, time, 1);
        }
        self.newest = self.newest.max(time);
        self.bytes += length as u64 + OVERHEAD;
    }

    pub(super) fn is_last(&self, time: Nanos, line: &str) -> bool {
        self.last_time == time && self.last == line::identity(line)
    }

    /// From which second on the API must show lines, so that no new line is missing.
    pub(super) fn since(&self) -> Nanos {
        (self.newest.saturating_sub(DISORDER)).div_euclid(SECOND) * SECOND
    }
}

/// An earlier start whose log may have been that of a later one: the status that said which one it was could have been old.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// Which one.
    pub instance: u32,
    /// No line was taken for it.
    pub is_empty: bool,
}

/// How far a container was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The start of the container that is being read.
    pub instance: u32,
    /// Files, the current one last.
    #[serde(default)]
    pub marks: Vec<Mark>,
    /// Lines that were taken of this start.
    #[serde(default)]
    pub taken: u64,
    /// Files that were read for this start.
    #[serde(default)]
    pub files: u32,
    /// Lines of this start may have been taken for the start before: the kubelet knew of it earlier than the API.
    #[serde(default)]
    pub is_suspect: bool,
    /// The container had ended when its log was read to the end.
    #[serde(default)]
    pub ended: bool,
    /// It was read to the end again as the previous start: nothing of it is missing.
    #[serde(default)]
    pub confirmed: bool,
    /// The first file that was read for this start is of it: the status was the same some reads later.
    #[serde(default)]
    pub is_proven: bool,
    /// The file may have been of a later start, and this start was left: lines before the first one can be missing.
    #[serde(default)]
    pub lacks_beginning: bool,
    /// The start before was read to its end while the status was not proven to be new.
    #[serde(default)]
    pub doubt: Option<Doubt>,
    /// The newest start that the status showed, if it is later than this one: its log was not read yet.
    #[serde(default)]
    pub seen: Option<u32>,
    /// Whether the next line is part of a private key.
    #[serde(default)]
    pub masker: Masker,
}

impl Cursor {
    pub(super) fn new(instance: u32) -> Self {
        Self {
            instance,
            ..Self::default()
        }
    }

    /// For a later start of the same container.
    pub(super) fn later(&self, instance: u32) -> Self {
        Self {
            instance,
            marks: self.marks.clone(),
            is_suspect: self.files > 1,
            doubt: (self.confirmed && !self.is_proven).then_some(Doubt {
                instance: self.instance,
                is_empty: self.taken == 0,
            }),
            ..Self::default()
        }
    }

    /// This start is not read any more. The kubelet knows of a restart before the API does, so a first line that was not
    /// proven to be of this start can be of the next one.
    pub(super) fn leave(&mut self) {
        self.lacks_beginning |= self.taken > 0 && !self.is_proven;
    }

    /// The start before, if its log may have been that of a later one: the status changed again before it was proven.
    pub(super) fn take_doubt(&mut self) -> Option<Doubt> {
        self.doubt.take().filter(|_| !self.is_proven)
    }

    /// Of a start that was read to its end, and whose first lines can be missing.
    pub(super) fn without_beginning(instance: u32) -> Self {
        Self {
            instance,
            ended: true,
            confirmed: true,
            lacks_beginning: true,
            ..Self::default()
        }
    }

    /// What is known of the start besides its lines. It is kept when it changes, also without a line.
    pub(super) fn notes(&self) -> (u32, bool, bool) {
        (self.files, self.is_suspect, self.is_proven)
    }

    pub(super) fn mark(&self) -> Option<&Mark> {
        self.marks.last()
    }

    /// The current file is another one, which has no line yet.
    pub(super) fn select_empty(&mut self) {
        self.marks.push(Mark::new(0));
        if self.marks.len() > KEPT {
            self.marks.remove(0);
        }
    }

    /// Forgets a file without a line: it is known by its first one. Returns whether there was one.
    pub(super) fn forget_empty(&mut self) -> bool {
        self.marks.pop_if(|mark| mark.count == 0).is_some()
    }

    /// Makes the file with this first line the current one. False: it was not known.
    pub(super) fn select(&mut self, head: u64) -> bool {
        if let Some(at) = self.marks.iter().position(|mark| mark.head == head) {
            let mark = self.marks.remove(at);
            self.marks.push(mark);
            return true;
        }
        self.marks.push(Mark::new(head));
        if self.marks.len() > KEPT {
            self.marks.remove(0);
        }
        false
    }
}
