//! Walks all directories of an image once, within limits, into a [`Tree`].

use std::collections::BTreeSet;

use super::{
    Extent, IsoError, ReadAt,
    record::{BadRecord, Record},
    rock_ridge::{self, RockRidge},
    tree::{Content, Kind, Node, Tree, join},
    volume::Volume,
};

/// Entries of all directories. A release has about a thousand.
const MOST_ENTRIES: usize = 100_000;
/// Directories in directories.
const MOST_DEPTH: usize = 64;
/// Bytes of directories and continuation areas together: about a hundred per entry.
const MOST_METADATA_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes of all paths together.
const MOST_PATH_BYTES: usize = 32 * 1024 * 1024;
/// Records never cross a boundary of this many bytes.
const SECTOR: usize = 2048;
const FILE_TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;

/// How much may still be read: images may be made so that directories overlap, and then walking would take for ever.
#[derive(Debug)]
pub(super) struct Budget {
    left: u64,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            left: MOST_METADATA_BYTES,
        }
    }

    /// Takes from it.
    pub(super) fn spend(&mut self, bytes: u64, path: &str) -> Result<(), IsoError> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(IsoError::too_much(path, "its directories have more than 64 MiB")),
        }
    }
}

/// A directory still to be read.
struct Directory {
    path: String,
    depth: usize,
    block: u64,
    size: u64,
}

struct Walk<'a, S: ?Sized> {
    source: &'a S,
    block: u64,
    /// Bytes before the entries of a record; none when the image has no Rock Ridge names.
    skip: Option<usize>,
    budget: Budget,
    seen: BTreeSet<u64>,
    ahead: Vec<Directory>,
    tree: Tree,
    path_bytes: usize,
}

/// Reads all directories.
pub(super) fn read<S: ReadAt + ?Sized>(source: &S, volume: &Volume) -> Result<Tree, IsoError> {
    let mut walk = Walk {
        source,
        block: volume.block,
        skip: None,
        budget: Budget::new(),
        seen: BTreeSet::new(),
        ahead: Vec::new(),
        tree: Tree::default(),
        path_bytes: 0,
    };
    let root = Directory {
        path: String::new(),
        depth: 0,
        block: volume.root_block,
        size: volume.root_size,
    };
    let bytes = walk.bytes(&root)?;
    if let Some(Ok(first)) = records(&bytes).next() {
        walk.skip = rock_ridge::skip(first.system_use);
    }
    walk.ahead.push(root);
    while let Some(directory) = walk.ahead.pop() {
        walk.directory(&directory)?;
    }
    Ok(walk.tree)
}

