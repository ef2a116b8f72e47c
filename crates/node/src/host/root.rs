//! The file system of the node, seen from a container: every path is resolved inside it, as if it were the root.
//!
//! A symbolic link on the node leads where it would lead on the node, never into the container. Files are replaced in
//! one move, so that every reader, also after a crash, sees the old or the new content; a file that already is as
//! wanted is not written. No other program is expected to move directories at the same time.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Permissions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Component, Path, PathBuf},
};

use program::error::{Error, Result};

use super::own_root;

/// More links than this in one path are a loop.
const MOST_LINKS: usize = 40;
/// The permission bits of a mode.
const MODE_BITS: u32 = 0o7777;

/// Whether a file had to be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new or has new content.
    Written,
    /// It was as wanted.
    None,
}

/// The root of the node's file system.
#[derive(Clone, Debug)]
pub struct HostRoot {
    root: PathBuf,
}

impl HostRoot {
    /// The node's root, mounted at `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where the node's root is mounted.
    #[must_use]
    pub fn mounted_at(&self) -> &Path {
        &self.root
    }

    /// Where a path of the node is, seen from here: all links followed, none out of the root.
    ///
    /// # Errors
    /// When links lead in circles, or a directory on the way cannot be read.
    pub fn resolve(&self, path: &str) -> Result<PathBuf> {
        self.follow(steps(Path::new(path)), path)
    }

    /// Follows the steps of `path`, last first.
    fn follow(&self, mut rest: Vec<OsString>, path: &str) -> Result<PathBuf> {
        let failed = |source| Error::file("resolve", path, source);
        let mut real: Vec<OsString> = Vec::new();
        let mut links = 0;
        while let Some(step) = rest.pop() {
            if step == ".." {
                // The parent of the root is the root.
                real.pop();
                continue;
            }
            let at = self.at(&real).join(&step);
            let is_link = match fs::symlink_metadata(&at) {
                Ok(found) => found.file_type().is_symlink(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) => return Err(failed(error)),
            };
            if !is_link {
                real.push(step);
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(failed(io::Error::other("too many symbolic links")));
            }
            let target = fs::read_link(&at).map_err(failed)?;
            if target.is_absolute() {
                real.clear();
            }
            rest.extend(steps(&target));
        }
        Ok(self.at(&real))
    }

    /// Where the name itself is, which may be a link: what is removed is the link. Only ever a name below the root: the
    /// root itself, or a path that leads up, is refused.
    fn entry(&self, path: &str) -> Result<PathBuf> {
        let refused = || {
            Error::file(
                "remove",
                path,
                io::Error::other("not a name below the root of the node"),
            )
        };
        let mut rest = steps(Path::new(path));
        if rest.is_empty() || rest.iter().any(|step| step == "..") {
            return Err(refused());
        }
        let name = rest.remove(0);
        let entry = self.follow(rest, path)?.join(&name);
        // Whatever the above may get wrong: nothing outside is ever removed.
        let is_below = entry
            .strip_prefix(&self.root)
            .is_ok_and(|below| below.components().next().is_some());
        if is_below { Ok(entry) } else { Err(refused()) }
    }

    fn at(&self, real: &[OsString]) -> PathBuf {
        let mut path = self.root.clone();
        path.extend(real);
        path
    }

