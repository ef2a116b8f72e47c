//! An archive of images on its way from the repository into the node: decompressed while it is streamed, and never treated as complete
//! when it is not.

use std::{
    io::{self, Read},
    sync::{Arc, OnceLock},
};

use release::{
    archive::tar_of,
    bundle::{Archive, Sha256Sum},
};

use super::{
    download::Download,
    pipe::pipe,
    progress::Progress,
    repository::{Head, Repository},
    store::ImageStore,
};
use program::error::{Error, Result};

/// How often an archive is tried that comes, but comes wrong.
pub(super) const TRIES: u32 = 3;

/// Why an archive did not get into the store.
enum Failure {
    /// It came, but is not what it should be.
    Wrong(String),
    /// It came whole, and the store did not take it.
    Refused(Error),
    /// It did not come.
    Absent(Error),
}

/// Streams an archive into the store.
///
/// # Errors
/// Transient when the store does not answer: it restarts, and the step tries again for as long as it may. Permanent when the
/// archive is not there, does not come, or comes wrong or is refused three times by a store that does answer.
pub(super) async fn import(
    repository: &Repository,
    store: &dyn ImageStore,
    archive: &Archive,
    progress: &mut Progress<'_>,
) -> Result<()> {
    let mut tries = repository.tries_up_to(TRIES);
    loop {
        let why = match import_once(repository, store, archive, progress).await {
            Ok(()) => return Ok(()),
            Err(Failure::Wrong(why) | Failure::Absent(Error::Transient(why))) => why,
            Err(Failure::Absent(error)) => return Err(error),
            Err(Failure::Refused(error)) => {
                if !error.is_transient() || store.list().await.is_err() {
                    return Err(error);
                }
                error.to_string()
            }
        };
        tries
            .failed(&format!("failed to import {}: {why}", archive.archive))
            .await?;
    }
}

async fn import_once(
    repository: &Repository,
    store: &dyn ImageStore,
    archive: &Archive,
    progress: &mut Progress<'_>,
) -> Result<(), Failure> {
    let path = archive.archive.as_str();
    let (head, sum) = promised(repository, archive).await.map_err(Failure::Absent)?;
    progress.begins(head.size, 0);
    let (feeder, reader) = pipe();
    let tar = tar_of(reader, sum.as_ref());
    let tar = tar.map_err(|error| Failure::Absent(Error::Permanent(error.to_string())))?;
    let broken = Arc::new(OnceLock::new());
    let tar = Witness {
        inner: tar,
        broken: broken.clone(),
    };
    let download = Download::new(repository, path, head, 0);
    let (fed, imported) = tokio::join!(feeder.feed(download, progress), store.import(Box::new(tar)));
    fed.map_err(Failure::Absent)?;
    imported.map_err(|error| match broken.get() {
        Some(why) => Failure::Wrong(why.clone()),
        None => Failure::Refused(error),
    })?;
    progress.ends();
    Ok(())
}

/// Remembers why its source failed. The reader does not know: a store reports its own errors the same way.
struct Witness<R> {
    inner: R,
    broken: Arc<OnceLock<String>>,
}

impl<R: Read> Read for Witness<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer);
        if let Err(error) = &read
            && error.kind() != io::ErrorKind::Interrupted
        {
            // The first one counts; later ones follow from it.
            let _ = self.broken.set(error.to_string());
        }
        read
    }
}

/// What the repository says about an archive, when the bundle does not contradict; and its SHA-256: the recorded one, else
/// that of the bundle, if it has one.
pub(super) async fn promised(repository: &Repository, archive: &Archive) -> Result<(Head, Option<Sha256Sum>)> {
    let path = archive.archive.as_str();
    let head = repository.head(path).await?;
    let recorded = repository.sum_of(path).await?.map(|sum| sum.sha256);
    match archive.size {
        Some(size) if size != head.size => Err(Error::Permanent(format!(
            "{} has {} bytes, but {} of them are promised in {}",
            repository.url(archive.archive.as_str()),
            head.size,
            size,
            release::bundle::PATH
        ))),
        _ => Ok((head, recorded.or_else(|| archive.sha256.clone()))),
    }
}
