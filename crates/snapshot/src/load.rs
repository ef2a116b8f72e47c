//! A snapshot from a path, whatever it is: what is in it decides, not its name.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::{
    Snapshot,
    archive::{ArchiveError, Limits},
    bundle, file,
    folder::{self, FolderError},
};

/// What zip files begin with; an empty one begins with the other.
const ZIP: [[u8; 4]; 2] = [*b"PK\x03\x04", *b"PK\x05\x06"];

/// Why a snapshot could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is nothing that can be read.
    #[error("failed to read {}", .path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error(
        "{} is neither a snapshot of `upgrade-toolkit snapshot` nor a support bundle (zip or folder) nor a folder of manifests",
        .path.display()
    )]
    SomethingElse {
        /// The path.
        path: PathBuf,
    },
    /// A snapshot in a file.
    #[error(transparent)]
    File(#[from] file::FileError),
    /// A support bundle.
    #[error(transparent)]
    Bundle(#[from] ArchiveError),
    /// A folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

/// Loads a snapshot from a file of `upgrade-toolkit snapshot`, a support bundle, or a folder of manifests.
///
/// # Errors
/// It is none of these, cannot be read, or is refused.
pub fn load(path: &Path) -> Result<Snapshot, LoadError> {
    let failed = |source| LoadError::Read {
        path: path.to_owned(),
        source,
    };
    if fs::metadata(path).map_err(failed)?.is_dir() {
        return match bundle_folder(path) {
            Some(bundle) => Ok(bundle::load_folder(&bundle, Limits::default())?),
            None => Ok(folder::load(path)?),
        };
    }
    let mut magic = Vec::new();
    let opened = File::open(path).map_err(failed)?;
    opened.take(4).read_to_end(&mut magic).map_err(failed)?;
    if magic == file::MAGIC {
        Ok(file::load(path)?)
    } else if ZIP.iter().any(|zip| magic == zip) {
        Ok(bundle::load_zip(path, Limits::default())?)
    } else {
        Err(LoadError::SomethingElse { path: path.to_owned() })
    }
}

/// The folder of an unpacked bundle: this one, or the only one in it.
fn bundle_folder(path: &Path) -> Option<PathBuf> {
    let is_bundle = |path: &Path| path.join("yamls/cluster").is_dir() || path.join("yamls/namespaced").is_dir();
    if is_bundle(path) {
        return Some(path.to_owned());
    }
    let inner: Vec<PathBuf> = fs::read_dir(path)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    match inner.as_slice() {
        [one] if is_bundle(one) => Some(one.clone()),
        _ => None,
    }
}
