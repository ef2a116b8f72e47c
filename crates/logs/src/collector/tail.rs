//! One container whose log is read: what to read of it next, and when.

use super::{
    cursor::{Cursor, Doubt},
    observed::{ContainerFacts, ContainerState, PodFacts},
    reading::{Reading, Taken},
    settings::Settings,
};
use crate::{
    key::{Class, ContainerKey, StreamInfo, StreamKey},
    line::{Nanos, SECOND},
    store::Append,
};

/// What to read of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Nothing now.
    Nothing,
    /// The log of the start that the cursor is at.
    Read { previous: bool, is_final: bool },
    /// Go to another start first.
    Start { instance: u32, missing: Option<String> },
}

/// So many reads without a failure and without a change of the status: the status is not older than the first of them.
const STEADY: u32 = 3;

/// A request whose response is being read.
pub(super) struct Open {
    pub(super) id: u64,
    pub(super) reading: Reading,
    pub(super) is_final: bool,
    pub(super) is_follow: bool,
    pub(super) previous: bool,
    /// When the last bytes came.
    pub(super) heard: Nanos,
}

/// A container.
pub(super) struct Tail {
    pub(super) key: ContainerKey,
    pub(super) info: StreamInfo,
    pub(super) pod: PodFacts,
    pub(super) container: ContainerFacts,
    pub(super) cursor: Option<Cursor>,
    pub(super) open: Option<Open>,
    pub(super) due: Nanos,
    /// The next read begins with the first line of the file.
    pub(super) must_read_whole: bool,
    pub(super) limit: u64,
    pub(super) failures: u32,
    /// Reads since the status changed or a read failed.
    pub(super) steady: u32,
    pub(super) interval: Nanos,
    pub(super) is_gone: bool,
}

impl Tail {
    pub(super) fn new(
        key: ContainerKey,
        pod: &PodFacts,
        container: &ContainerFacts,
        cursor: Option<Cursor>,
        now: Nanos,
        settings: &Settings,
    ) -> Self {
        Self {
            key,
            info: StreamInfo {
                class: pod.class,
                component: pod.component.clone(),
                node: pod.node.clone(),
            },
            pod: pod.clone(),
            container: container.clone(),
            cursor,
            open: None,
            due: now,
            must_read_whole: false,
            limit: settings.limit,
            failures: 0,
            steady: 0,
            interval: settings.system_min,
            is_gone: false,
        }
    }

    /// Takes over what is known now. A change that shows an end makes the log due.
    pub(super) fn update(&mut self, pod: &PodFacts, container: &ContainerFacts, now: Nanos) {
        if self.container != *container || self.pod.is_deleting != pod.is_deleting {
            self.due = self.due.min(now);
            self.failures = 0;
        }
        if self.container != *container {
            self.steady = 0;
            self.container.clone_from(container);
        }
        if self.pod != *pod {
            self.pod.clone_from(pod);
            self.info.node.clone_from(&pod.node);
            // Its owner may have been seen after the pod.
            self.info.class = pod.class;
        }
        self.is_gone = false;
    }

    /// What to read next, by the status of the pod.
    pub(super) fn want(&self) -> Want {
        let readable = self.container.readable();
        let current = self.container.instance;
        let Some(cursor) = &self.cursor else {
            return match (readable.current, readable.previous) {
                (None, _) => Want::Nothing,
                (Some(_), true) => Want::Start {
                    instance: current - 1,
                    missing: (current > 1).then(|| not_readable(0, current - 2)),
                },
                (Some(_), false) => Want::Start {
                    instance: current,
                    missing: (current > 0).then(|| not_readable(0, current - 1)),
                },
            };
        };
        let at = cursor.instance;
        if at >= current {
            return match readable.current {
                Some(_) if cursor.ended => Want::Nothing,
                Some(is_final) => Want::Read {
                    previous: false,
                    is_final,
                },
                None => Want::Nothing,
            };
        }
        if at + 1 == current && readable.previous && !cursor.confirmed {
            return Want::Read {
                previous: true,
                is_final: true,
            };
        }
        if readable.current.is_none() {
            return Want::Nothing;
        }
        let next = if readable.previous {
            (at + 1).max(current - 1)
        } else {
            current
        };
        // What was read to its end as the current log may have been that of a later start: the kubelet knows it first.
        let from = if cursor.confirmed { at + 1 } else { at };
        Want::Start {
            instance: next,
            missing: (from < next).then(|| not_readable(from, next - 1)),
        }
    }

    /// The current log was read to where it is now. Returns whether the status is known to be that of the kubelet.
    pub(super) fn note_read(&mut self) -> bool {
        self.steady = self.steady.saturating_add(1);
        let is_steady = self.steady >= STEADY;
        if let Some(cursor) = &mut self.cursor
            && cursor.instance == self.container.instance
        {
            cursor.is_proven |= is_steady;
        }
        is_steady
    }