impl<S: ReadAt + ?Sized> Walk<'_, S> {
    fn directory(&mut self, directory: &Directory) -> Result<(), IsoError> {
        let path = directory.path.as_str();
        if directory.depth > MOST_DEPTH {
            return Err(IsoError::too_much(path, "directories are nested more than 64 deep"));
        }
        if !self.seen.insert(directory.block) {
            return Err(IsoError::damaged(path, "the directory contains itself"));
        }
        let bytes = self.bytes(directory)?;
        let mut names = BTreeSet::new();
        let mut modified = None;
        let mut open: Option<(Vec<u8>, Content)> = None;
        for record in records(&bytes) {
            let record = record.map_err(|BadRecord(what)| IsoError::damaged(path, what))?;
            if record.is_dot() {
                modified = modified.or(record.modified);
                continue;
            }
            if record.is_associated() {
                continue;
            }
            // The extents of a large file are records of one name, one after the other.
            let mut content = match open.take() {
                Some((name, content)) if name == record.name => content,
                Some(_) => return Err(IsoError::damaged(path, "the last extent of a file is missing")),
                None => Content::default(),
            };
            if !record.is_directory() {
                content.push(self.extent(&record, path)?);
                if record.has_more_extents() {
                    open = Some((record.name.to_vec(), content));
                    continue;
                }
            }
            if let Some(name) = self.entry(directory, &record, content)? {
                names.insert(name);
            }
        }
        if open.is_some() {
            return Err(IsoError::damaged(path, "the last extent of a file is missing"));
        }
        let kind = Kind::Directory(names.into_iter().collect());
        self.tree.insert(path.to_owned(), Node { kind, modified });
        Ok(())
    }

    /// Takes in the last record of a file, or that of a directory. Its name, unless it is shown elsewhere.
    fn entry(
        &mut self,
        directory: &Directory,
        record: &Record<'_>,
        content: Content,
    ) -> Result<Option<String>, IsoError> {
        let rock_ridge = match self.skip {
            None => RockRidge::default(),
            Some(skip) => {
                let area = record.system_use.get(skip..).unwrap_or_default();
                rock_ridge::read(self.source, self.block, area, &directory.path, &mut self.budget)?
            }
        };
        if rock_ridge.relocated {
            return Ok(None);
        }
        let name = match &rock_ridge.name {
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => plain_name(record.name),
        };
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(IsoError::damaged(&directory.path, "a name that no file can have"));
        }
        let path = join(&directory.path, &name);
        self.count(&path)?;
        if record.is_directory() || rock_ridge.child.is_some() {
            let (block, size) = match rock_ridge.child {
                Some(block) => (block, self.size_of(block, &path)?),
                None => (record.block(), u64::from(record.size)),
            };
            let depth = directory.depth + 1;
            self.ahead.push(Directory {
                path,
                depth,
                block,
                size,
            });
        } else {
            let kind = match rock_ridge {
                RockRidge { link: Some(target), .. } => Kind::Link(String::from_utf8_lossy(&target).into_owned()),
                RockRidge { transformed: true, .. } => Kind::Other,
                RockRidge { mode: Some(mode), .. } if mode & FILE_TYPE != REGULAR => Kind::Other,
                _ => Kind::File(content),
            };
            let modified = record.modified;
            self.tree.insert(path, Node { kind, modified });
        }
        Ok(Some(name))
    }

    /// Keeps the whole within limits.
    fn count(&mut self, path: &str) -> Result<(), IsoError> {
        if self.tree.contains(path) {
            return Err(IsoError::damaged(path, "two files have the same name"));
        }
        self.path_bytes += path.len();
        if self.tree.len() + self.ahead.len() >= MOST_ENTRIES || self.path_bytes > MOST_PATH_BYTES {
            return Err(IsoError::too_much(path, "there are more than 100,000 files"));
        }
        Ok(())
    }

    /// Where the data of a record is. Data that no image of this size can hold is refused.
    fn extent(&self, record: &Record<'_>, path: &str) -> Result<Extent, IsoError> {
        let extent = Extent {
            offset: record.block() * self.block,
            length: u64::from(record.size),
        };
        if extent.length > 0 && extent.offset + extent.length > self.source.size() {
            return Err(IsoError::damaged(path, "a file in it ends after the image"));
        }
        Ok(extent)
    }

    /// The size of a relocated directory, from its own first record.
    fn size_of(&mut self, block: u64, path: &str) -> Result<u64, IsoError> {
        let sector = Directory {
            path: path.to_owned(),
            depth: 0,
            block,
            size: SECTOR as u64,
        };
        let bytes = self.bytes(&sector)?;
        match records(&bytes).next() {
            Some(Ok(first)) if first.is_dot() => Ok(u64::from(first.size)),
            _ => Err(IsoError::damaged(
                path,
                "the relocated directory is not where it should be",
            )),
        }
    }

    fn bytes(&mut self, directory: &Directory) -> Result<Vec<u8>, IsoError> {
        let (path, offset) = (directory.path.as_str(), directory.block * self.block);
        if offset + directory.size > self.source.size() {
            return Err(IsoError::damaged(path, "the directory ends after the image"));
        }
        self.budget.spend(directory.size, path)?;
        let mut bytes = vec![0; directory.size as usize];
        super::read_exact(self.source, &mut bytes, offset)?;
        Ok(bytes)
    }
}

/// The records of a directory: each begins with its length; where it is zero, the next sector continues.
fn records(bytes: &[u8]) -> impl Iterator<Item = Result<Record<'_>, BadRecord>> {
    bytes.chunks(SECTOR).flat_map(|sector| {
        let mut rest = sector;
        std::iter::from_fn(move || {
            let length = usize::from(*rest.first()?);
            if length == 0 {
                return None;
            }
            let Some((record, after)) = rest.split_at_checked(length) else {
                rest = &[];
                return Some(Err(BadRecord("a directory record crosses a sector")));
            };
            rest = after;
            Some(Record::parse(record))
        })
    })
}

/// Names without Rock Ridge, as Linux shows them: without version, in lower case.
fn plain_name(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name).to_lowercase();
    let name = name.split(';').next().unwrap_or_default();
    name.strip_suffix('.').unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(b"HARVESTE.YAM;1", "harveste.yam")]
    #[case(b"BOOT", "boot")]
    #[case(b"README.;1", "readme")]
    fn names_without_rock_ridge_look_as_in_linux(#[case] raw: &[u8], #[case] name: &str) {
        assert_eq!(plain_name(raw), name);
    }

    #[test]
    fn overlapping_directories_cannot_make_the_walk_endless() {
        let mut budget = Budget::new();
        budget.spend(MOST_METADATA_BYTES, "d").unwrap();
        assert!(matches!(budget.spend(1, "d"), Err(IsoError::TooMuch { .. })));
    }
}
