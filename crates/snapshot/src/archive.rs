//! The files of a support bundle, in a zip or unpacked. Only what is requested is read, never more of it than the limits allow,
//! and a zip that is made to harm is refused as a whole. Nothing is ever written.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use zip::ZipArchive;

use crate::NoAnswer;

/// The folder of a bundle that has the objects of the cluster.
const YAMLS: &str = "yamls/";
/// The file of a bundle that says when it was made.
const METADATA: &str = "metadata.yaml";

/// How much a bundle may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Files in all.
    pub entries: usize,
    /// Bytes of one file that is read.
    pub file_bytes: u64,
    /// Bytes of all files that are read.
    pub total_bytes: u64,
    /// How many times larger a file may be than what is stored of it. YAML of Kubernetes is 10 to 40 times larger.
    pub ratio: u64,
    /// Up to this size, no ratio is suspicious.
    pub small_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 200_000,
            file_bytes: 512 * 1024 * 1024,
            total_bytes: 2 * 1024 * 1024 * 1024,
            ratio: 200,
            small_bytes: 1024 * 1024,
        }
    }
}

/// Why a support bundle was refused.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It could not be read.
    #[error("failed to read {}", .path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no zip, or a part is missing.
    #[error("{} is not a complete zip file; download the support bundle again", .path.display())]
    NotAZip {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<zip::result::ZipError>,
    },
    /// It is a zip or a folder, but not of a support bundle.
    #[error("{} is not a support bundle: it has no folder yamls{hint}", .path.display())]
    NoBundle {
        /// The file.
        path: PathBuf,
        /// What to do.
        hint: String,
    },
    /// It is made in a way that no support bundle is.
    #[error("{} is refused: {why}", .path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// An open bundle.
#[derive(Debug)]
pub(crate) struct Archive {
    path: PathBuf,
    /// Name of the one folder that everything is in; empty when unpacked.
    root: String,
    files: Files,
    limits: Limits,
    read_bytes: u64,
}

#[derive(Debug)]
enum Files {
    Zip(Box<ZipArchive<BufReader<File>>>, BTreeMap<String, usize>),
    Folder(BTreeMap<String, PathBuf>),
}

impl Archive {
    /// Opens a zip.
    pub(crate) fn zip(path: &Path, limits: Limits) -> Result<Self, ArchiveError> {
        let read = |source| ArchiveError::Read {
            path: path.to_owned(),
            source,
        };
        let refused = |why: String| ArchiveError::Refused {
            path: path.to_owned(),
            why,
        };
        let not_a_zip = |source| ArchiveError::NotAZip {
            path: path.to_owned(),
            source: Box::new(source),
        };
        let reader = BufReader::new(File::open(path).map_err(read)?);
        let mut archive = ZipArchive::new(reader).map_err(not_a_zip)?;
        if archive.len() > limits.entries {
            let (found, most) = (archive.len(), limits.entries);
            return Err(refused(format!("it has {found} files, more than {most}")));
        }
        if archive.has_duplicate_names() {
            return Err(refused("it has several files of the same name".to_owned()));
        }
        let mut names = BTreeMap::new();
        let mut inner_zip = None;
        for index in 0..archive.len() {
            let entry = archive.by_index_data(index).map_err(not_a_zip)?;
            let name = entry.name().map_err(not_a_zip)?.into_owned();
            let leads_out = entry.enclosed_name().is_none() || name.starts_with('/') || name.contains('\\');
            if leads_out || name.split('/').any(|part| part == "..") {
                let name = api::quoted::quoted(&name);
                return Err(refused(format!("the name {name} in it leads out of its folder")));
            }
            if entry.is_symlink() {
                let name = api::quoted::quoted(&name);
                return Err(refused(format!("{name} in it is a symbolic link")));
            }
            if entry.encrypted() {
                return Err(refused(
                    "it is encrypted; unpack it first, and name the folder".to_owned(),
                ));
            }
            if name.ends_with(".zip") {
                inner_zip.get_or_insert_with(|| name.clone());
            }
            if !entry.is_dir() {
                names.insert(name, index);
            }
        }
        let root = root(names.keys().map(String::as_str));
        match root.len() {
            0 => {
                let hint = inner_zip.map_or_else(String::new, |name| {
                    format!(
                        "; it has another zip {} in it: unpack that one",
                        api::quoted::quoted(&name)
                    )
                });
                Err(ArchiveError::NoBundle {
                    path: path.to_owned(),
                    hint,
                })
            }
            1 => {
                // Entries that share their data are how a small zip becomes endless.
                if archive.has_overlapping_files().map_err(not_a_zip)? {
                    return Err(refused("files in it overlap".to_owned()));
                }
                let root = root.into_iter().next().unwrap_or_default();
                let below = names
                    .into_iter()
                    .filter_map(|(name, index)| Some((name.strip_prefix(&root)?.to_owned(), index)));
                let below = below.filter(|(name, _)| is_wanted(name)).collect();
                Ok(Self {
                    path: path.to_owned(),
                    root: root.trim_end_matches('/').to_owned(),
                    files: Files::Zip(Box::new(archive), below),
                    limits,
                    read_bytes: 0,
                })
            }
            _ => Err(refused("it has several support bundles; give one".to_owned())),
        }
    }

