//! Copies of all that is stored. Objects are shared: a change replaces an object.

use std::sync::Arc;

use super::{Partition, State, Store};

impl Partition {
    /// The same objects and log; no client waits for changes of the copy yet.
    fn copy(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            log: self.log.clone(),
            most: self.most,
            compacted: self.compacted,
            closed: self.closed,
            changed: Arc::default(),
        }
    }
}

impl State {
    pub(crate) fn copy(&self) -> Self {
        let partitions = self.partitions.iter();
        Self {
            version: self.version,
            ids: self.ids,
            partitions: partitions
                .map(|(resource, partition)| (resource.clone(), partition.copy()))
                .collect(),
            history: self.history.clone(),
            history_limit: self.history_limit,
            counters: self.counters.clone(),
            unseen: self.unseen.clone(),
            delayed: self.delayed.clone(),
        }
    }
}

impl Store {
    /// Replaces all that is stored. Observers are not notified.
    pub(crate) fn begin_with(&self, state: &State) {
        *self.lock() = state.copy();
    }
}
