//! The blobs of an image archive, hashed while they are streamed: a blob whose name or image says which SHA-256 it has must have that one.
//! containerd takes an archive of `docker save` by what is in it, whatever it is called; so this is ours to verify.
//!
//! Whole archives are verified by the recorded digest. This check finds errors from before it was recorded.

use std::io::{self, Read};

use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

use super::found::{Found, LARGEST_TEXT, clean, wrong};

/// A tar is made of blocks.
const BLOCK: usize = 512;
/// The longest name of an entry, with the rest of its extended header.
const LONGEST_NAME: u64 = 64 * 1024;

/// Passes a tar on, and breaks off where a blob is not what it should be; at the latest before its end.
pub(super) struct Blobs<R> {
    inner: R,
    at: At,
    /// Of the next entry, by an entry of its own.
    name: Option<String>,
    size: Option<u64>,
    found: Found,
}

/// Where in the tar it is.
enum At {
    Header {
        block: Vec<u8>,
    },
    Data {
        entry: Entry,
        left: u64,
        padding: u64,
    },
    /// Behind a block of zeros nothing counts.
    End,
}

/// An entry on its way.
enum Entry {
    Blob {
        name: String,
        hash: Sha256,
        text: Option<Vec<u8>>,
    },
    /// Says what the next one is called.
    LongName(Vec<u8>),
    Extended(Vec<u8>),
    Other,
}

impl<R: Read> Blobs<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            at: At::Header { block: Vec::new() },
            name: None,
            size: None,
            found: Found::default(),
        }
    }

    /// The names of the images that have passed, as far as the archive names them.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        self.found.names()
    }

    fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            bytes = match &mut self.at {
                At::End => return Ok(()),
                At::Header { block } => {
                    let (part, rest) = bytes.split_at(bytes.len().min(BLOCK - block.len()));
                    block.extend_from_slice(part);
                    if block.len() == BLOCK {
                        let block = std::mem::take(block);
                        self.at = self.begin(&block)?;
                        self.end_if_empty()?;
                    }
                    rest
                }
                At::Data { entry, left, padding } => {
                    let of_entry = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    let (part, rest) = bytes.split_at(of_entry);
                    entry.take(part);
                    *left -= part.len() as u64;
                    let skipped = usize::try_from(*padding).unwrap_or(usize::MAX).min(rest.len());
                    if *left == 0 {
                        *padding -= skipped as u64;
                        self.end_if_empty()?;
                        rest.get(skipped..).unwrap_or_default()
                    } else {
                        rest
                    }
                }
            };
        }
        Ok(())
    }

    /// What a header says comes next.
    fn begin(&mut self, block: &[u8]) -> io::Result<At> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(At::End);
        }
        let header = Header::from_byte_slice(block);
        let kind = header.entry_type();
        let is_about_next = matches!(
            kind,
            EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader
        );
        let size = match self.size.take() {
            Some(size) if !is_about_next => size,
            kept => {
                self.size = kept;
                header.entry_size()?
            }
        };
        let own_name = || clean(&String::from_utf8_lossy(&header.path_bytes()));
        let entry = match kind {
            EntryType::GNULongName | EntryType::XHeader if size > LONGEST_NAME => {
                return Err(wrong("a name in the archive is too long"));
            }
            EntryType::GNULongName => Entry::LongName(Vec::new()),
            EntryType::XHeader => Entry::Extended(Vec::new()),
            EntryType::GNULongLink => Entry::Other,
            EntryType::Link | EntryType::Symlink => {
                let name = self.name.take().unwrap_or_else(own_name);
                let target = header.link_name_bytes().unwrap_or_default();
                let target = String::from_utf8_lossy(&target);
                let target = if kind == EntryType::Symlink {
                    resolved(&name, &target)
                } else {
                    clean(&target)
                };
                self.found.links.insert(name, target);
                Entry::Other
            }
            kind if kind.is_file() => {
                let name = self.name.take().unwrap_or_else(own_name);
                let may_be_text = ["blobs/", "sha256:"].iter().any(|start| name.starts_with(start));
                let is_text = size <= LARGEST_TEXT && (may_be_text || name.ends_with(".json"));
                Entry::Blob {
                    name,
                    hash: Sha256::new(),
                    text: is_text.then(Vec::new),
                }
            }
            _ => {
                self.name = None;
                Entry::Other
            }
        };
        Ok(At::Data {
            entry,
            left: size,
            padding: (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64,
        })
    }

    /// Takes an entry in that has come to its end.
    fn end_if_empty(&mut self) -> io::Result<()> {
        let At::Data {
            left: 0, padding: 0, ..
        } = self.at
        else {
            return Ok(());
        };
        let ended = std::mem::replace(&mut self.at, At::Header { block: Vec::new() });
        let At::Data { entry, .. } = ended else { return Ok(()) };
        match entry {
            Entry::Other => {}
            Entry::LongName(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                self.name = Some(clean(text.trim_end_matches('\0')));
            }
            Entry::Extended(bytes) => self.extended(&bytes),
            Entry::Blob { name, hash, text } => {
                let sum: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
                self.found.blob(name, sum, text)?;
            }
        }
        Ok(())
    }

    /// Records of the form `LENGTH KEY=VALUE\n`.
    fn extended(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        for record in text.split('\n') {
            let record = record.split_once(' ').map(|(_, record)| record).unwrap_or_default();
            match record.split_once('=') {
                Some(("path", value)) => self.name = Some(clean(value)),
                Some(("size", value)) => self.size = value.parse().ok(),
                _ => {}
            }
        }
    }
}

impl Entry {
    fn take(&mut self, bytes: &[u8]) {
        match self {
            Self::Blob { hash, text, .. } => {
                hash.update(bytes);
                if let Some(text) = text {
                    text.extend_from_slice(bytes);
                }
            }
            Self::LongName(kept) | Self::Extended(kept) => kept.extend_from_slice(bytes),
            Self::Other => {}
        }
    }
}

impl<R: Read> Read for Blobs<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        if length == 0 && !buffer.is_empty() {
            self.found.images()?;
        }
        self.take(buffer.get(..length).unwrap_or_default())?;
        Ok(length)
    }
}

/// Where a symbolic link leads.
fn resolved(name: &str, target: &str) -> String {
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
#[path = "blobs_tests.rs"]
mod tests;
