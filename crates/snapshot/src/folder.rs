//! A snapshot from a folder of manifests, as `kubectl get -o yaml` or `-o json` writes them. Names of files do not matter, but for
//! an empty list, which does not say of what it is one. What is not in the folder is not known.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;

use crate::{Kind, Snapshot, Source, manifest};

/// What is said of a list that the folder does not have.
const NOT_IN_IT: &str = "not in the folder";
/// A file that is larger is no manifest.
const LARGEST_BYTES: u64 = 1024 * 1024 * 1024;
/// How deep folders are looked into.
const DEPTH: usize = 8;

/// Why a folder could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Something could not be read.
    #[error("failed to read {}", .path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what its name says.
    #[error("{} has no manifests that can be read", .path.display())]
    NotManifests {
        /// The file.
        path: PathBuf,
        /// Why.
        source: manifest::ManifestError,
    },
    /// An object has fields of the wrong type.
    #[error("{} has an object that could not be read: {what}", .path.display())]
    Object {
        /// The file.
        path: PathBuf,
        /// Kind and name.
        what: String,
        /// Why.
        source: serde_json::Error,
    },
    /// There is nothing that a snapshot has.
    #[error(
        "{} has no objects that checks look at: save some with `kubectl get nodes,pods -A -o yaml > {}/objects.yaml`, or all of \
         them with `upgrade-toolkit snapshot -o FILE`", .path.display(), .path.display()
    )]
    Nothing {
        /// The folder.
        path: PathBuf,
    },
}

/// Loads all files of a folder, and of those in it, whose names end in `.yaml`, `.yml` or `.json`.
///
/// # Errors
/// A file cannot be read, or has something else in it.
pub fn load(path: &Path) -> Result<Snapshot, FolderError> {
    let mut files = Vec::new();
    find(path, DEPTH, &mut files)?;
    files.sort();
    let mut snapshot = Snapshot::unknown(taken_at(&files), NOT_IN_IT);
    snapshot.source = Source::Folder;
    let kinds = Snapshot::kinds();
    for file in &files {
        add_file(&mut snapshot, &kinds, file)?;
    }
    if snapshot.unknown_kinds().len() == kinds.len() {
        return Err(FolderError::Nothing { path: path.to_owned() });
    }
    snapshot.sort();
    Ok(snapshot)
}

fn find(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), FolderError> {
    let failed = |source| FolderError::Read {
        path: path.to_owned(),
        source,
    };
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let path = entry.path();
        // Links are not followed: they may lead in circles.
        if kind.is_dir() && depth > 0 {
            find(&path, depth - 1, files)?;
        } else if kind.is_file()
            && path
                .extension()
                .is_some_and(|end| end == "yaml" || end == "yml" || end == "json")
        {
            files.push(path);
        }
    }
    Ok(())
}

fn add_file(snapshot: &mut Snapshot, kinds: &[Kind], path: &Path) -> Result<(), FolderError> {
    let failed = |source| FolderError::Read {
        path: path.to_owned(),
        source,
    };
    if fs::metadata(path).map_err(failed)?.len() > LARGEST_BYTES {
        return Err(failed(io::Error::other("it is larger than 1 GiB")));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let mut first = None;
    let mut is_empty = true;
    let read = manifest::objects(&text, |object| {
        is_empty = false;
        for kind in kinds.iter().filter(|kind| kind.is_of(&object)) {
            // A list of Secrets without machine plans says that there are none.
            snapshot.set_listed(kind.field);
            if !kind.lists(&object) {
                continue;
            }
            if let Err(source) = snapshot.add(kind.field, object.clone()) {
                let name = api::quoted::quoted(object["metadata"]["name"].as_str().unwrap_or_default());
                first.get_or_insert((format!("{} {name}", kind.kind), source));
            }
        }
    });
    if let Some((what, source)) = first {
        let path = path.to_owned();
        return Err(FolderError::Object { path, what, source });
    }
    read.map_err(|source| FolderError::NotManifests {
        path: path.to_owned(),
        source,
    })?;
    if is_empty {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        for kind in kinds {
            if stem == kind.plural && kind.group != "longhorn.io" || stem == format!("{}.{}", kind.plural, kind.group) {
                snapshot.set_listed(kind.field);
            }
        }
    }
    Ok(())
}

/// When the newest file was written.
fn taken_at(files: &[PathBuf]) -> Timestamp {
    let times = files.iter().filter_map(|file| {
        let modified = fs::metadata(file).and_then(|about| about.modified()).ok()?;
        Timestamp::try_from(modified).ok()
    });
    times.max().unwrap_or(Timestamp::UNIX_EPOCH)
}