    /// The content of a file; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        match fs::read(self.resolve(path)?) {
            Ok(content) => Ok(Some(content)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(Error::file("read", path, error)),
        }
    }

    /// The content of a text file; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read or is no text.
    pub fn read_text(&self, path: &str) -> Result<Option<String>> {
        let Some(content) = self.read(path)? else {
            return Ok(None);
        };
        let text = String::from_utf8(content).map_err(|error| Error::file("read", path, io::Error::other(error)))?;
        Ok(Some(text))
    }

    /// Whether there is something of that name.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn exists(&self, path: &str) -> Result<bool> {
        match fs::symlink_metadata(self.resolve(path)?) {
            Ok(_) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(Error::file("look for", path, error)),
        }
    }

    /// The names in a directory, sorted; none when it does not exist.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn names_in(&self, path: &str) -> Result<Vec<String>> {
        let entries = match fs::read_dir(self.resolve(path)?) {
            Ok(entries) => entries,
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            Err(error) => return Err(Error::file("list", path, error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| Error::file("list", path, error))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// Makes a directory and those above it.
    ///
    /// # Errors
    /// When that is not possible.
    pub fn make_dir(&self, path: &str) -> Result<PathBuf> {
        own_root::refuse(&self.root, "make a directory")?;
        let real = self.resolve(path)?;
        fs::create_dir_all(&real).map_err(|error| Error::file("make directory", path, error))?;
        Ok(real)
    }

    /// Makes a file have this content. One that exists keeps its mode and owner; a new one gets `mode`.
    ///
    /// # Errors
    /// When it cannot be written; the file is then as it was.
    pub fn write(&self, path: &str, content: &[u8], mode: u32) -> Result<Change> {
        own_root::refuse(&self.root, "write a file")?;
        let real = self.resolve(path)?;
        let before = match fs::metadata(&real) {
            Ok(metadata) => Some(metadata),
            Err(error) if is_absent(&error) => None,
            Err(error) => return Err(Error::file("write", path, error)),
        };
        if before.is_some() && self.read(path)?.as_deref() == Some(content) {
            return Ok(Change::None);
        }
        let mode = before
            .as_ref()
            .map_or(mode, |before| before.permissions().mode() & MODE_BITS);
        let owner = before.map(|before| (before.uid(), before.gid()));
        replace(&real, content, mode, owner).map_err(|error| Error::file("write", path, error))?;
        tracing::info!(path, "wrote");
        Ok(Change::Written)
    }

    /// Makes sure that there is no such file.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, path: &str) -> Result<Change> {
        own_root::refuse(&self.root, "remove a file")?;
        self.removed(path, fs::remove_file(self.entry(path)?))
    }

    /// Makes sure that there is no such directory.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove_dir(&self, path: &str) -> Result<Change> {
        own_root::refuse(&self.root, "remove a directory")?;
        self.removed(path, fs::remove_dir_all(self.entry(path)?))
    }

    fn removed(&self, path: &str, outcome: io::Result<()>) -> Result<Change> {
        match outcome {
            Ok(()) => {
                tracing::info!(path, "removed");
                Ok(Change::Written)
            }
            Err(error) if is_absent(&error) => Ok(Change::None),
            Err(error) => Err(Error::file("remove", path, error)),
        }
    }

    /// Copies a file of the container to the node.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn copy_in(&self, from: &Path, path: &str, mode: u32) -> Result<()> {
        own_root::refuse(&self.root, "copy a file")?;
        let content = fs::read(from).map_err(|error| Error::file("read", from, error))?;
        self.write(path, &content, mode).map(drop)
    }
}

/// What a path is made of, last first.
fn steps(path: &Path) -> Vec<OsString> {
    let steps = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut steps: Vec<OsString> = steps.collect();
    steps.reverse();
    steps
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Writes a temporary file and renames it: readers see the old or the new content, whatever happens.
fn replace(path: &Path, content: &[u8], mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("not the name of a file"));
    };
    fs::create_dir_all(directory)?;
    let mut beside = OsString::from(".");
    beside.push(name);
    // A fixed name: what a crash left behind is removed by the next attempt. Whatever else is there, a link perhaps, is
    // removed too, and never written through.
    beside.push(OsStr::new(".upgrade-toolkit"));
    let beside = directory.join(beside);
    match fs::remove_file(&beside) {
        Err(error) if !is_absent(&error) => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    if let Some((user, group)) = owner {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (user, group) {
            fchown(&file, Some(user), Some(group))?;
        }
    }
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests;
