//! The log of one instance of a container, as its kubelet keeps it: lines with their times in one file, which is rotated.
//! Only the current file can be read: what was in it before its rotation is gone for readers, also for those that follow.
//! Knows neither pods nor requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::body::Bytes;
use jiff::Timestamp;
use tokio::sync::Notify;

/// A file that has become larger than this is rotated (`containerLogMaxSize` of a kubelet).
const ROTATED_AT: usize = 10 * 1024 * 1024;

/// What a line takes in a file besides its text.
const FRAME: usize = "2016-10-06T00:17:09.669794202Z stderr F \n".len();

/// How much of a log is handed to a client that follows it at once.
const CHUNK: usize = 64 * 1024;

struct Line {
    at: Timestamp,
    /// Where its text ends; it begins where that of the line before ended.
    end: usize,
}

#[derive(Default)]
struct State {
    text: String,
    lines: Vec<Line>,
    /// How many lines were in files before this one.
    rotated: u64,
    ended: bool,
    /// The node that those who follow are connected to, how often that connection broke, and after which line.
    node: String,
    cuts: u64,
    cut_after: u64,
}

impl State {
    fn size(&self) -> usize {
        self.text.len() + self.lines.len() * FRAME
    }

    fn rotate(&mut self) {
        self.rotated += self.lines.len() as u64;
        self.lines = Vec::new();
        self.text = String::new();
    }

    fn line(&self, index: usize) -> (&Line, &str) {
        let line = &self.lines[index];
        let start = index.checked_sub(1).map_or(0, |before| self.lines[before].end);
        (line, &self.text[start..line.end])
    }
}

/// A log that grows.
#[derive(Default)]
pub(crate) struct File {
    state: Mutex<State>,
    changed: Notify,
}

impl File {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics between two changes of the state that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line; returns the size of the file before and after.
    pub(super) fn append(&self, at: Timestamp, text: &str) -> (usize, usize) {
        let mut state = self.lock();
        let before = state.size();
        if before > ROTATED_AT {
            state.rotate();
        }
        state.text.push_str(text);
        let end = state.text.len();
        state.lines.push(Line { at, end });
        let after = state.size();
        drop(state);
        self.changed.notify_waiters();
        (before, after)
    }

    /// Begins another file; returns how large the one before was.
    pub(super) fn rotate(&self) -> usize {
        let mut state = self.lock();
        let size = state.size();
        state.rotate();
        size
    }

    pub(super) fn size(&self) -> usize {
        self.lock().size()
    }

    /// The container has stopped, or its pod is gone: who follows reads what there is, and no more.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_waiters();
    }

    /// Who follows is connected to a node.
    pub(super) fn is_on(&self, node: &str) {
        node.clone_into(&mut self.lock().node);
    }

    /// Those who follow through a node lose their connection.
    pub(super) fn cut(&self, node: &str) {
        let mut state = self.lock();
        if state.node == node {
            state.cuts += 1;
            state.cut_after = state.rotated + state.lines.len() as u64;
            drop(state);
            self.changed.notify_waiters();
        }
    }
}

/// What a client wants to read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// No more than so many lines of those that are there.
    pub(crate) tail: Option<u64>,
    /// No lines of before.
    pub(crate) since: Option<Timestamp>,
    /// Whether lines begin with their times.
    pub(crate) timestamps: bool,
    /// No more than so many bytes.
    pub(crate) limit: Option<u64>,
}

/// A client that reads a log.
pub(crate) struct Reader {
    file: Arc<File>,
    wanted: Wanted,
    /// The number of the next line.
    next: u64,
    /// How many bytes may still be sent.
    left: u64,
    cuts: u64,
}

impl Reader {
    pub(crate) fn new(file: Arc<File>, wanted: Wanted) -> Self {
        let (next, cuts) = {
            let state = file.lock();
            let there = state.lines.len() as u64;
            let skipped = wanted.tail.map_or(0, |tail| there.saturating_sub(tail));
            (state.rotated + skipped, state.cuts)
        };
        let left = wanted.limit.unwrap_or(u64::MAX);
        Self {
            file,
            wanted,
            next,
            left,
            cuts,
        }
    }

