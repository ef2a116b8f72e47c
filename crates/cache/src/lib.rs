//! Watched kinds as sorted in-memory caches.
//!
//! A [`Cache`] holds all objects of one kind that a selector names, as the API server last reported them, and rings a
//! bell on every change. Objects come out sorted by namespace and name, never in hash order, so that decisions on
//! them decides the same way each time. Nothing is decided here.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt, pin_mut};
use kube::{
    Api, Resource, ResourceExt,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

/// First pause after a watch failed; doubles up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Namespace (empty for cluster-scoped objects) and name.
pub type Key = (String, String);

/// All objects of one kind that a selector names.
pub struct Cache<K> {
    state: Arc<Mutex<State<K>>>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self {
            state: self.state.clone(),
        }
    }
}

struct State<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// What a list in progress has brought so far.
    relist: BTreeMap<Key, Arc<K>>,
    synced: bool,
    /// The server has said that it does not know the kind.
    unserved: bool,
    seen: u64,
    revision: u64,
}

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            relist: BTreeMap::new(),
            synced: false,
            unserved: false,
            seen: 0,
            revision: 0,
        }
    }
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { state: Arc::default() }
    }
}

impl<K> Cache<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        // No code panics with this lock; if it did, the data would still be valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object of that name; the namespace of cluster-scoped objects is empty.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.lock()
            .objects
            .get(&(namespace.to_owned(), name.to_owned()))
            .cloned()
    }

    /// All objects, by namespace and name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        self.lock().objects.values().cloned().collect()
    }

    /// The first list is complete, or the server does not serve the kind.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.lock().synced
    }

    /// Whether the server serves the kind, as far as it has said. Without it there are no objects, which is all that some
    /// need; a caller that must not mistake a temporarily missing definition for an empty cluster checks here.
    #[must_use]
    pub fn is_served(&self) -> bool {
        !self.lock().unserved
    }

    /// The newest resourceVersion that was received. A client that wrote an object and got version `v` back finds that write here
    /// once this is `v` or more: versions are ordered within a kind.
    #[must_use]
    pub fn observed(&self) -> u64 {
        self.lock().seen
    }

    /// Counts the changes that a reader can see: while this stays the same, so does everything read from here.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }
}

impl<K: Resource + Clone + DeserializeOwned + Debug + PartialEq + Send + 'static> Cache<K> {
    /// Keeps the cache up to date for ever. `prune` may drop unused fields before an object is stored; `changed`
    /// rings after every change.
    pub async fn run(self, api: Api<K>, config: watcher::Config, prune: fn(&mut K), changed: Arc<Notify>) {
        self.run_as(api, config, prune, changed).await;
    }

    /// The same by another form of the objects, of which less is taken in to begin with.
    pub async fn run_as<W>(self, api: Api<W>, config: watcher::Config, prune: fn(&mut K), changed: Arc<Notify>)
    where
        W: Resource + Clone + DeserializeOwned + Debug + Send + Into<K> + 'static,
    {
        let stream = watcher(api, config);
        pin_mut!(stream);
        let mut pause = SHORTEST_PAUSE;
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
                    pause = SHORTEST_PAUSE;
                    if self.apply(converted(event), prune) {
                        changed.notify_one();
                    }
                }
                Err(error) => {
                    if is_not_served(&error) {
                        // A cluster without this kind is a cluster without objects of it.
                        let mut state = self.lock();
                        if !state.synced || !state.unserved {
                            state.synced = true;
                            state.unserved = true;
                            changed.notify_one();
                        }
                    } else {
                        tracing::debug!(%error, "watch failed; trying again");
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Processes one event; returns whether anything a reader can see has changed.
    fn apply(&self, event: Event<K>, prune: fn(&mut K)) -> bool {
        let mut state = self.lock();
        let changed = match event {
            Event::Init => {
                state.relist.clear();
                false
            }
            Event::InitApply(object) => {
                let (key, version, object) = keyed(object, prune);
                state.seen = state.seen.max(version);
                state.relist.insert(key, object);
                false
            }
            Event::InitDone => {
                state.objects = std::mem::take(&mut state.relist);
                state.synced = true;
                state.unserved = false;
                true
            }
            Event::Apply(object) => {
                let (key, version, object) = keyed(object, prune);
                state.seen = state.seen.max(version);
                let known = state.objects.insert(key, object.clone());
                // Heartbeats and whatever else was pruned away are no change.
                known.is_none_or(|known| !same_but_for_version(known.as_ref(), object.as_ref()))
            }
            Event::Delete(object) => {
                let (key, version, _) = keyed(object, prune);
                state.seen = state.seen.max(version);
                state.objects.remove(&key).is_some()
            }
        };
        state.revision += u64::from(changed);
        changed
    }
}

fn converted<W: Into<K>, K>(event: Event<W>) -> Event<K> {
    match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(object) => Event::InitApply(object.into()),
        Event::Apply(object) => Event::Apply(object.into()),
        Event::Delete(object) => Event::Delete(object.into()),
    }
}

