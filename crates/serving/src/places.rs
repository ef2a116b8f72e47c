//! Which connections are served, and which one a new connection replaces.

use std::{
    collections::{BTreeMap, btree_map::Entry as Slot},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::Limits;

/// The places of a server. All clones are the same.
#[derive(Clone, Debug)]
pub struct Places(Arc<Mutex<Register>>);

/// A place, while it is in use. It may be lost: see [`Place::lost`].
#[derive(Debug)]
pub struct Place {
    number: u64,
    is_crowded: bool,
    leave: Arc<Notify>,
    places: Places,
}

impl Places {
    /// As many as the limits say.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self::of(limits.connections, limits.per_peer, limits.refusals)
    }

    /// So many in all, of one address, and in the crowd that waits at the door.
    #[must_use]
    pub fn of(all: usize, per_peer: usize, crowd: usize) -> Self {
        Self(Arc::new(Mutex::new(Register {
            all,
            per_peer,
            crowd,
            next: 0,
            guests: BTreeMap::new(),
        })))
    }

    /// Admits a connection, at once. The connection that it replaces is notified.
    #[must_use]
    pub fn enter(&self, peer: IpAddr) -> Place {
        let mut register = self.register();
        let peer = peer.to_canonical();
        let Entry { is_crowded, instead_of } = register.decide(peer);
        if let Some(guest) = instead_of.and_then(|number| register.guests.remove(&number)) {
            guest.leave.notify_one();
        }
        let number = register.next;
        register.next += 1;
        let leave = Arc::new(Notify::new());
        let guest = Guest {
            peer,
            is_crowded,
            is_being_answered: false,
            leave: Arc::clone(&leave),
        };
        register.guests.insert(number, guest);
        drop(register);
        Place {
            number,
            is_crowded,
            leave,
            places: self.clone(),
        }
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        // No code panics with this lock; if it did, the value would still be valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Whether it is accepted only briefly, for a 503 or for a probe.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    /// Returns once another connection has the place. Only one task may wait for it.
    pub async fn lost(&self) {
        self.leave.notified().await;
    }

    /// Sets whether a complete request is being answered: such a connection keeps its place.
    pub fn set_answered(&self, is_being_answered: bool) {
        if let Slot::Occupied(mut guest) = self.places.register().guests.entry(self.number) {
            guest.get_mut().is_being_answered = is_being_answered;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.register().guests.remove(&self.number);
    }
}

#[derive(Debug)]
struct Guest {
    peer: IpAddr,
    is_crowded: bool,
    is_being_answered: bool,
    leave: Arc<Notify>,
}

#[derive(Debug)]
struct Register {
    all: usize,
    per_peer: usize,
    crowd: usize,
    next: u64,
    /// By the order in which they came.
    guests: BTreeMap<u64, Guest>,
}

/// How a connection is admitted.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    is_crowded: bool,
    instead_of: Option<u64>,
}

impl Register {
    fn decide(&self, peer: IpAddr) -> Entry {
        let mut held: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for guest in self.guests.values().filter(|guest| !guest.is_crowded) {
            *held.entry(guest.peer).or_default() += 1;
        }
        let taken: usize = held.values().sum();
        let own = held.get(&peer).copied().unwrap_or_default();
        let instead_of = if own >= self.per_peer {
            self.oldest(|guest| guest.peer == peer)
        } else if taken >= self.all {
            // The address with most connections loses one first. Among equals, the oldest connection.
            let has = |guest: &Guest| held.get(&guest.peer).copied().unwrap_or_default();
            let most = self.guests.values().filter(|guest| guest.may_go()).map(has).max();
            self.oldest(|guest| Some(has(guest)) == most)
        } else {
            return Entry {
                is_crowded: false,
                instead_of: None,
            };
        };
        if instead_of.is_some() {
            return Entry {
                is_crowded: false,
                instead_of,
            };
        }
        let mut crowd = self.guests.iter().filter(|(_, guest)| guest.is_crowded);
        let is_full = crowd.clone().count() >= self.crowd;
        Entry {
            is_crowded: true,
            instead_of: if is_full {
                crowd.next().map(|(number, _)| *number)
            } else {
                None
            },
        }
    }

    /// The oldest of those that may be replaced.
    fn oldest(&self, is_meant: impl Fn(&Guest) -> bool) -> Option<u64> {
        let mut guests = self.guests.iter();
        guests
            .find(|(_, guest)| guest.may_go() && is_meant(guest))
            .map(|(number, _)| *number)
    }
}

impl Guest {
    fn may_go(&self) -> bool {
        !self.is_crowded && !self.is_being_answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// Whether the place was lost.
    fn is_lost(place: &Place) -> bool {
        !place.places.register().guests.contains_key(&place.number)
    }

    #[test]
    fn who_has_their_share_takes_the_place_of_their_own_oldest() {
        let places = Places::of(8, 2, 1);
        let (other, first, second) = (
            places.enter(address(1)),
            places.enter(address(2)),
            places.enter(address(2)),
        );
        let third = places.enter(address(2));
        assert!(is_lost(&first) && !is_lost(&second) && !is_lost(&other) && !third.is_crowded());
        // The same address, written as of the other family.
        let mapped: IpAddr = "::ffff:10.0.0.2".parse().unwrap();
        let _fourth = places.enter(mapped);
        assert!(is_lost(&second));
    }

    #[test]
    fn a_newcomer_takes_a_place_of_whoever_has_most() {
        let places = Places::of(4, 3, 1);
        let quiet = places.enter(address(1));
        let many: Vec<Place> = (0..3).map(|_| places.enter(address(2))).collect();
        many[0].set_answered(true);
        let newcomer = places.enter(address(3));
        assert!(!newcomer.is_crowded() && is_lost(&many[1]));
        assert!(!is_lost(&quiet) && !is_lost(&many[0]) && !is_lost(&many[2]));
    }

    #[test]
    fn who_is_being_answered_stays_and_the_crowd_is_bounded() {
        let places = Places::of(2, 2, 1);
        let served: Vec<Place> = (0..2).map(|_| places.enter(address(1))).collect();
        served.iter().for_each(|place| place.set_answered(true));
        let first = places.enter(address(2));
        let second = places.enter(address(3));
        assert!(first.is_crowded() && second.is_crowded());
        assert!(is_lost(&first) && !is_lost(&second), "the crowd is one");
        assert!(!served.iter().any(is_lost));
        drop(served);
        assert!(!places.enter(address(4)).is_crowded(), "a place that is left is free");
    }

    #[tokio::test]
    async fn who_loses_a_place_is_told_even_if_they_ask_later() {
        let places = Places::of(1, 1, 0);
        let first = places.enter(address(1));
        let _second = places.enter(address(2));
        first.lost().await;
    }
}