    /// All that is there.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.read(usize::MAX).0
    }

    /// What was not read yet, up to about a size; and whether nothing will follow.
    fn read(&mut self, most: usize) -> (Bytes, bool) {
        let state = self.file.lock();
        let is_cut = state.cuts > self.cuts;
        // What was printed before the connection broke has arrived.
        let end = match is_cut {
            true => usize::try_from(state.cut_after.saturating_sub(state.rotated)).unwrap_or(usize::MAX),
            false => state.lines.len(),
        };
        let mut read = Vec::new();
        let first = self.next.max(state.rotated);
        let mut index = usize::try_from(first - state.rotated).unwrap_or(usize::MAX);
        while index < end && read.len() < most && self.left > 0 {
            let (line, text) = state.line(index);
            index += 1;
            if self.wanted.since.is_some_and(|since| line.at < since) {
                continue;
            }
            let start = read.len();
            if self.wanted.timestamps {
                read.extend_from_slice(format!("{:.9} ", line.at).as_bytes());
            }
            read.extend_from_slice(text.as_bytes());
            read.push(b'\n');
            let taken = ((read.len() - start) as u64).min(self.left);
            self.left -= taken;
            read.truncate(start + usize::try_from(taken).unwrap_or(usize::MAX));
        }
        self.next = state.rotated + index as u64;
        let is_over = self.left == 0 || ((state.ended || is_cut) && index >= end);
        (read.into(), is_over)
    }

    /// What comes next, as soon as there is something; nothing when the container has stopped, the pod is gone, the
    /// connection to the node is lost, or all bytes were sent that were wanted.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            let file = Arc::clone(&self.file);
            let mut changed = std::pin::pin!(file.changed.notified());
            // Subscribed before the file is read: a line that is added from here on wakes us.
            changed.as_mut().enable();
            let (bytes, is_over) = self.read(CHUNK);
            if !bytes.is_empty() {
                return Some(bytes);
            }
            if is_over {
                return None;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn file(lines: &[(&str, &str)]) -> Arc<File> {
        let file = Arc::new(File::default());
        for (time, text) in lines {
            file.append(at(time), text);
        }
        file
    }

    fn read(file: &Arc<File>, wanted: Wanted) -> String {
        String::from_utf8(Reader::new(Arc::clone(file), wanted).rest().to_vec()).unwrap()
    }

    const LINES: [(&str, &str); 3] = [
        ("2026-11-15T12:00:00Z", "one"),
        ("2026-11-15T12:00:01.5Z", ""),
        ("2026-11-15T12:00:02.000000001Z", "three"),
    ];

    #[test]
    fn lines_are_read_from_the_end_from_a_time_with_their_times_and_up_to_a_size() {
        let file = file(&LINES);
        let all = Wanted::default();
        assert_eq!(read(&file, all), "one\n\nthree\n");
        let tail = |tail| Wanted {
            tail: Some(tail),
            ..Wanted::default()
        };
        assert_eq!(read(&file, tail(2)), "\nthree\n");
        assert_eq!(read(&file, tail(0)), "");
        assert_eq!(read(&file, tail(9)), "one\n\nthree\n");
        let since = Wanted {
            since: Some(at("2026-11-15T12:00:01.5Z")),
            timestamps: true,
            ..Wanted::default()
        };
        let timed = "2026-11-15T12:00:01.500000000Z \n2026-11-15T12:00:02.000000001Z three\n";
        assert_eq!(read(&file, since.clone()), timed);
        for limit in 1..timed.len() + 2 {
            let limited = Wanted {
                limit: Some(limit as u64),
                ..since.clone()
            };
            assert_eq!(read(&file, limited), timed[..limit.min(timed.len())]);
        }
    }

    #[test]
    fn a_file_that_is_too_large_is_rotated_and_only_the_new_one_can_be_read() {
        let file = file(&LINES[..1]);
        let mut reader = Reader::new(Arc::clone(&file), Wanted::default());
        assert_eq!(reader.rest(), "one\n");
        let long = "x".repeat(ROTATED_AT);
        let (_, after) = file.append(at(LINES[1].0), &long);
        assert!(after > ROTATED_AT);
        // The next one is in another file.
        let (_, after) = file.append(at(LINES[2].0), "three");
        assert_eq!(after, FRAME + "three".len());
        assert_eq!(read(&file, Wanted::default()), "three\n");
        // Who was there before has lost what it had not read at the rotation, and nothing else, and nothing twice.
        assert_eq!(reader.rest(), "three\n");
        file.append(at(LINES[2].0), "four");
        assert_eq!(reader.rest(), "four\n");
        assert_eq!(reader.rest(), "");
    }

    #[tokio::test]
    async fn who_follows_gets_what_is_added_until_the_end() {
        let file = file(&LINES[..1]);
        let mut reader = Reader::new(Arc::clone(&file), Wanted::default());
        assert_eq!(reader.next().await.unwrap(), "one\n");
        let writer = Arc::clone(&file);
        let writing = tokio::spawn(async move {
            tokio::task::yield_now().await;
            writer.append(at(LINES[1].0), "two");
            writer.append(at(LINES[2].0), "three");
            writer.end();
        });
        let mut read = Vec::new();
        while let Some(bytes) = reader.next().await {
            read.extend_from_slice(&bytes);
        }
        assert_eq!(String::from_utf8(read).unwrap(), "two\nthree\n");
        writing.await.unwrap();
    }
}
