//! Where a node keeps its container images.

use std::{collections::BTreeSet, io::Read};

use futures::future::BoxFuture;

use program::error::Result;

/// The images of a node, by their names in containerd.
pub trait ImageStore: Send + Sync {
    /// The names of all images. Identifiers (`sha256:…`) are no names.
    fn list(&self) -> BoxFuture<'_, Result<BTreeSet<String>>>;

    /// Takes in an archive as `docker save` writes it, not compressed, as far as the reader goes. When the reader
    /// fails, the archive is not taken in.
    fn import(&self, archive: Box<dyn Read + Send>) -> BoxFuture<'_, Result<()>>;

    /// Removes one name. The image itself goes with its last name.
    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>>;
}
