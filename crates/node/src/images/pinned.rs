//! What a repository must be: a manifest whose digest the manager has recorded, and nothing that is not in it. A repository
//! without such a pin, in an upgrade that began under an older manager, is believed as it is.

use std::sync::Arc;

use release::{
    bundle::{Promise, Sha256Sum},
    manifest::{self, FileSum, Manifest},
};
use tokio::sync::OnceCell;

use super::repository::Repository;
use program::error::{Error, Result};

/// The digest of the manifest on record, and the manifest once it was read.
#[derive(Clone, Debug)]
pub(super) struct Pin {
    root: Sha256Sum,
    manifest: Arc<OnceCell<Manifest>>,
}

impl Pin {
    pub(super) fn new(root: Sha256Sum) -> Self {
        Self {
            root,
            manifest: Arc::default(),
        }
    }
}

impl Repository {
    /// What must be true of a file; nothing where the repository is not pinned.
    ///
    /// # Errors
    /// Transient when the manifest does not come. Refused when it is another one, or does not have the file.
    pub(super) async fn sum_of(&self, path: &str) -> Result<Option<FileSum>> {
        let Some(pin) = &self.pin else { return Ok(None) };
        let manifest = pin.manifest.get_or_try_init(|| self.read_manifest(&pin.root)).await?;
        match manifest.files.get(path) {
            Some(sum) => Ok(Some(sum.clone())),
            None => Err(Error::Refused(format!(
                "{} is not in the manifest of the release, so it cannot be verified",
                self.url(path)
            ))),
        }
    }

    async fn read_manifest(&self, root: &Sha256Sum) -> Result<Manifest> {
        let url = manifest::url_of(&self.url(""));
        let bytes = self.bytes_once(&url, manifest::LARGEST_BYTES).await?;
        let text = String::from_utf8_lossy(&bytes);
        Manifest::verified(&text, root).map_err(|error| Error::Refused(format!("{url} is refused: {error}")))
    }

    /// The same as a promise.
    pub(super) async fn promise_of(&self, path: &str) -> Result<Option<Promise>> {
        let sum = self.sum_of(path).await?;
        Ok(sum.map(|sum| Promise {
            size: Some(sum.size),
            sha256: Some(sum.sha256),
        }))
    }

    /// A small file must be the one that is wanted.
    pub(super) async fn check(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let Some(wanted) = self.sum_of(path).await? else {
            return Ok(());
        };
        let found = manifest::sha256(bytes);
        if found == wanted.sha256 {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "{} is refused: its SHA-256 is {}, and {} is recorded: it was replaced or damaged",
            self.url(path),
            found.as_str(),
            wanted.sha256.as_str()
        )))
    }

    /// A file must have the size of the one that is wanted, before any of it is fetched.
    pub(super) async fn check_size(&self, path: &str, size: u64) -> Result<()> {
        match self.sum_of(path).await? {
            Some(wanted) if wanted.size != size => Err(Error::Refused(format!(
                "{} is refused: it has {size} bytes, and {} are recorded: it was replaced or truncated",
                self.url(path),
                wanted.size
            ))),
            _ => Ok(()),
        }
    }
}
