//! Records between being made and being stored. They may be large: neither decisions nor what they look at have them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use checks::postflight::stored::StoredError;
use k8s_openapi::api::core::v1::ConfigMap;

/// How often storing a record is tried: the upgrade waits for it, and begins without it then.
const ATTEMPTS: u32 = 2;

/// A record that is to be stored.
#[derive(Default)]
struct Entry {
    maps: Arc<Vec<ConfigMap>>,
    failures: u32,
    given_up: Option<String>,
}

/// The records, by the UID of their plan. All clones are the same.
#[derive(Clone, Default)]
pub struct Unstored(Arc<Mutex<BTreeMap<String, Entry>>>);

impl fmt::Debug for Unstored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unstored").finish_non_exhaustive()
    }
}

impl Unstored {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        // No code panics with this lock; if it did, the value would still be valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the ConfigMaps of a plan's record, in the order in which they are created; or why there are none.
    pub fn add(&self, uid: &str, maps: Result<Vec<ConfigMap>, StoredError>) {
        let entry = match maps {
            Ok(maps) => Entry {
                maps: Arc::new(maps),
                ..Entry::default()
            },
            Err(why) => Entry {
                given_up: Some(why.to_string()),
                ..Entry::default()
            },
        };
        self.entries().insert(uid.to_owned(), entry);
    }

    /// The ConfigMaps of a plan's record.
    #[must_use]
    pub fn of(&self, uid: &str) -> Arc<Vec<ConfigMap>> {
        let entries = self.entries();
        entries.get(uid).map(|entry| entry.maps.clone()).unwrap_or_default()
    }

    /// They could not be stored. After some attempts that is given up.
    pub fn failed(&self, uid: &str, why: &str) {
        let mut entries = self.entries();
        let entry = entries.entry(uid.to_owned()).or_default();
        entry.failures += 1;
        if entry.failures >= ATTEMPTS {
            entry.maps = Arc::default();
            entry.given_up = Some(why.to_owned());
        }
    }

    /// Why a record is not stored, once that is given up.
    #[must_use]
    pub fn given_up(&self, uid: &str) -> Option<String> {
        self.entries().get(uid)?.given_up.clone()
    }

    /// Forgets the records of plans that are not these.
    pub fn keep(&self, is_alive: impl Fn(&String) -> bool) {
        self.entries().retain(|uid, _| is_alive(uid));
    }

    /// The record is stored: its text is not needed any more.
    pub fn stored(&self, uid: &str) {
        if let Some(entry) = self.entries().get_mut(uid) {
            entry.maps = Arc::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_cannot_be_stored_is_tried_again_and_then_given_up() {
        let unstored = Unstored::default();
        unstored.add("u1", Ok(vec![ConfigMap::default()]));
        unstored.failed("u1", "forbidden");
        assert_eq!((unstored.of("u1").len(), unstored.given_up("u1")), (1, None));
        unstored.failed("u1", "forbidden");
        assert_eq!(
            (unstored.of("u1").len(), unstored.given_up("u1")),
            (0, Some("forbidden".to_owned()))
        );
        unstored.keep(|_| false);
        assert_eq!(unstored.given_up("u1"), None);
    }
}
