//! Counts what is asked, and remembers writes.

use super::{State, Store};
use crate::history::Write;

impl State {
    pub(crate) fn count_listed(&mut self, objects: u64) {
        self.counters.listed += objects;
    }
}

impl Store {
    /// Numbers the next write of `user`: (of all, of this user).
    pub(crate) fn number_write(&self, user: &str) -> (u64, u64) {
        let mut state = self.lock();
        state.counters.writes += 1;
        let own = state.counters.writes_by_user.entry(user.to_owned()).or_default();
        *own += 1;
        let own = *own;
        (state.counters.writes, own)
    }

    pub(crate) fn count_read(&self) {
        self.lock().counters.reads += 1;
    }

    pub(crate) fn count_forbidden(&self, user: &str) {
        let mut state = self.lock();
        *state.counters.forbidden_by_user.entry(user.to_owned()).or_default() += 1;
    }

    pub(crate) fn record(&self, write: Write) {
        let mut state = self.lock();
        *state.counters.writes_by_code.entry(write.code).or_default() += 1;
        if state.history_limit == 0 {
            return;
        }
        if state.history.len() >= state.history_limit {
            state.history.pop_front();
        }
        state.history.push_back(write);
    }
}
