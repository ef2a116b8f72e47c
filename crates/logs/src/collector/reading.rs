//! One response of the API, as it arrives: which of its lines are new.

use super::cursor::Cursor;
use crate::{
    line::{self, Nanos, SECOND},
    store::index::Gap,
};

/// A line that is so much newer than the last one that was taken comes after it.
const AFTER: Nanos = SECOND;

/// What was taken, to be kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Taken {
    /// Lines.
    pub(super) text: String,
    /// How many.
    pub(super) lines: u64,
    /// The timestamp of the first one.
    pub(super) first: Nanos,
    /// The timestamp of the last one.
    pub(super) last: Nanos,
    /// What is missing.
    pub(super) gaps: Vec<Gap>,
}

impl Taken {
    fn note(&mut self, time: Nanos) {
        if self.text.is_empty() {
            self.first = time;
        }
        self.last = time;
        self.lines += 1;
    }

    /// Adds a line that says what is missing.
    pub(super) fn add_gap(&mut self, at: Nanos, what: String) {
        self.note(at);
        line::add_mark(&mut self.text, at, &format!("gap: {what}"));
        self.gaps.push(Gap { at, what });
    }
}

enum Mode {
    /// The next line is the first of the file.
    Head,
    /// Lines are skipped up to the last one that was taken; so many equal to it were seen.
    Search(u32),
    /// Lines are new.
    Take,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// There were new lines.
    pub(super) has_new: bool,
    /// The last line that was taken is not in the file: it is another one.
    pub(super) is_lost: bool,
    /// The response ended because of its limit.
    pub(super) is_cut: bool,
    /// The file was not the one that was read before.
    pub(super) is_other: bool,
    /// The kubelet answered with an error in place of lines.
    pub(super) is_complaint: bool,
}

/// A response that is being read.
pub(super) struct Reading {
    mode: Mode,
    is_whole: bool,
    rest: Vec<u8>,
    received: u64,
    limit: Option<u64>,
    end: End,
    saw_line: bool,
    /// The last line while searching, for a file that was cut by others.
    passed: Option<(Nanos, u64)>,
}

impl Reading {
    /// `is_whole`: the response begins with the first line of the file.
    pub(super) fn new(is_whole: bool, limit: Option<u64>) -> Self {
        Self {
            mode: if is_whole { Mode::Head } else { Mode::Search(0) },
            is_whole,
            rest: Vec::new(),
            received: 0,
            limit,
            end: End {
                has_new: false,
                is_lost: false,
                is_cut: false,
                is_other: false,
                is_complaint: false,
            },
            saw_line: false,
            passed: None,
        }
    }

    /// The last line that was taken cannot come any more.
    pub(super) fn is_lost(&self) -> bool {
        self.end.is_lost
    }

