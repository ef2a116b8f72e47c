//! The objects, their versions and what happened to them. No HTTP, no rules: those who write have checked already.
//!
//! One resourceVersion for all; a log and a notifier per resource, so that a write wakes only those who watch it.

mod copy;
mod counts;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use serde_json::Value;
use tokio::sync::Notify;

use crate::{
    history::{Change, ChangeKind, Counters, Observer, Origin, Write},
    kind::ResourceId,
};

/// Namespace (empty for cluster-scoped objects) and name.
pub(crate) type Key = (String, String);

/// One entry of a resource's log: enough to replay it for a watch with any selector.
#[derive(Debug, Clone)]
pub(crate) struct LogEntry {
    pub(crate) version: u64,
    pub(crate) kind: ChangeKind,
    pub(crate) object: Arc<Value>,
    pub(crate) previous: Option<Arc<Value>>,
    /// The object as JSON, written once for however many watches show it.
    pub(crate) text: Arc<OnceLock<String>>,
}

/// Objects of one resource.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    pub(crate) objects: BTreeMap<Key, Arc<Value>>,
    pub(crate) log: VecDeque<LogEntry>,
    /// The most objects that there ever were.
    most: usize,
    /// Version of the newest entry that fell out of the log.
    pub(crate) compacted: u64,
    /// When the resource was last withdrawn: watches from before end there.
    pub(crate) closed: u64,
    pub(crate) changed: Arc<Notify>,
}

impl Partition {
    /// The objects as they were at `version`, or nothing when the log does not reach back so far.
    pub(crate) fn at(&self, version: u64) -> Option<BTreeMap<Key, Arc<Value>>> {
        if version < self.compacted {
            return None;
        }
        let mut objects = self.objects.clone();
        for entry in self.log.iter().rev().take_while(|entry| entry.version > version) {
            let key = key_of(&entry.object);
            match &entry.previous {
                Some(previous) => objects.insert(key, Arc::clone(previous)),
                None => objects.remove(&key),
            };
        }
        Some(objects)
    }
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) version: u64,
    ids: u64,
    pub(crate) partitions: BTreeMap<ResourceId, Partition>,
    history: VecDeque<Write>,
    history_limit: usize,
    counters: Counters,
    /// Committed, not yet shown to observers.
    unseen: VecDeque<Change>,
    /// Watches that get nothing for now: (user, resource).
    pub(crate) delayed: BTreeSet<(String, ResourceId)>,
}

struct Inner {
    state: Mutex<State>,
    observers: Mutex<Vec<Observer>>,
    log_limit: usize,
    log_per_object: usize,
    seed: u64,
}

/// The store: what the three doors of the server open onto. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

/// What a commit is to do with a key.
pub(crate) enum Commit {
    Put(Value),
    /// Remove; the value is the last state of the object.
    Remove(Value),
}

/// The object changed since it was read.
#[derive(Debug)]
pub(crate) struct Raced;