    /// How soon to read again.
    pub(super) fn pace(&mut self, has_new: bool, now: Nanos, settings: &Settings) -> Nanos {
        let is_young = now - self.pod.created < settings.young;
        let ends = self.pod.is_deleting || self.container.state == ContainerState::Ended;
        match self.info.class {
            _ if ends => settings.quick,
            Class::Own if is_young || has_new => settings.quick,
            Class::Own => settings.own,
            Class::System => {
                let interval = if has_new { self.interval / 2 } else { self.interval * 2 };
                self.interval = interval.clamp(settings.system_min, settings.system_max);
                self.interval
            }
        }
    }

    /// How long to wait after a failure.
    pub(super) fn backoff(&self, settings: &Settings) -> Nanos {
        let longest = match self.info.class {
            Class::Own => settings.own,
            Class::System => settings.system_max,
        };
        let doubled = settings.quick << self.failures.saturating_sub(1).min(8);
        doubled.min(longest)
    }

    /// The log may be followed: a Job that runs, whose file the kubelet does not rotate soon.
    pub(super) fn can_be_followed(&self, settings: &Settings) -> bool {
        let is_active =
            self.pod.is_job && self.info.class == Class::Own && self.container.state == ContainerState::Running;
        let mark = self.cursor.as_ref().and_then(Cursor::mark);
        is_active
            && !self.must_read_whole
            && mark.is_some_and(|mark| mark.count > 0 && mark.bytes < settings.follow_limit)
    }

    /// A follow should be ended and the log be read: it is silent, its file is long, or the container has ended.
    pub(super) fn ends_follow(&self, now: Nanos, settings: &Settings) -> bool {
        let Some(open) = self.open.as_ref().filter(|open| open.is_follow) else {
            return false;
        };
        let silence = now - open.heard;
        let has_ended = self.is_gone || self.container.state != ContainerState::Running;
        !self.can_be_followed(settings) && !has_ended
            || open.reading.is_lost()
            || silence > settings.follow_silence
            || (has_ended && silence > 2 * SECOND)
    }

    /// Goes to another start of the container.
    pub(super) fn start(&mut self, instance: u32, missing: Option<String>, now: Nanos) -> Vec<Append> {
        let mut appends: Vec<Append> = self.doubted(now).into_iter().collect();
        if let Some(cursor) = self.cursor.as_mut().filter(|cursor| !cursor.confirmed) {
            cursor.leave();
            if cursor.lacks_beginning {
                appends.extend(self.append(Taken::default()));
            }
        }
        let cursor = self.cursor.as_ref();
        self.cursor = Some(cursor.map_or_else(|| Cursor::new(instance), |cursor| cursor.later(instance)));
        self.must_read_whole = true;
        let mut taken = Taken::default();
        if let Some(missing) = missing {
            taken.add_gap(now, missing);
        }
        // Also without a line: a collector after this one then knows what it did not read.
        appends.extend(self.append(taken));
        appends
    }

    /// What is to be said of the start before, when this one is left and nothing has proven which one was read.
    pub(super) fn doubted(&mut self, now: Nanos) -> Option<Append> {
        let doubt = self.cursor.as_mut()?.take_doubt()?;
        Some(doubted(&self.key, &self.info, doubt, now))
    }

    /// A start that the status shows and that is not read yet, to be kept once: a collector after this one then knows that it
    /// is missing if the pod is gone by then.
    pub(super) fn note_start(&mut self) -> Option<Append> {
        let newest = self.container.instance;
        self.container.readable().current?;
        let cursor = self.cursor.as_mut()?;
        if cursor.seen.unwrap_or(cursor.instance) >= newest {
            return None;
        }
        cursor.seen = Some(newest);
        self.append(Taken::default())
    }

    /// What was taken, as the store keeps it.
    pub(super) fn append(&self, taken: Taken) -> Option<Append> {
        let cursor = self.cursor.clone()?;
        let key = StreamKey {
            container: self.key.clone(),
            instance: cursor.instance,
        };
        Some(Append {
            key,
            info: self.info.clone(),
            cursor,
            text: taken.text,
            lines: taken.lines,
            first: taken.first,
            last: taken.last,
            gaps: taken.gaps,
        })
    }
}

/// A start whose log may have been that of a later one: lines of it can be missing before those that were taken for it.
pub(super) fn doubted(container: &ContainerKey, info: &StreamInfo, doubt: Doubt, now: Nanos) -> Append {
    let mut taken = Taken::default();
    let mut cursor = Cursor::without_beginning(doubt.instance);
    if doubt.is_empty {
        cursor.lacks_beginning = false;
        taken.add_gap(now, not_readable(doubt.instance, doubt.instance));
    }
    Append {
        key: StreamKey {
            container: container.clone(),
            instance: doubt.instance,
        },
        info: info.clone(),
        cursor,
        text: taken.text,
        lines: taken.lines,
        first: taken.first,
        last: taken.last,
        gaps: taken.gaps,
    }
}

fn not_readable(from: u32, to: u32) -> String {
    if from == to {
        format!("the log of start {from} of the container was no longer readable; lines of it can be missing")
    } else {
        format!(
            "the logs of starts {from} to {to} of the container were no longer readable; lines of them can be missing"
        )
    }
}