fn keyed<K: Resource>(mut object: K, prune: fn(&mut K)) -> (Key, u64, Arc<K>) {
    let key = (object.namespace().unwrap_or_default(), object.name_any());
    let version = object
        .resource_version()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default();
    object.managed_fields_mut().clear();
    prune(&mut object);
    (key, version, Arc::new(object))
}

fn same_but_for_version<K: Resource + Clone + PartialEq>(one: &K, other: &K) -> bool {
    if one.meta().generation != other.meta().generation {
        return false;
    }
    let mut one = one.clone();
    one.meta_mut()
        .resource_version
        .clone_from(&other.meta().resource_version);
    one == *other
}

fn is_not_served(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    status.code == 404
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::ObjectMeta;

    use super::*;

    fn config_map(name: &str, version: u64) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.into()),
                namespace: Some("n".into()),
                resource_version: Some(version.to_string()),
                ..Default::default()
            },
            ..Default::default()
        }
    }

    fn names(cache: &Cache<ConfigMap>) -> Vec<String> {
        cache.list().iter().map(|object| object.name_any()).collect()
    }

    #[test]
    fn objects_come_out_by_name_whatever_order_they_came_in() {
        let cache = Cache::default();
        for name in ["b", "c", "a"] {
            assert!(cache.apply(Event::Apply(config_map(name, 1)), |_| ()));
        }
        assert_eq!(names(&cache), ["a", "b", "c"]);
        assert!(cache.get("n", "b").is_some());
        assert!(cache.get("other", "b").is_none());
    }

    #[test]
    fn a_change_of_nothing_that_is_kept_is_no_news() {
        let cache = Cache::default();
        let prune = |map: &mut ConfigMap| map.data = None;
        let beat = |version| ConfigMap {
            data: Some([("at".into(), format!("{version}"))].into()),
            ..config_map("a", version)
        };
        assert!(cache.apply(Event::Apply(beat(1)), prune));
        assert!(!cache.apply(Event::Apply(beat(2)), prune));
        assert_eq!(cache.observed(), 2);
        assert!(cache.apply(Event::Apply(beat(3)), |_| ()));
    }

    #[test]
    fn a_relist_shows_only_when_complete_and_forgets_what_is_gone() {
        let cache = Cache::default();
        assert!(!cache.is_synced());
        cache.apply(Event::Apply(config_map("old", 3)), |_| ());
        cache.apply(Event::Init, |_| ());
        cache.apply(Event::InitApply(config_map("new", 7)), |_| ());
        assert_eq!(names(&cache), ["old"]);
        assert!(cache.apply(Event::InitDone, |_| ()));
        assert_eq!(names(&cache), ["new"]);
        assert!(cache.is_synced());
        assert_eq!(cache.observed(), 7);
    }

    #[test]
    fn a_deletion_of_what_was_never_seen_changes_nothing() {
        let cache = Cache::default();
        assert!(!cache.apply(Event::Delete(config_map("x", 9)), |_| ()));
        assert_eq!(cache.observed(), 9);
    }
}
