//! Which logs are read, when, and which of their lines are new. Pure: time, pods and responses come in, requests and
//! lines go out.
//!
//! Logs are read again and again (`sinceTime`, `limitBytes`), a few at a time: a follow costs an inotify instance on the
//! node and loses lines when the kubelet rotates the file. Only Jobs of the upgrade that run are followed, a few at most.

mod cursor;
mod exchange;
mod observed;
mod reading;
mod settings;
mod tail;

use std::collections::{BTreeMap, BTreeSet};

pub use cursor::{Cursor, Doubt, Mark};
pub use exchange::{Counters, Request, Response, Step};
pub use observed::{ContainerFacts, ContainerState, Observed, PodFacts};
pub use settings::Settings;

use crate::{
    key::{Class, ContainerKey, StreamInfo, StreamKey},
    line::Nanos,
    store::Append,
};
use reading::{Reading, Taken};
use tail::{Open, Tail, Want};

/// The collector.
pub struct Collector {
    settings: Settings,
    tails: BTreeMap<ContainerKey, Tail>,
    /// How far containers were read by a collector before this one.
    known: BTreeMap<ContainerKey, (StreamInfo, Cursor)>,
    open: BTreeMap<u64, ContainerKey>,
    next_id: u64,
    counters: Counters,
}

impl Collector {
    /// A collector that continues where another one has stopped: with what the store has committed.
    #[must_use]
    pub fn new(settings: Settings, known: BTreeMap<ContainerKey, (StreamInfo, Cursor)>) -> Self {
        Self {
            settings,
            tails: BTreeMap::new(),
            known,
            open: BTreeMap::new(),
            next_id: 0,
            counters: Counters::default(),
        }
    }

    /// What to do now. Without room in the store nothing is read.
    pub fn next(&mut self, now: Nanos, observed: &Observed, has_room: bool) -> Step {
        let mut step = Step::default();
        self.look(now, observed);
        self.close_unseen(now, &mut step);
        self.close_gone(now, &mut step);
        self.end_follows(now, &mut step);
        if has_room {
            self.request(now, &mut step);
        }
        step.appends
            .extend(self.tails.values_mut().filter_map(Tail::note_start));
        self.count(&step.appends);
        step
    }

