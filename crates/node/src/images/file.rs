//! Files that RKE2 reads at its next start: under their names they are always whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use release::{
    archive::{has_sum, tar_of},
    bundle::{Archive, Sha256Sum},
};

use super::{
    archive::{TRIES, promised},
    download::Download,
    pipe::{PipeReader, pipe},
    progress::Progress,
    repository::{Head, Repository},
};
use program::error::{Error, Result};

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Saved {
    /// It was there.
    Kept,
    /// It was written.
    Written,
}

/// How a file's name ends while it is written. RKE2 passes over such names.
const PARTIAL: &str = ".partial";

/// Saves an archive in a folder, under its own name.
///
/// # Errors
/// When it is not there, does not come, comes wrong three times, or cannot be written.
pub(super) async fn save(
    repository: &Repository,
    archive: &Archive,
    folder: &Path,
    progress: &mut Progress<'_>,
) -> Result<Saved> {
    let mut tries = repository.tries_up_to(TRIES);
    loop {
        match save_once(repository, archive, folder, progress).await {
            Err(Error::Transient(why)) => {
                tries
                    .failed(&format!("failed to save {}: {why}", archive.archive))
                    .await?
            }
            done => return done,
        }
    }
}

async fn save_once(
    repository: &Repository,
    archive: &Archive,
    folder: &Path,
    progress: &mut Progress<'_>,
) -> Result<Saved> {
    let (head, sum) = promised(repository, archive).await?;
    let name = archive.archive.file_name();
    let place = Place {
        target: folder.join(name),
        partial: partial_of(folder, name, &head),
    };
    let (begun, size, wanted) = (place.clone(), head.size, sum.clone());
    let found = blocking(move || look(&begun, size, wanted.as_ref())).await?;
    let Found::Partial { length } = found else {
        return Ok(Saved::Kept);
    };
    progress.begins(head.size, length);
    let (feeder, reader) = pipe();
    let download = Download::new(repository, archive.archive.as_str(), head, length);
    let writing = blocking(move || write(&place, length, reader, sum.as_ref()));
    let (fed, written) = tokio::join!(feeder.feed(download, progress), writing);
    fed?;
    written?;
    progress.ends();
    Ok(Saved::Written)
}

/// Writes a small text, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub(super) async fn save_text(folder: &Path, name: &str, text: String) -> Result<Saved> {
    let target = folder.join(name);
    let partial = folder.join(format!(".{name}{PARTIAL}"));
    blocking(move || {
        let is_file = fs::symlink_metadata(&target).is_ok_and(|found| found.is_file());
        if is_file && fs::read(&target).is_ok_and(|found| found == text.as_bytes()) {
            return Ok(Saved::Kept);
        }
        make_folder(&target)?;
        let file = |error| Error::file("write", &partial, error);
        let mut new = File::create(&partial).map_err(file)?;
        new.write_all(text.as_bytes()).map_err(file)?;
        put_in_place(&new, &partial, &target)?;
        Ok(Saved::Written)
    })
    .await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::Permanent(format!("failed to work with files: {error}"))),
    }
}

/// Where a file is to be, and where it is while it is written.
#[derive(Clone)]
struct Place {
    target: PathBuf,
    partial: Option<PathBuf>,
}

impl Place {
    /// Without a name for this very version a download cannot be taken up later.
    fn writing(&self) -> PathBuf {
        self.partial.clone().unwrap_or_else(|| {
            let name = self.target.file_name().unwrap_or_default().to_string_lossy();
            self.target.with_file_name(format!(".{name}{PARTIAL}"))
        })
    }
}

/// The name says which version of which file it is a part of.
fn partial_of(folder: &Path, name: &str, head: &Head) -> Option<PathBuf> {
    let version = api::names::digest(&format!("{} {}", head.validator.as_ref()?, head.size));
    Some(folder.join(format!(".{name}.{}{PARTIAL}", &version[..12])))
}

enum Found {
    Whole,
    Partial { length: u64 },
}