    /// Opens an unpacked bundle: the folder that has `yamls`, or the one above it.
    pub(crate) fn folder(path: &Path, limits: Limits) -> Result<Self, ArchiveError> {
        let mut files = BTreeMap::new();
        let mut count = 0;
        for name in [YAMLS.trim_end_matches('/'), METADATA] {
            walk(path, &path.join(name), &mut files, &mut count, limits)?;
        }
        Ok(Self {
            path: path.to_owned(),
            root: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            files: Files::Folder(files),
            limits,
            read_bytes: 0,
        })
    }

    /// Name of the one folder that everything is in.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The files that hold objects, and `metadata.yaml`, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        match &self.files {
            Files::Zip(_, names) => names.keys().cloned().collect(),
            Files::Folder(names) => names.keys().cloned().collect(),
        }
    }

    /// The text of a file. What cannot be read is an error of the file; what harms is an error of the bundle.
    pub(crate) fn read(&mut self, name: &str) -> Result<Result<String, NoAnswer>, ArchiveError> {
        let Limits {
            file_bytes,
            total_bytes,
            ratio,
            small_bytes,
            ..
        } = self.limits;
        let mut bytes = Vec::new();
        let (done, stored) = match &mut self.files {
            Files::Zip(archive, names) => {
                let Some(index) = names.get(name) else {
                    return Ok(Err("not in the support bundle".into()));
                };
                let file = match archive.by_index(*index) {
                    Ok(file) => file,
                    Err(error) => return Ok(Err(error.to_string().into())),
                };
                let stored = file.compressed_size();
                let most = file_bytes.min(small_bytes.max(stored.saturating_mul(ratio)));
                (file.take(most + 1).read_to_end(&mut bytes), Some(stored))
            }
            Files::Folder(names) => {
                let Some(path) = names.get(name) else {
                    return Ok(Err("not in the support bundle".into()));
                };
                let read = File::open(path).and_then(|file| file.take(file_bytes + 1).read_to_end(&mut bytes));
                (read, None)
            }
        };
        let length = bytes.len() as u64;
        let refused = |why: String| ArchiveError::Refused {
            path: self.path.clone(),
            why,
        };
        let quoted = api::quoted::quoted(name);
        if length > file_bytes {
            return Err(refused(format!(
                "{quoted} in it is larger than {} MiB",
                file_bytes >> 20
            )));
        }
        if let Some(stored) = stored
            && length > small_bytes
            && length > stored.saturating_mul(ratio)
        {
            return Err(refused(format!(
                "{quoted} in it is more than {ratio} times larger than what is stored of it, as in a zip bomb"
            )));
        }
        self.read_bytes += length;
        if self.read_bytes > total_bytes {
            return Err(refused(format!("its objects are more than {} MiB", total_bytes >> 20)));
        }
        Ok(match done {
            Ok(_) => String::from_utf8(bytes).map_err(|_| "it is not UTF-8".into()),
            Err(error) => Err(error.to_string().into()),
        })
    }
}

fn is_wanted(name: &str) -> bool {
    name == METADATA || (name.starts_with(YAMLS) && name.ends_with(".yaml"))
}

/// What stands before `yamls/`: nothing, or the name of one folder.
fn root<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let before = names.filter_map(|name| {
        let at = name.find(YAMLS)?;
        let before = &name[..at];
        let folders = before.matches('/').count();
        (before.is_empty() || (before.ends_with('/') && folders == 1)).then(|| before.to_owned())
    });
    before.collect()
}

/// The files below a folder. Links are not followed.
fn walk(
    root: &Path,
    path: &Path,
    files: &mut BTreeMap<String, PathBuf>,
    count: &mut usize,
    limits: Limits,
) -> Result<(), ArchiveError> {
    let read = |source| ArchiveError::Read {
        path: path.to_owned(),
        source,
    };
    let refused = |why: String| ArchiveError::Refused {
        path: root.to_owned(),
        why,
    };
    let about = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        about => about.map_err(read)?,
    };
    *count += 1;
    if *count > limits.entries {
        return Err(refused(format!("it has more than {} files", limits.entries)));
    }
    if about.is_symlink() {
        let name = api::quoted::quoted(&path.to_string_lossy());
        return Err(refused(format!("{name} in it is a symbolic link")));
    }
    if about.is_dir() {
        for entry in std::fs::read_dir(path).map_err(read)? {
            walk(root, &entry.map_err(read)?.path(), files, count, limits)?;
        }
    } else if let Ok(below) = path.strip_prefix(root)
        && about.is_file()
    {
        let name = below.to_string_lossy().into_owned();
        if is_wanted(&name) {
            files.insert(name, path.to_owned());
        }
    }
    Ok(())
}
