//! Reads ISO 9660 images with Rock Ridge names, without mounting them.
//!
//! Opening an image walks its directories once; after that, only files are read. Whatever the bytes are, opening ends
//! in a value or an error, in bounded time and memory.

use std::{fs::File, path::Path, sync::OnceLock};

use sha2::{Digest, Sha256};

mod bytes;
mod error;
mod record;
mod rock_ridge;
mod source;
mod tree;
mod volume;
mod walk;

pub use error::IsoError;
pub use source::{ImageFile, ReadAt};
pub use tree::{Content, Extent, FindError, Kind, Node, Tree};

/// An image: what is in it, and where its bytes are.
#[derive(Debug)]
pub struct Iso<S: ?Sized = ImageFile> {
    volume_id: String,
    fingerprint: String,
    declared: u64,
    tree: Tree,
    manifest: OnceLock<String>,
    source: S,
}

impl Iso {
    /// Opens an image file or a block device that holds one.
    ///
    /// # Errors
    /// When it cannot be read, is something else, is cut off, or is damaged.
    pub fn open(path: &Path) -> Result<Self, IsoError> {
        let file = File::open(path).and_then(ImageFile::new);
        let file = file.map_err(|source| IsoError::Open {
            path: path.to_owned(),
            source,
        })?;
        Self::read(file)
    }
}

impl<S: ReadAt> Iso<S> {
    /// Reads an image from anywhere.
    ///
    /// # Errors
    /// As [`Iso::open`].
    pub fn read(source: S) -> Result<Self, IsoError> {
        let volume = volume::read(&source)?;
        let tree = walk::read(&source, &volume)?;
        let mut hash = Sha256::new();
        hash.update(&volume.descriptor);
        let hash = hash.finalize();
        let fingerprint = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self {
            volume_id: volume.id,
            fingerprint,
            declared: volume.declared,
            tree,
            manifest: OnceLock::new(),
            source,
        })
    }

    /// The name of the volume.
    #[must_use]
    pub fn volume_id(&self) -> &str {
        &self.volume_id
    }

    /// Identifies this image, by names, dates and sizes; the same on every replica that has the same image.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// How many bytes the image says that it has. There may be more behind them.
    #[must_use]
    pub fn declared_size(&self) -> u64 {
        self.declared
    }

    /// The text of its manifest, once it was made: the whole image has to be read for it.
    #[must_use]
    pub fn manifest(&self) -> Option<&str> {
        self.manifest.get().map(String::as_str)
    }

    /// Notes the text of its manifest. The first one counts.
    pub fn note_manifest(&self, text: String) {
        let _ = self.manifest.set(text);
    }

    /// What is in the image.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Where the bytes are.
    #[must_use]
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Finds a file, links followed.
    ///
    /// # Errors
    /// When there is none.
    pub fn file(&self, path: &str) -> Result<&Content, IsoError> {
        let no_file = |why| IsoError::NoFile {
            path: path.to_owned(),
            why,
        };
        match self.tree.find(path) {
            Ok((_, Node { kind, .. })) => match kind {
                Kind::File(content) => Ok(content),
                Kind::Directory(_) => Err(no_file("it is a directory")),
                Kind::Link(_) | Kind::Other => Err(no_file("it is not a file that can be read")),
            },
            Err(FindError::Missing) => Err(no_file("there is nothing of that name")),
            Err(FindError::Outside) => Err(no_file("it leads out of the image")),
            Err(FindError::Endless) => Err(no_file("its symbolic links do not end")),
        }
    }

    /// The bytes of a file, as a stream.
    pub fn reader<'a>(&'a self, content: &'a Content) -> impl std::io::Read + Send + use<'a, S>
    where
        S: Sync,
    {
        FileReader {
            source: &self.source,
            extents: content.extents(),
            done: 0,
        }
    }

    /// Reads a text of at most `limit` bytes.
    ///
    /// # Errors
    /// When there is none, it is larger, or not UTF-8.
    pub fn text(&self, path: &str, limit: u64) -> Result<String, IsoError> {
        let content = self.file(path)?;
        if content.size() > limit {
            return Err(IsoError::TooLarge {
                path: path.to_owned(),
                size: content.size(),
                limit,
            });
        }
        let mut text = Vec::new();
        for extent in content.extents() {
            let mut part = vec![0; extent.length as usize];
            read_exact(&self.source, &mut part, extent.offset)?;
            text.append(&mut part);
        }
        String::from_utf8(text).map_err(|_| IsoError::NotText { path: path.to_owned() })
    }
}

/// Reads the parts of a file one after another.
struct FileReader<'a, S> {
    source: &'a S,
    extents: &'a [Extent],
    /// Bytes of the first one that have been read.
    done: u64,
}

impl<S: ReadAt> std::io::Read for FileReader<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while let Some((extent, rest)) = self.extents.split_first() {
            let left = extent.length.saturating_sub(self.done);
            if left == 0 {
                (self.extents, self.done) = (rest, 0);
                continue;
            }
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let part = buffer.get_mut(..length).unwrap_or_default();
            self.source.read_exact_at(part, extent.offset + self.done)?;
            self.done += length as u64;
            return Ok(length);
        }
        Ok(0)
    }
}

fn read_exact<S: ReadAt + ?Sized>(source: &S, buffer: &mut [u8], offset: u64) -> Result<(), IsoError> {
    source.read_exact_at(buffer, offset).map_err(|error| IsoError::Read {
        offset,
        length: buffer.len() as u64,
        source: error,
    })
}
