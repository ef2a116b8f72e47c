//! Where the files of a release come from.

use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use release::bundle::Archive;

use crate::{error::Result, step::StepContext};

/// Where the files of a release come from. Paths are from the root of the ISO, without a slash in front.
pub trait ReleaseFiles: Send + Sync {
    /// A small file, as text.
    fn text<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<String>>;
    /// An archive of images, saved in a folder whole or not at all, and where.
    fn save<'a>(
        &'a self,
        ctx: StepContext<'a>,
        archive: &'a Archive,
        folder: &'a Path,
    ) -> BoxFuture<'a, Result<PathBuf>>;
}
