//! Keys of repositories between being made and being stored. They are in the manager's memory only: neither decisions nor
//! what they look at nor the log have them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use api::RepositoryAccess;
use release::tls::Identity;

/// A certificate with its key.
#[derive(Clone, Debug)]
struct Entry {
    access: RepositoryAccess,
    identity: Identity,
    /// This manager has created the Secret: a Secret of that name is ours.
    is_stored: bool,
}

/// The keys, by the UID of their plan. All clones are the same.
#[derive(Clone, Default)]
pub struct Keyring(Arc<Mutex<BTreeMap<String, Entry>>>);

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").finish_non_exhaustive()
    }
}

impl Keyring {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        // No code panics with this lock; if it did, the value would still be valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a key for a plan; one that it had before is forgotten.
    pub fn add(&self, uid: &str, access: RepositoryAccess, identity: Identity) {
        let entry = Entry {
            access,
            identity,
            is_stored: false,
        };
        self.entries().insert(uid.to_owned(), entry);
    }

    /// The certificate whose key is in hand.
    #[must_use]
    pub fn certificate(&self, uid: &str) -> Option<RepositoryAccess> {
        self.entries().get(uid).map(|entry| entry.access.clone())
    }

    /// What the Secret of that name is to hold, and whether this manager has stored it before.
    #[must_use]
    pub fn of(&self, uid: &str, secret: &str) -> Option<(Identity, bool)> {
        let entries = self.entries();
        let entry = entries.get(uid).filter(|entry| entry.access.secret == secret)?;
        Some((entry.identity.clone(), entry.is_stored))
    }

    /// The Secret is there, and is this manager's.
    pub fn stored(&self, uid: &str) {
        if let Some(entry) = self.entries().get_mut(uid) {
            entry.is_stored = true;
        }
    }

    /// Forgets the key of a plan, so that another one is made.
    pub fn forget(&self, uid: &str) {
        self.entries().remove(uid);
    }

    /// Forgets the keys of plans that are not these.
    pub fn keep(&self, is_alive: impl Fn(&String) -> bool) {
        self.entries().retain(|uid, _| is_alive(uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_in_what_is_logged() {
        let keyring = Keyring::default();
        let identity = Identity {
            certificate: "PUBLIC".to_owned(),
            key: "SECRET".to_owned(),
        };
        keyring.add("uid", RepositoryAccess::default(), identity);
        let shown = format!(
            "{keyring:?} {:?} {:?}",
            keyring.of("uid", ""),
            keyring.entries().get("uid")
        );
        assert!(!shown.contains("SECRET"), "{shown}");
    }
}
