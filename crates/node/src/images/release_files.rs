//! The repository as a cluster upgrade uses it: small texts, and archives saved whole.

use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use release::{bundle, bundle::Archive};

use super::{file, progress::Progress, repository::Repository};
use program::release_files::ReleaseFiles;
use program::{error::Result, step::StepContext};

impl ReleaseFiles for Repository {
    fn text<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<String>> {
        // Once: the calling step reports the error, and retries until its deadline.
        Box::pin(self.text_once(path, bundle::LARGEST_BYTES))
    }

    fn save<'a>(
        &'a self,
        ctx: StepContext<'a>,
        archive: &'a Archive,
        folder: &'a Path,
    ) -> BoxFuture<'a, Result<PathBuf>> {
        Box::pin(async move {
            let path = archive.archive.as_str();
            let mut progress = Progress::new(ctx, "saving", path, 1, 1);
            file::save(self, archive, folder, &mut progress).await?;
            Ok(folder.join(archive.archive.file_name()))
        })
    }
}
