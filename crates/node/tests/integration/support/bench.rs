//! A node with nothing on it, and a repository with configurable faults.

use std::{collections::BTreeMap, fs, path::Path};

use node::images::{
    Summary,
    eligibility::PlanFacts,
    prepare::{AGENT_FOLDER, RKE2_FOLDER},
};
use program::Error;
use tempfile::TempDir;

use super::{
    Shown,
    archive::{self, AGENT, COMMON_IMAGES, RKE2, release_files},
    hostile::Hostile,
    memory_store::MemoryStore,
    plan,
};

pub(crate) const LAYER: usize = 200_000;

/// A node with nothing on it, and a repository.
pub(crate) struct Bench {
    pub(crate) repository: Hostile,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) memory_store: MemoryStore,
    pub(crate) root: TempDir,
    pub(crate) board: Shown,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(release_files(LAYER)).await
    }

    pub(crate) async fn with(files: BTreeMap<String, Vec<u8>>) -> Self {
        Self {
            repository: Hostile::start(files.clone()).await,
            files,
            memory_store: MemoryStore::default(),
            root: tempfile::tempdir().unwrap(),
            board: Shown::default(),
        }
    }

    pub(crate) async fn prepare(&self) -> (Summary, program::Result<()>) {
        self.prepare_for(plan()).await
    }

    pub(crate) async fn prepare_for(&self, plan: PlanFacts) -> (Summary, program::Result<()>) {
        let store = Box::new(self.memory_store.clone());
        super::prepare(&self.repository.url, store, self.root.path(), plan, self.board.clone()).await
    }

    pub(crate) async fn complaint(&self) -> String {
        let (_, done) = self.prepare().await;
        let error = done.unwrap_err();
        assert!(matches!(error, Error::Permanent(_)), "{error:?}");
        error.to_string()
    }

    pub(crate) fn saved(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(self.place(path)).ok()
    }

    pub(crate) fn place(&self, path: &str) -> std::path::PathBuf {
        let folder = if path == AGENT { AGENT_FOLDER } else { RKE2_FOLDER };
        self.root.path().join(folder).join(path.rsplit('/').next().unwrap())
    }

    pub(crate) fn assert_complete(&self) {
        let mut all: Vec<String> = [&COMMON_IMAGES[..], &archive::RKE2_IMAGES]
            .concat()
            .iter()
            .map(|name| (*name).to_owned())
            .collect();
        all.sort();
        assert_eq!(self.memory_store.names(), all);
        for path in [RKE2, AGENT] {
            assert!(
                self.saved(path).as_ref() == Some(&self.files[path]),
                "{path} is not what it should be"
            );
        }
        let left: Vec<_> = [RKE2_FOLDER, AGENT_FOLDER]
            .iter()
            .flat_map(|folder| names(&self.root.path().join(folder)))
            .collect();
        assert!(!left.iter().any(|name| name.ends_with(".partial")), "{left:?}");
        assert_eq!(left.len(), 4, "a list and an archive each: {left:?}");
    }
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}