    /// When something is due next.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Nanos> {
        let idle = self.tails.values().filter(|tail| tail.open.is_none());
        idle.filter(|tail| tail.want() != Want::Nothing)
            .map(|tail| tail.due)
            .min()
    }

    /// Containers whose logs are not read to the end yet.
    pub fn streaming(&self) -> impl Iterator<Item = &ContainerKey> {
        let streaming = self.tails.values().filter(|tail| {
            let has_ended = tail.cursor.as_ref().is_some_and(|cursor| cursor.ended);
            !has_ended || tail.container.state == ContainerState::Running
        });
        streaming.map(|tail| &tail.key)
    }

    /// Logs that are followed.
    #[must_use]
    pub fn follows(&self) -> usize {
        let open = self.tails.values().filter_map(|tail| tail.open.as_ref());
        open.filter(|open| open.is_follow).count()
    }

    /// Counters of requests and lines.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn look(&mut self, now: Nanos, observed: &Observed) {
        let mut seen = BTreeSet::new();
        for pod in &observed.pods {
            for container in &pod.containers {
                let Some(key) = ContainerKey::new(&pod.namespace, &pod.name, &pod.uid, &container.name) else {
                    continue;
                };
                if let Some(tail) = self.tails.get_mut(&key) {
                    tail.update(pod, container, now);
                } else {
                    let cursor = self.known.remove(&key).map(|(_, cursor)| cursor);
                    let tail = Tail::new(key.clone(), pod, container, cursor, now, &self.settings);
                    self.tails.insert(key.clone(), tail);
                }
                seen.insert(key);
            }
        }
        for (key, tail) in &mut self.tails {
            tail.is_gone = !seen.contains(key);
        }
    }

    /// Pods that were deleted while no collector ran: what is known of the collector before is not among the pods.
    fn close_unseen(&mut self, now: Nanos, step: &mut Step) {
        for (container, (info, mut cursor)) in std::mem::take(&mut self.known) {
            let is_left_behind = cursor.seen.take().is_some_and(|seen| seen > cursor.instance);
            if cursor.ended && !is_left_behind {
                continue;
            }
            let doubt = cursor.take_doubt();
            step.appends
                .extend(doubt.map(|doubt| tail::doubted(&container, &info, doubt, now)));
            cursor.ended = true;
            cursor.leave();
            let mut taken = Taken::default();
            taken.add_gap(now, deleted(&cursor));
            let key = StreamKey {
                container,
                instance: cursor.instance,
            };
            step.appends.push(Append {
                key,
                info,
                cursor,
                text: taken.text,
                lines: taken.lines,
                first: taken.first,
                last: taken.last,
                gaps: taken.gaps,
            });
        }
    }

    /// A pod that is gone can no longer be read.
    fn close_gone(&mut self, now: Nanos, step: &mut Step) {
        let gone = self.tails.values().filter(|tail| tail.is_gone && tail.open.is_none());
        let gone: Vec<_> = gone.map(|tail| tail.key.clone()).collect();
        for key in gone {
            let Some(mut tail) = self.tails.remove(&key) else {
                continue;
            };
            step.appends.extend(tail.doubted(now));
            let was_started = tail.container.readable().current.is_some();
            let has_ended = tail
                .cursor
                .as_ref()
                .is_some_and(|cursor| cursor.ended && cursor.instance >= tail.container.instance);
            if has_ended || (!was_started && tail.cursor.is_none()) {
                continue;
            }
            let cursor = tail.cursor.get_or_insert_with(|| Cursor::new(tail.container.instance));
            cursor.ended = true;
            cursor.leave();
            let mut taken = Taken::default();
            taken.add_gap(now, deleted(cursor));
            step.appends.extend(tail.append(taken));
        }
    }

    fn end_follows(&mut self, now: Nanos, step: &mut Step) {
        for tail in self
            .tails
            .values_mut()
            .filter(|tail| tail.ends_follow(now, &self.settings))
        {
            if let Some(open) = tail.open.take() {
                self.open.remove(&open.id);
                step.stops.push(open.id);
                tail.must_read_whole |= open.reading.is_lost();
                tail.due = now;
                // The next request is a read, which finds what a silent follow has not shown.
                tail.failures = tail.failures.max(1);
            }
        }
    }

    /// Requests for what is due, the most urgent first.
    fn request(&mut self, now: Nanos, step: &mut Step) {
        let follows = self.follows();
        let mut reads = self.open.len() - follows;
        let mut free = self.settings.follows.saturating_sub(follows);
        let mut due: Vec<(bool, Class, Nanos, ContainerKey)> = Vec::new();
        for tail in self
            .tails
            .values_mut()
            .filter(|tail| tail.open.is_none() && !tail.is_gone)
        {
            while let Want::Start { instance, missing } = tail.want() {
                step.appends.extend(tail.start(instance, missing, now));
            }
            if tail.due <= now && tail.want() != Want::Nothing {
                let stays = !tail.pod.is_deleting && tail.container.state == ContainerState::Running;
                due.push((stays, tail.info.class, tail.due, tail.key.clone()));
            }
        }
        due.sort_unstable();
        for (.., key) in due {
            let Some(tail) = self.tails.get_mut(&key) else { continue };
            let Want::Read { previous, is_final } = tail.want() else {
                continue;
            };
            let follow = free > 0 && !previous && tail.failures == 0 && tail.can_be_followed(&self.settings);
            if follow {
                free -= 1;
            } else if reads < self.settings.reads {
                reads += 1;
            } else {
                continue;
            }
            self.next_id += 1;
            self.counters.requests += 1;
            let request = open(tail, self.next_id, previous, is_final, follow, now, &self.settings);
            self.open.insert(request.id, key);
            step.requests.push(request);
        }
    }

    /// Takes a response. What it returns is to be kept.
    pub fn accept(&mut self, now: Nanos, id: u64, response: Response<'_>) -> Option<Append> {
        let key = self.open.get(&id)?.clone();
        let tail = self.tails.get_mut(&key)?;
        let mut taken = Taken::default();
        let before = tail.cursor.as_ref().map(Cursor::notes);
        if let Response::Bytes(bytes) = response {
            let (Some(open), Some(cursor)) = (&mut tail.open, &mut tail.cursor) else {
                return None;
            };
            open.heard = now;
            open.reading.feed(cursor, bytes, &mut taken);
        } else {
            self.open.remove(&id);
            let open = tail.open.take()?;
            let has_failed = finish(tail, open, response, now, &self.settings, &mut taken)?;
            self.counters.failed_requests += u64::from(has_failed);
        }
        let is_ended = tail.cursor.as_ref().is_some_and(|cursor| cursor.ended);
        if taken.text.is_empty() && !is_ended && tail.cursor.as_ref().map(Cursor::notes) == before {
            return None;
        }
        let append = tail.append(taken);
        self.count(append.as_slice());
        append
    }

    fn count(&mut self, appends: &[Append]) {
        for append in appends {
            self.counters.lines += append.lines;
            self.counters.bytes += append.text.len() as u64;
            self.counters.gaps += append.gaps.len() as u64;
        }
    }
}