    /// Takes what is new of some bytes.
    pub(super) fn feed(&mut self, cursor: &mut Cursor, bytes: &[u8], out: &mut Taken) {
        self.received += bytes.len() as u64;
        let mut bytes = bytes;
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if self.rest.is_empty() {
                self.line(cursor, line, out);
            } else {
                self.keep(line);
                let whole = std::mem::take(&mut self.rest);
                self.line(cursor, &whole, out);
            }
        }
        self.keep(bytes);
    }

    /// Keeps what may be the beginning of a line, no more than a line may have.
    fn keep(&mut self, bytes: &[u8]) {
        let room = (line::LONGEST + 1).saturating_sub(self.rest.len());
        self.rest.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn line(&mut self, cursor: &mut Cursor, bytes: &[u8], out: &mut Taken) {
        let is_long = bytes.len() > line::LONGEST;
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(line::LONGEST)]);
        let Some((time, rest)) = line::split(&text) else {
            // Lines have timestamps; this is an error of the kubelet, which comes as if it were a log.
            self.end.is_complaint |= !self.saw_line;
            return;
        };
        self.saw_line = true;
        if matches!(self.mode, Mode::Head) {
            self.head(cursor, &text, out);
        }
        match &mut self.mode {
            Mode::Search(seen) => {
                let Some(mark) = cursor.mark() else { return };
                self.passed = Some((time, line::identity(&text)));
                if mark.is_last(time, &text) {
                    *seen += 1;
                    if *seen == mark.count {
                        self.mode = Mode::Take;
                    }
                } else if !self.is_whole && time > mark.newest.saturating_add(AFTER) {
                    self.end.is_lost = true;
                }
            }
            Mode::Take => {
                let length = text.len();
                let Some(mark) = cursor.marks.last_mut() else { return };
                mark.take(time, line::identity(&text), length);
                cursor.taken += 1;
                self.end.has_new = true;
                out.note(time);
                let masked = cursor.masker.mask(rest);
                out.text.push_str(&text[..length - rest.len()]);
                out.text.push_str(&masked);
                if is_long {
                    out.text.push_str(" --- cut: the line is longer than 256 KiB");
                }
                out.text.push('\n');
            }
            Mode::Head => {}
        }
    }

    /// The first line says which file it is.
    fn head(&mut self, cursor: &mut Cursor, line: &str, out: &mut Taken) {
        let is_noted = cursor.forget_empty();
        let before = cursor.mark().map(|mark| mark.newest).filter(|_| !is_noted);
        if cursor.select(line::identity(line)) {
            let is_empty = cursor.mark().is_some_and(|mark| mark.count == 0);
            // Its lines were taken, maybe for the start before: if another file follows, some of it can be missing.
            cursor.is_suspect = !is_empty;
            cursor.files = cursor.files.max(1);
            self.mode = if is_empty { Mode::Take } else { Mode::Search(0) };
            return;
        }
        self.mode = Mode::Take;
        self.end.is_other = true;
        note(cursor, before, out);
    }

    /// The file has no line, and those that were taken are of another one.
    fn no_head(&mut self, cursor: &mut Cursor, out: &mut Taken) {
        let before = cursor.mark().filter(|mark| mark.count > 0).map(|mark| mark.newest);
        if note(cursor, before, out) {
            self.end.is_other = true;
            cursor.select_empty();
        }
    }

    /// The response has ended, with its end or because it broke off. `is_final`: the container had ended before, so the last
    /// line is whole without its end.
    pub(super) fn finish(
        mut self,
        cursor: &mut Cursor,
        is_whole_response: bool,
        is_final: bool,
        out: &mut Taken,
    ) -> End {
        self.end.is_cut = self.limit.is_some_and(|limit| self.received >= limit);
        if is_final && is_whole_response && !self.end.is_cut && !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            self.line(cursor, &rest, out);
        }
        if matches!(self.mode, Mode::Head) && is_whole_response && !self.end.is_complaint {
            self.no_head(cursor, out);
        }
        if let Mode::Search(_) = self.mode
            && is_whole_response
            && !self.end.is_cut
        {
            self.end.is_lost = true;
            if self.is_whole {
                self.give_up(cursor, out);
            }
        }
        self.end
    }

    /// The file is the same, and lines that were taken are not in it: something else has cut it. It is read from here on.
    fn give_up(&mut self, cursor: &mut Cursor, out: &mut Taken) {
        self.end.is_lost = false;
        if let (Some((time, identity)), Some(mark)) = (self.passed, cursor.marks.last_mut()) {
            (mark.last, mark.last_time, mark.count) = (identity, time, 1);
            out.add_gap(mark.newest, "the log was cut; lines can be missing".to_owned());
        }
    }
}

/// Adds a line about a change of the file, if lines were taken before it.
fn note(cursor: &mut Cursor, before: Option<Nanos>, out: &mut Taken) -> bool {
    let before = before.filter(|_| cursor.taken > 0 || cursor.is_suspect);
    cursor.is_suspect = false;
    cursor.files += 1;
    let Some(newest) = before else { return false };
    let time = line::timestamp(newest);
    let what = format!("the log was rotated or the container restarted; lines after {time} can be missing");
    out.add_gap(newest, what);
    true
}
