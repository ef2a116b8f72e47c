//! A store in memory. It takes in an archive as containerd does: whole, or not at all.

use std::{
    collections::BTreeSet,
    io::Read,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use node::images::ImageStore;
use program::{Error, Result};

use super::Shown;

/// Images by name, and how many archives came.
#[derive(Clone, Default)]
pub(crate) struct MemoryStore(pub(crate) Arc<Mutex<(BTreeSet<String>, u32)>>);

/// A store that refuses archives, and may be away for a while after each.
#[derive(Default)]
pub(crate) struct Refusing {
    pub(crate) memory_store: MemoryStore,
    /// How many archives it still refuses.
    pub(crate) refusals: Arc<Mutex<u32>>,
    /// How many questions it does not answer after each.
    pub(crate) is_away_for: u32,
    pub(crate) unanswered: Mutex<u32>,
}

/// A store that imports an archive once its progress was reported.
pub(crate) struct Watched {
    pub(crate) memory_store: MemoryStore,
    pub(crate) board: Shown,
}

impl ImageStore for Watched {
    fn list(&self) -> BoxFuture<'_, Result<BTreeSet<String>>> {
        self.memory_store.list()
    }

    fn import(&self, archive: Box<dyn Read + Send>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let notified = tokio::time::timeout(Duration::from_secs(30), self.board.1.notified()).await;
            notified.expect("no notification");
            self.memory_store.import(archive).await
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        self.memory_store.remove(name)
    }
}

fn one_less(count: &Mutex<u32>) -> bool {
    let mut count = count.lock().unwrap();
    let was_any = *count > 0;
    *count = count.saturating_sub(1);
    was_any
}

impl ImageStore for Refusing {
    fn list(&self) -> BoxFuture<'_, Result<BTreeSet<String>>> {
        if one_less(&self.unanswered) {
            return Box::pin(async { Err(Error::Transient("connection refused".to_owned())) });
        }
        self.memory_store.list()
    }

    fn import(&self, archive: Box<dyn Read + Send>) -> BoxFuture<'_, Result<()>> {
        if one_less(&self.refusals) {
            *self.unanswered.lock().unwrap() = self.is_away_for;
            return Box::pin(async { Err(Error::Transient("ctr was stopped".to_owned())) });
        }
        self.memory_store.import(archive)
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        self.memory_store.remove(name)
    }
}

impl MemoryStore {
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().0.iter().cloned().collect()
    }

    pub(crate) fn imports(&self) -> u32 {
        self.0.lock().unwrap().1
    }
}

impl ImageStore for MemoryStore {
    fn list(&self) -> BoxFuture<'_, Result<BTreeSet<String>>> {
        let names = self.0.lock().unwrap().0.clone();
        Box::pin(async { Ok(names) })
    }

    fn import(&self, archive: Box<dyn Read + Send>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let read = tokio::task::spawn_blocking(move || tags(archive)).await.unwrap();
            let tags = read.map_err(|error| Error::Transient(error.to_string()))?;
            let mut state = self.0.lock().unwrap();
            state.0.extend(tags);
            state.1 += 1;
            Ok(())
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        self.0.lock().unwrap().0.remove(name);
        Box::pin(async { Ok(()) })
    }
}

/// The names in an archive, which must be readable to its very end.
fn tags(mut archive: Box<dyn Read + Send>) -> std::io::Result<Vec<String>> {
    let mut bytes = Vec::new();
    archive.read_to_end(&mut bytes)?;
    let mut tar = tar::Archive::new(bytes.as_slice());
    for entry in tar.entries()? {
        let mut entry = entry?;
        if entry.path()?.to_string_lossy() == "manifest.json" {
            let mut text = String::new();
            entry.read_to_string(&mut text)?;
            let manifest: serde_json::Value = serde_json::from_str(&text)?;
            let images = manifest.as_array().unwrap().iter();
            return Ok(images
                .map(|image| image["RepoTags"][0].as_str().unwrap().to_owned())
                .collect());
        }
    }
    Err(std::io::Error::other("no manifest"))
}