/// What is there already. Parts of other versions go.
fn look(place: &Place, size: u64, sum: Option<&Sha256Sum>) -> Result<Found> {
    make_folder(&place.target)?;
    let writing = place.writing();
    let is_whole = is_whole(&place.target, size, sum)?;
    remove_other_partials(
        &place.target,
        (!is_whole && place.partial.is_some()).then_some(writing.as_path()),
    )?;
    if is_whole {
        return Ok(Found::Whole);
    }
    match fs::metadata(&writing) {
        Ok(found) if found.len() <= size => Ok(Found::Partial { length: found.len() }),
        Ok(_) => {
            fs::remove_file(&writing).map_err(|error| Error::file("remove", &writing, error))?;
            Ok(Found::Partial { length: 0 })
        }
        Err(_) => Ok(Found::Partial { length: 0 }),
    }
}

fn is_whole(path: &Path, size: u64, sum: Option<&Sha256Sum>) -> Result<bool> {
    // A link is not followed: on the node it may lead elsewhere than here.
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::file("read", path, error)),
    };
    if !found.is_file() || found.len() != size {
        tracing::warn!(path = %path.display(), bytes = found.len(), size, "a file is not what the repository has: replacing it");
        return Ok(false);
    }
    let Some(sum) = sum else { return Ok(true) };
    let right = File::open(path).and_then(|file| has_sum(file, sum));
    let right = right.map_err(|error| Error::file("read", path, error))?;
    if !right {
        tracing::warn!(path = %path.display(), "a file has another checksum than it should: replacing it");
    }
    Ok(right)
}

fn make_folder(target: &Path) -> Result<()> {
    let folder = target.parent().unwrap_or(target);
    fs::create_dir_all(folder).map_err(|error| Error::file("make folder", folder, error))
}

fn remove_other_partials(target: &Path, keep: Option<&Path>) -> Result<()> {
    let folder = target.parent().unwrap_or(target);
    let begin = format!(".{}.", target.file_name().unwrap_or_default().to_string_lossy());
    let entries = fs::read_dir(folder).map_err(|error| Error::file("read", folder, error))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if name.starts_with(&begin) && name.ends_with(PARTIAL) && keep != Some(path.as_path()) {
            fs::remove_file(&path).map_err(|error| Error::file("remove", &path, error))?;
        }
    }
    Ok(())
}

/// Writes what the reader brings behind what is there already; all of it must be a whole archive.
fn write(place: &Place, length: u64, reader: PipeReader, sum: Option<&Sha256Sum>) -> Result<()> {
    let partial = place.writing();
    let failed = |error| Error::file("write", &partial, error);
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&partial)
        .map_err(failed)?;
    let before = File::open(&partial).map_err(failed)?.take(length);
    let recorded = Recorder {
        inner: reader,
        file: file.try_clone().map_err(failed)?,
    };
    let content = before.chain(recorded);
    let checked = tar_of(content, sum).and_then(|mut tar| io::copy(&mut tar, &mut io::sink()));
    match checked {
        Ok(_) => put_in_place(&file, &partial, &place.target),
        // The download says itself what happened, and what has come is of use later.
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Err(Error::Transient(error.to_string())),
        Err(error) if is_of_file(&error) => Err(failed(error)),
        Err(error) => {
            fs::remove_file(&partial).map_err(|error| Error::file("remove", &partial, error))?;
            Err(Error::Transient(error.to_string()))
        }
    }
}

/// From here on the file is there, whatever happens to the machine.
fn put_in_place(file: &File, partial: &Path, target: &Path) -> Result<()> {
    file.sync_all().map_err(|error| Error::file("write", partial, error))?;
    fs::rename(partial, target).map_err(|error| Error::file("replace", target, error))?;
    let folder = target.parent().unwrap_or(target);
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Error::file("write", folder, error))
}

/// Writes to a file what passes.
struct Recorder<R> {
    inner: R,
    file: File,
}

/// An error of the file, not of its content.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct OfFile(io::Error);

fn is_of_file(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<OfFile>())
}

impl<R: Read> Read for Recorder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        let written = self.file.write_all(&buffer[..length]);
        written.map_err(|error| io::Error::other(OfFile(error)))?;
        Ok(length)
    }
}