impl Store {
    pub(crate) fn new(seed: u64, log_limit: usize, log_per_object: usize) -> Self {
        let state = State {
            history_limit: 10_000,
            ..State::default()
        };
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            observers: Mutex::default(),
            log_limit: log_limit.max(1),
            log_per_object,
            seed,
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held cannot leave a half-written state: every commit is one insert.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number no other call gets, from the seed alone.
    fn next_id(&self) -> u64 {
        let mut state = self.lock();
        state.ids += 1;
        mixed(self.0.seed ^ state.ids.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A uid in the form of a version 4 UUID.
    pub(crate) fn next_uid(&self) -> String {
        let high = self.next_id();
        let low = mixed(high ^ 0x5bd1_e995);
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | (low >> 48) & 0x3fff,
            low & 0xffff_ffff_ffff
        )
    }

    /// Five letters for `generateName`, from the alphabet of the real server.
    pub(crate) fn next_suffix(&self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut number = self.next_id();
        let mut suffix = String::new();
        for _ in 0..5 {
            let letter = ALPHABET[(number % ALPHABET.len() as u64) as usize];
            suffix.push(char::from(letter));
            number /= ALPHABET.len() as u64;
        }
        suffix
    }

    pub(crate) fn read(&self, resource: &ResourceId, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let state = self.lock();
        let key = (namespace.to_owned(), name.to_owned());
        state
            .partitions
            .get(resource)
            .and_then(|partition| partition.objects.get(&key))
            .cloned()
    }

    /// The one place where objects change. `expected` is what the caller read: if it is not there any more, nothing
    /// happens and the caller starts again.
    pub(crate) fn commit(
        &self,
        resource: &ResourceId,
        key: &Key,
        expected: Option<&Arc<Value>>,
        action: Commit,
        origin: &Origin,
    ) -> Result<Arc<Value>, Raced> {
        let changed = {
            let mut guard = self.lock();
            let state = &mut *guard;
            let partition = state.partitions.entry(resource.clone()).or_default();
            let current = partition.objects.get(key);
            let same = match (current, expected) {
                (None, None) => true,
                (Some(current), Some(expected)) => Arc::ptr_eq(current, expected),
                _ => false,
            };
            if !same {
                return Err(Raced);
            }
            state.version += 1;
            let (kind, mut value) = match (action, expected) {
                (Commit::Put(value), None) => (ChangeKind::Added, value),
                (Commit::Put(value), Some(_)) => (ChangeKind::Modified, value),
                (Commit::Remove(value), _) => (ChangeKind::Deleted, value),
            };
            value["metadata"]["resourceVersion"] = Value::String(state.version.to_string());
            let object = Arc::new(value);
            let previous = match kind {
                ChangeKind::Deleted => partition.objects.remove(key),
                ChangeKind::Added | ChangeKind::Modified => partition.objects.insert(key.clone(), Arc::clone(&object)),
            };
            let entry = LogEntry {
                version: state.version,
                kind,
                object: Arc::clone(&object),
                previous: previous.clone(),
                text: Arc::default(),
            };
            partition.log.push_back(entry);
            partition.most = partition.most.max(partition.objects.len());
            let limit = self.0.log_limit.max(partition.most * self.0.log_per_object);
            if partition.log.len() > limit
                && let Some(dropped) = partition.log.pop_front()
            {
                partition.compacted = dropped.version;
            }
            state.counters.commits += 1;
            state.unseen.push_back(Change {
                sequence: origin.sequence,
                verb: origin.verb,
                user: origin.user.clone(),
                resource: resource.clone(),
                kind,
                object: Arc::clone(&object),
                previous,
                resource_version: state.version,
            });
            (Arc::clone(&partition.changed), object)
        };
        changed.0.notify_waiters();
        self.show_observers();
        Ok(changed.1)
    }

    /// An object as text. Watches deliver a change with the same text as the answer to the write.
    pub(crate) fn text(&self, resource: &ResourceId, object: &Arc<Value>) -> String {
        let written = {
            let state = self.lock();
            let newest = state
                .partitions
                .get(resource)
                .and_then(|partition| partition.log.back());
            newest
                .filter(|entry| Arc::ptr_eq(&entry.object, object))
                .map(|entry| Arc::clone(&entry.text))
        };
        match written {
            Some(text) => text.get_or_init(|| object.to_string()).clone(),
            None => object.to_string(),
        }
    }

    /// Shows commits to observers in order. An observer that is running already picks up what came meanwhile.
    fn show_observers(&self) {
        let Ok(observers) = self.0.observers.try_lock() else {
            return;
        };
        loop {
            let Some(change) = self.lock().unseen.pop_front() else {
                return;
            };
            for observer in observers.iter() {
                observer(&change);
            }
        }
    }

    /// Drops a resource with all its objects: its definition is gone.
    pub(crate) fn forget(&self, resource: &ResourceId, origin: &Origin) {
        let all: Vec<(Key, Arc<Value>)> = {
            let state = self.lock();
            let objects = state.partitions.get(resource).map(|p| p.objects.clone());
            objects.unwrap_or_default().into_iter().collect()
        };
        for (key, object) in all {
            // Losing a race here means another request removed the object: it is gone either way.
            let _ = self.commit(resource, &key, Some(&object), Commit::Remove((*object).clone()), origin);
        }
        let mut state = self.lock();
        let version = state.version;
        if let Some(partition) = state.partitions.get_mut(resource) {
            partition.closed = version;
            partition.changed.notify_waiters();
        }
    }

    /// One object, as stored.
    pub fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.read(&ResourceId::new(group, plural), namespace, name)
    }

    /// Objects of a resource ordered by namespace and name; all namespaces when `namespace` is none.
    pub fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let state = self.lock();
        let Some(partition) = state.partitions.get(&ResourceId::new(group, plural)) else {
            return Vec::new();
        };
        let wanted = |key: &Key| namespace.is_none_or(|wanted| key.0 == wanted);
        partition
            .objects
            .iter()
            .filter(|(key, _)| wanted(key))
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// The resources that have or had objects.
    pub fn resources(&self) -> Vec<ResourceId> {
        self.lock().partitions.keys().cloned().collect()
    }

    /// The newest resourceVersion.
    pub fn resource_version(&self) -> u64 {
        self.lock().version
    }

    /// Write requests so far, oldest first, refused ones included; the last 10 000 by default.
    pub fn history(&self) -> Vec<Write> {
        self.lock().history.iter().cloned().collect()
    }

    /// How many write requests [`Store::history`] keeps (0: none).
    pub fn set_history_limit(&self, limit: usize) {
        let mut state = self.lock();
        state.history_limit = limit;
        while state.history.len() > limit {
            state.history.pop_front();
        }
    }

    /// Numbers of requests and commits so far.
    pub fn counters(&self) -> Counters {
        self.lock().counters.clone()
    }

    /// Calls `observer` after every committed change, in commit order, without holding the store. Observers may read
    /// the store; they must not write through the API from within the call and expect to be called for that first.
    pub fn observe(&self, observer: impl Fn(&Change) + Send + Sync + 'static) {
        self.0
            .observers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Box::new(observer));
    }

    /// Stops (`true`) or resumes the delivery of watch events of one resource to one user.
    pub fn delay_watches(&self, user: &str, resource: &ResourceId, hold: bool) {
        let mut state = self.lock();
        let entry = (user.to_owned(), resource.clone());
        if hold {
            state.delayed.insert(entry);
        } else {
            state.delayed.remove(&entry);
            if let Some(partition) = state.partitions.get(resource) {
                partition.changed.notify_waiters();
            }
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("version", &self.resource_version())
            .finish_non_exhaustive()
    }
}

/// Namespace and name of an object.
pub(crate) fn key_of(object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// splitmix64: spreads a counter over all 64 bits.
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
