//! Lists of objects that may be missing, each by itself.

use std::{ops::Deref, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why there is no list, in the words of the API server where it had some. They are shown, and nothing follows from them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(transparent)]
#[error("{0}")]
pub struct NoAnswer(String);

impl<T: Into<String>> From<T> for NoAnswer {
    fn from(why: T) -> Self {
        Self(why.into())
    }
}

/// All objects of a kind, or why they could not be listed.
pub type Listed<K> = Result<Vec<K>, NoAnswer>;

/// All objects of a kind of which a cluster may have very many, or why they could not be listed: all readers share the
/// same list.
pub type ListedOnce<K> = Result<Shared<K>, NoAnswer>;

/// Objects that several read at once.
#[derive(Debug, PartialEq)]
pub struct Shared<K>(Arc<Vec<K>>);

impl<K> Clone for Shared<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Default for Shared<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K> From<Vec<K>> for Shared<K> {
    fn from(objects: Vec<K>) -> Self {
        Self(Arc::new(objects))
    }
}

impl<K> Deref for Shared<K> {
    type Target = [K];

    fn deref(&self) -> &[K] {
        &self.0
    }
}

impl<K: Clone> Shared<K> {
    /// The objects, to be changed: a copy if others read them.
    pub fn make_mut(&mut self) -> &mut Vec<K> {
        Arc::make_mut(&mut self.0)
    }
}

impl<K: Serialize> Serialize for Shared<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_slice().serialize(serializer)
    }
}

impl<'de, K: Deserialize<'de>> Deserialize<'de> for Shared<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}
