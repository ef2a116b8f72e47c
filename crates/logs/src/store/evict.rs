//! What goes when space is short. Pure: a choice among the segments of the index.

use super::{Limits, index::Index};
use crate::{key::Class, line::Nanos};

/// What must go before a segment can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// These segments of these logs, oldest first. None: there is room.
    Remove(Vec<(u32, u64)>),
    /// The new lines themselves: there is nothing that may go before them.
    Refuse,
}

struct Candidate {
    stream: u32,
    number: u64,
    stored: u64,
    last: Nanos,
    class: Class,
    is_of_pod: bool,
}

/// What must go for a segment of `size` of a log. First, the oldest of the pod beyond its own quota. Then the oldest of the
/// cluster's components. Only for the upgrade's own logs, and when nothing else is left: the oldest of these.
pub(super) fn choose(index: &Index, stream: u32, size: u64, limits: &Limits) -> Choice {
    let Some(writer) = index.streams.get(&stream) else {
        return Choice::Refuse;
    };
    let class = writer.info.class;
    let total: u64 = index.streams.values().map(|stream| stream.stored()).sum();
    let uid = &writer.key.container.uid;
    let of_pod = index.streams.values().filter(|stream| stream.key.container.uid == *uid);
    let of_pod: u64 = of_pod.map(|stream| stream.stored()).sum();
    let cap = limits.for_segments();
    if size > limits.per_pod || size > cap {
        return Choice::Refuse;
    }
    let (mut over_pod, mut over) = (
        (of_pod + size).saturating_sub(limits.per_pod),
        (total + size).saturating_sub(cap),
    );
    if over_pod == 0 && over == 0 {
        return Choice::Remove(Vec::new());
    }
    let mut candidates = candidates(index, uid);
    let mut removed = Vec::new();
    candidates.retain(|candidate| {
        let goes = over_pod > 0 && candidate.is_of_pod;
        if goes {
            over_pod = over_pod.saturating_sub(candidate.stored);
            over = over.saturating_sub(candidate.stored);
            removed.push((candidate.stream, candidate.number));
        }
        !goes
    });
    for goes in [Class::System, Class::Own] {
        for candidate in candidates.iter().filter(|candidate| candidate.class == goes) {
            if over == 0 {
                break;
            }
            if goes == Class::Own && class == Class::System {
                return Choice::Refuse;
            }
            over = over.saturating_sub(candidate.stored);
            removed.push((candidate.stream, candidate.number));
        }
    }
    if over > 0 || over_pod > 0 {
        return Choice::Refuse;
    }
    Choice::Remove(removed)
}

/// What goes for so many bytes when the volume is full before the quota is: the cluster's components first.
pub(super) fn oldest(index: &Index, bytes: u64) -> Vec<(u32, u64)> {
    let mut candidates = candidates(index, "");
    candidates.sort_by_key(|candidate| candidate.class == Class::Own);
    let mut freed = 0;
    let enough = candidates.into_iter().take_while(|candidate| {
        let goes = freed < bytes;
        freed += candidate.stored;
        goes
    });
    enough.map(|candidate| (candidate.stream, candidate.number)).collect()
}

/// All segments, oldest first.
fn candidates(index: &Index, uid: &str) -> Vec<Candidate> {
    let streams = index.streams.iter();
    let mut candidates: Vec<Candidate> = streams
        .flat_map(|(id, stream)| {
            let is_of_pod = stream.key.container.uid == *uid;
            stream.segments.iter().map(move |segment| Candidate {
                stream: *id,
                number: segment.number,
                stored: segment.stored,
                last: segment.last,
                class: stream.info.class,
                is_of_pod,
            })
        })
        .collect();
    candidates.sort_by_key(|candidate| (candidate.last, candidate.number));
    candidates
}