/// What is missing of a pod that is gone.
fn deleted(cursor: &Cursor) -> String {
    let read = match cursor.mark() {
        Some(mark) => format!("lines after {} can be missing", crate::line::timestamp(mark.newest)),
        None => "none of it could be read".to_owned(),
    };
    format!("the pod was deleted before its log was read to the end; {read}")
}

fn open(
    tail: &mut Tail,
    id: u64,
    previous: bool,
    is_final: bool,
    follow: bool,
    now: Nanos,
    settings: &Settings,
) -> Request {
    let mark = tail
        .cursor
        .as_ref()
        .and_then(Cursor::mark)
        .filter(|mark| mark.count > 0);
    let taken = tail.cursor.as_ref().map_or(0, |cursor| cursor.taken);
    // The end of a log is read by position alone: clocks of nodes leap.
    let is_whole = tail.must_read_whole || is_final || taken == 0 || mark.is_none();
    let floor = settings.system_since.filter(|_| tail.info.class == Class::System);
    let since = mark.filter(|_| !is_whole).map(|mark| mark.since()).or(floor);
    let limit = (!is_whole && !follow).then_some(tail.limit);
    tail.open = Some(Open {
        id,
        reading: Reading::new(is_whole, limit),
        is_final,
        is_follow: follow,
        previous,
        heard: now,
    });
    Request {
        id,
        namespace: tail.key.namespace.clone(),
        pod: tail.key.pod.clone(),
        container: tail.key.container.clone(),
        previous,
        since,
        limit,
        follow,
    }
}

/// What a response that has ended means. Returns whether it failed.
fn finish(
    tail: &mut Tail,
    open: Open,
    response: Response<'_>,
    now: Nanos,
    settings: &Settings,
    taken: &mut Taken,
) -> Option<bool> {
    let cursor = tail.cursor.as_mut()?;
    let is_whole_response = response == Response::End && !open.is_follow;
    let had_taken = cursor.taken > 0;
    let end = open.reading.finish(cursor, is_whole_response, open.is_final, taken);
    let is_refused = response == Response::Refused || end.is_complaint;
    if is_refused || response == Response::Away {
        tail.failures += 1;
        tail.steady = 0;
        tail.due = now + tail.backoff(settings);
        // A log that ended and is refused again and again is not there any more.
        if is_refused && open.is_final && (open.previous || tail.failures >= settings.tries) {
            let cursor = tail.cursor.as_mut()?;
            if !cursor.ended {
                taken.add_gap(
                    now,
                    "the end of the log was no longer readable; lines can be missing".to_owned(),
                );
            }
            (cursor.ended, cursor.confirmed) = (true, open.previous || cursor.confirmed);
            tail.due = now;
        }
        return Some(true);
    }
    tail.failures = 0;
    tail.must_read_whole = end.is_lost;
    if open.is_follow {
        tail.due = now;
        tail.failures = 1;
        return Some(false);
    }
    if end.is_cut {
        let is_stuck = !end.has_new;
        tail.limit = if is_stuck {
            tail.limit.saturating_mul(4)
        } else {
            settings.limit
        };
        // The next request reads more: a follow would wait for a line that it has passed.
        tail.failures = 1;
        tail.due = now;
        return Some(false);
    }
    tail.limit = settings.limit;
    if end.is_lost {
        tail.due = now;
        return Some(false);
    }
    let is_steady = !open.previous && tail.note_read();
    let cursor = tail.cursor.as_mut()?;
    if open.is_final {
        // A file that was read before is the one whose end was waited for. Any other, and none, may be of the next start.
        let is_known = cursor.is_proven && had_taken && !end.is_other;
        let is_sure = open.previous || is_known || is_steady;
        // The current log may already be that of the next start: then the end is in the previous one.
        let is_of_next = !open.previous && end.is_other && had_taken;
        cursor.ended |= is_sure && !is_of_next;
        cursor.confirmed |= open.previous;
    }
    let pace = tail.pace(end.has_new, now, settings);
    tail.due = now + pace;
    if open.previous {
        tail.due = now;
    }
    Some(false)
}
