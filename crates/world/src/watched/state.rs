//! What is known of the objects of one kind, from a watch and from responses to writes, in whichever order they come. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::{Resource, ResourceExt, runtime::watcher::Event};

use super::Object;
use crate::inbox::{Key, Kind, Subscriber};

/// The objects, and what has been reported of them.
pub(super) struct State<K> {
    pub(super) objects: BTreeMap<Key, Arc<K>>,
    /// What objects are found by besides their names.
    index: fn(&K) -> Vec<String>,
    pub(super) found: BTreeMap<String, BTreeSet<Key>>,
    relist: BTreeMap<Key, Arc<K>>,
    /// The newest version that was known when the list began: what is older and not in the list is gone.
    known_before_list: u64,
    /// The newest version that the watch has delivered. All older ones are delivered too.
    seen: u64,
    pub(super) subscribers: Vec<Subscriber>,
}

impl<K> State<K> {
    /// Nothing yet; objects will be found by these texts too.
    pub(super) fn indexed_by(index: fn(&K) -> Vec<String>) -> Self {
        Self {
            objects: BTreeMap::new(),
            index,
            found: BTreeMap::new(),
            relist: BTreeMap::new(),
            known_before_list: 0,
            seen: 0,
            subscribers: Vec::new(),
        }
    }
}

impl<K: Object> State<K> {
    /// Processes a watch event; returns which objects changed.
    pub(super) fn apply(&mut self, event: Event<K>) -> Vec<Key> {
        match event {
            Event::Init => {
                self.relist.clear();
                self.known_before_list = self
                    .objects
                    .values()
                    .map(|known| version(known.as_ref()))
                    .max()
                    .unwrap_or(0);
                Vec::new()
            }
            Event::InitApply(object) => {
                self.relist.insert(key_of(&object), Arc::new(pruned(object)));
                Vec::new()
            }
            Event::InitDone => self.replace(),
            Event::Apply(object) => {
                self.seen = self.seen.max(version(&object));
                self.put(&Arc::new(pruned(object))).into_iter().collect()
            }
            Event::Delete(object) => {
                self.seen = self.seen.max(version(&object));
                let key = key_of(&object);
                let known = self.objects.get(&key);
                if known.is_none_or(|known| known.meta().uid != object.meta().uid) {
                    return Vec::new();
                }
                self.set(&key, None);
                vec![key]
            }
        }
    }

    /// A list is whole.
    fn replace(&mut self) -> Vec<Key> {
        let mut listed = std::mem::take(&mut self.relist);
        let newest = listed.values().map(|object| version(object.as_ref())).max();
        self.seen = self.seen.max(newest.unwrap_or(0));
        let mut keys: BTreeSet<Key> = listed.keys().cloned().collect();
        for (key, object) in std::mem::take(&mut self.objects) {
            // What we wrote after the list was made is not in it. What we wrote before it began, and is not in it, is gone,
            // and nothing else would ever remove it.
            if version(object.as_ref()) > self.seen.max(self.known_before_list) {
                listed.insert(key.clone(), object);
            }
            keys.insert(key);
        }
        self.found.clear();
        for (key, object) in listed {
            self.set(&key, Some(object));
        }
        keys.into_iter().collect()
    }

    /// Processes a response of the API, unless the watch was faster: an object whose deletion it has delivered must not come
    /// back, for nothing would ever remove it again.
    pub(super) fn learn(&mut self, object: &Arc<K>) -> Option<Key> {
        if version(object.as_ref()) <= self.seen {
            return None;
        }
        self.put(object)
    }

    fn put(&mut self, object: &Arc<K>) -> Option<Key> {
        let key = key_of(object.as_ref());
        // A watch may still be on its way with what we know better from an answer.
        let known = self.objects.get(&key).map_or(0, |known| version(known.as_ref()));
        if version(object.as_ref()) <= known {
            return None;
        }
        self.set(&key, Some(object.clone()));
        Some(key)
    }

    /// The one place where objects change, and what they are found by with them.
    fn set(&mut self, key: &Key, object: Option<Arc<K>>) {
        let index = self.index;
        let texts = |object: &Option<Arc<K>>| object.as_ref().map(|object| index(object)).unwrap_or_default();
        let after = texts(&object);
        let before = match object {
            Some(object) => self.objects.insert(key.clone(), object),
            None => self.objects.remove(key),
        };
        let before = texts(&before);
        for text in before.iter().filter(|text| !after.contains(text)) {
            if let Some(keys) = self.found.get_mut(text) {
                keys.remove(key);
                if keys.is_empty() {
                    self.found.remove(text);
                }
            }
        }
        for text in after.into_iter().filter(|text| !before.contains(text)) {
            self.found.entry(text).or_default().insert(key.clone());
        }
    }
}

pub(super) fn notify<K>(kind: Kind, state: &mut State<K>, keys: &[Key]) {
    state
        .subscribers
        .retain(|subscriber| subscriber.push(kind, keys.iter().cloned()));
}

/// The key of an object.
pub(crate) fn key_of<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn version<K: Resource>(object: &K) -> u64 {
    object
        .meta()
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

pub(super) fn pruned<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}
