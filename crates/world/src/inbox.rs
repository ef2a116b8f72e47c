//! What an actor still has to look at: objects that changed, and objects that are due.
//!
//! Holds keys, never objects: a reader of a key reads the object as it is then. A key that is put in twice comes
//! out once, and keys come out sorted, so that a run is the same each time.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use clock::Clock;
use jiff::Timestamp;
use tokio::sync::Notify;

use crate::error::Error;

/// Namespace (empty for cluster-scoped objects) and name.
pub(crate) type Key = (String, String);

/// How long an actor waits before it tries again what failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The kinds that actors look at. Keys come out in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names of Kubernetes kinds")]
pub(crate) enum Kind {
    UpgradePlan,
    Node,
    Pod,
    Job,
    Plan,
    Deployment,
    ReplicaSet,
    DaemonSet,
    Service,
    EndpointSlice,
    PodDisruptionBudget,
    Secret,
    ConfigMap,
    PersistentVolumeClaim,
    Cluster,
    CapiCluster,
    FleetCluster,
    ClusterRepo,
    Machine,
    ManagedChart,
    Bundle,
    Addon,
    VirtualMachineImage,
    KubeVirt,
    VirtualMachine,
    VirtualMachineInstance,
    VirtualMachineInstanceMigration,
    Volume,
    Replica,
    Engine,
    InstanceManager,
}

/// A kind and a key.
pub(crate) type Item = (Kind, Key);

#[derive(Default)]
struct Queue {
    dirty: BTreeSet<Item>,
    timers: BTreeSet<(Timestamp, Item)>,
}

struct Inner {
    clock: Clock,
    queue: Mutex<Queue>,
    bell: Notify,
}

/// What an actor still has to look at.
#[derive(Clone)]
pub(crate) struct Inbox(Arc<Inner>);

/// An inbox that does not keep its actor's inbox alive.
pub(crate) struct Subscriber(Weak<Inner>);

impl Inbox {
    pub(crate) fn new(clock: Clock) -> Self {
        Self(Arc::new(Inner {
            clock,
            queue: Mutex::default(),
            bell: Notify::new(),
        }))
    }

    pub(crate) fn subscriber(&self) -> Subscriber {
        Subscriber(Arc::downgrade(&self.0))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        lock(&self.0)
    }

    /// Looks at a key as soon as possible.
    pub(crate) fn now(&self, kind: Kind, key: Key) {
        self.lock().dirty.insert((kind, key));
        self.0.bell.notify_one();
    }

    /// Delivers a key at a time.
    pub(crate) fn later(&self, kind: Kind, key: Key, at: Timestamp) {
        self.lock().timers.insert((at, (kind, key)));
    }

    /// Delivers a key at a time, unless it is delivered before anyway: what is requeued after each delivery
    /// does so once at a time, however often it is woken in between. So do the queues of real controllers.
    pub(crate) fn no_later_than(&self, kind: Kind, key: Key, at: Timestamp) {
        let mut queue = self.lock();
        let item = (kind, key);
        let is_due = |(due, of): &(Timestamp, Item)| *due <= at && *of == item;
        if !queue.timers.iter().any(is_due) {
            queue.timers.insert((at, item));
        }
    }

    /// Tries a key again after a pause when it failed.
    pub(crate) fn settle(&self, actor: &'static str, item: Item, outcome: Result<(), Error>) {
        if let Err(error) = outcome {
            let (kind, (namespace, name)) = &item;
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::debug!(actor, ?kind, namespace, name, %error, cause, "trying again");
            let at = self.0.clock.now().saturating_add(PAUSE).unwrap_or(Timestamp::MAX);
            self.later(item.0, item.1, at);
        }
    }

    /// Waits for the next key to look at.
    pub(crate) async fn next(&self) -> Item {
        loop {
            let earliest = {
                let now = self.0.clock.now();
                let mut queue = self.lock();
                while queue.timers.first().is_some_and(|(at, _)| *at <= now) {
                    if let Some((_, item)) = queue.timers.pop_first() {
                        queue.dirty.insert(item);
                    }
                }
                if let Some(item) = queue.dirty.pop_first() {
                    return item;
                }
                queue.timers.first().map(|(at, _)| *at)
            };
            match earliest {
                Some(at) => tokio::select! {
                    biased;
                    () = self.0.bell.notified() => {}
                    () = self.0.clock.sleep_until(at) => {}
                },
                None => self.0.bell.notified().await,
            }
        }
    }

    /// Rings on every change, for readers that need no keys.
    pub(crate) fn bell(&self) -> &Notify {
        &self.0.bell
    }

    /// Waits for any change, without caring which.
    pub(crate) async fn changed(&self) {
        loop {
            {
                let mut queue = self.lock();
                if !queue.dirty.is_empty() {
                    queue.dirty.clear();
                    return;
                }
            }
            self.0.bell.notified().await;
        }
    }
}

impl Subscriber {
    /// Puts keys in; false when no reader is left.
    pub(crate) fn push(&self, kind: Kind, keys: impl IntoIterator<Item = Key>) -> bool {
        let Some(inner) = self.0.upgrade() else {
            return false;
        };
        lock(&inner).dirty.extend(keys.into_iter().map(|key| (kind, key)));
        inner.bell.notify_one();
        true
    }
}

fn lock(inner: &Inner) -> MutexGuard<'_, Queue> {
    // No code panics with this lock; if it did, the data would still be valid.
    inner.queue.lock().unwrap_or_else(PoisonError::into_inner)
}
