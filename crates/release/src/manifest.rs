//! The manifest of a release: the SHA-512 of its ISO, and size and SHA-256 of every file that an upgrade reads.
//!
//! The repository makes it from the image that it serves. A client that knows the SHA-256 of the manifest itself, its root digest,
//! can verify every byte of the release.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256, Sha512};

use crate::{
    bundle::{self, Sha256Sum},
    image_list,
    iso::{Content, Iso, IsoError, Kind, ReadAt},
    release_file, repo,
};

/// What its URL has behind that of the image's root.
pub const SUFFIX: &str = ".manifest";
/// It has some dozen lines.
pub const LARGEST_BYTES: u64 = 4 * 1024 * 1024;
/// The operating system.
pub const ROOTFS: &str = "rootfs.squashfs";

/// What is read at once.
const CHUNK: u64 = 1024 * 1024;
/// Images end with a sector.
const SECTOR: u64 = 2048;
/// How many zeros behind an image are looked at for its end. CDI fills up its volumes by less than that.
const MOST_PADDING: u64 = 1024 * 1024 * 1024;

/// What a release is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The image.
    pub iso: IsoSum,
    /// Its files that an upgrade reads, by path.
    pub files: BTreeMap<String, FileSum>,
}

/// The image as a whole, without the zeros that a volume may have behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsoSum {
    /// Its SHA-512.
    pub sha512: Sha512Sum,
    /// Its bytes.
    pub size: u64,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSum {
    /// Its bytes.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: Sha256Sum,
}

/// A SHA-512, in 128 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha512Sum(String);

impl Sha512Sum {
    /// Its digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Sha512Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Sha512Sum> for String {
    fn from(sum: Sha512Sum) -> Self {
        sum.0
    }
}

/// A text that is no SHA-512.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a SHA-512: it must have 128 hexadecimal digits")]
pub struct NotSha512(pub String);

impl TryFrom<String> for Sha512Sum {
    type Error = NotSha512;

    fn try_from(text: String) -> Result<Self, NotSha512> {
        let digits = text.trim();
        if digits.len() == 128 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Ok(Self(digits.to_ascii_lowercase()))
        } else {
            Err(NotSha512(text))
        }
    }
}

impl std::str::FromStr for Sha512Sum {
    type Err = NotSha512;

    fn from_str(text: &str) -> Result<Self, NotSha512> {
        text.to_owned().try_into()
    }
}

/// Why a text is not the manifest that is wanted.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A manifest, perhaps, but another one: of another release, or changed.
    #[error("its SHA-256 is {found}, and {} is recorded: it is the manifest of another release, or was changed", wanted.as_str())]
    Another {
        /// What came.
        found: String,
        /// The root digest.
        wanted: Sha256Sum,
    },
    /// No manifest.
    #[error("it is no manifest of a release: {0}")]
    Json(#[from] serde_json::Error),
}

impl Manifest {
    /// Makes the manifest of an image, in one pass over it. Where the SHA-512 that the image should have is `given`, the
    /// image ends where it has that, if anywhere: a volume has zeros behind it.
    ///
    /// # Errors
    /// When the image cannot be read.
    pub fn of<S: ReadAt>(iso: &Iso<S>, given: Option<&Sha512Sum>) -> Result<Self, IsoError> {
        let source = iso.source();
        let mut files: Vec<Hashing<'_>> = Vec::new();
        for path in paths(iso) {
            // Missing files are left out: a request for one is refused.
            if let Ok(content) = iso.file(&path) {
                files.push(Hashing::new(path, content));
            }
        }
        let least = end_of_content(source)?.max(iso.declared_size().min(source.size()));
        let mut whole = Sha512::new();
        let mut buffer = vec![0; CHUNK as usize];
        let mut at = 0;
        while at < least {
            let length = CHUNK.min(least - at);
            let chunk = buffer.get_mut(..length as usize).unwrap_or_default();
            read(source, chunk, at)?;
            whole.update(&*chunk);
            for file in &mut files {
                file.take(chunk, at);
            }
            at += length;
        }
        let mut sums = BTreeMap::new();
        for file in files {
            let size = file.content.size();
            let path = file.path.clone();
            let sha256 = file.end(source)?;
            sums.insert(path, FileSum { size, sha256 });
        }
        Ok(Self {
            iso: end(&whole, least, source.size(), given),
            files: sums,
        })
    }

    /// The text that is served: the same for the same image, wherever it is made.
    #[must_use]
    pub fn text(&self) -> String {
        // Nothing in it can fail to be written.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Reads a manifest that must have a root digest.
    ///
    /// # Errors
    /// When it is another one, or none.
    pub fn verified(text: &str, root: &Sha256Sum) -> Result<Self, ManifestError> {
        let found = sha256(text.as_bytes());
        if found != *root {
            return Err(ManifestError::Another {
                found: found.into(),
                wanted: root.clone(),
            });
        }
        Ok(serde_json::from_str(text)?)
    }

    /// Reads a manifest, and returns its root digest.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(text: &str) -> Result<(Self, Sha256Sum), ManifestError> {
        Ok((serde_json::from_str(text)?, sha256(text.as_bytes())))
    }
}

/// Where the manifest of the image at a URL is.
#[must_use]
pub fn url_of(base: &str) -> String {
    format!("{}{SUFFIX}", base.trim_end_matches('/'))
}

/// Its name next to the image's root.
#[must_use]
pub fn file_name() -> String {
    format!("{}{SUFFIX}", repo::PREFIX)
}

/// The SHA-256 of bytes.
#[must_use]
pub fn sha256(bytes: &[u8]) -> Sha256Sum {
    Sha256Sum::of(Sha256::digest(bytes).as_slice())
}

/// What an upgrade reads: the release, the operating system, archives, lists.
fn paths<S: ReadAt>(iso: &Iso<S>) -> Vec<String> {
    let mut paths = vec![
        release_file::PATH.to_owned(),
        bundle::PATH.to_owned(),
        ROOTFS.to_owned(),
    ];
    let bundle = iso.text(bundle::PATH, bundle::LARGEST_BYTES).ok();
    let bundle = bundle.and_then(|text| bundle::parse(&text).ok()).unwrap_or_default();
    for (_, archive) in bundle.archives() {
        paths.push(archive.list.to_string());
        paths.push(archive.archive.to_string());
    }
    if let Ok((_, node)) = iso.tree().find(image_list::ARCHIVE)
        && let Kind::Directory(versions) = &node.kind
    {
        paths.extend(versions.iter().map(|version| image_list::path_of(version)));
    }
    paths.sort();
    paths.dedup();
    paths
}

/// A file on the way through the image.
struct Hashing<'a> {
    path: String,
    content: &'a Content,
    /// Which of its extents comes next, and how much of it has come.
    next: usize,
    done: u64,
    hash: Sha256,
}

impl<'a> Hashing<'a> {
    fn new(path: String, content: &'a Content) -> Self {
        Self {
            path,
            content,
            next: 0,
            done: 0,
            hash: Sha256::new(),
        }
    }

    /// Takes what is its own of a chunk of the image.
    fn take(&mut self, chunk: &[u8], at: u64) {
        let end = at + chunk.len() as u64;
        while let Some(extent) = self.content.extents().get(self.next) {
            let begin = extent.offset + self.done;
            // Behind this chunk, or, where extents do not follow each other, before it.
            if begin >= end || begin < at {
                return;
            }
            let until = end.min(extent.offset + extent.length);
            let part = chunk.get((begin - at) as usize..(until - at) as usize);
            self.hash.update(part.unwrap_or_default());
            self.done += until - begin;
            if self.done < extent.length {
                return;
            }
            (self.next, self.done) = (self.next + 1, 0);
        }
    }

    /// Its SHA-256. A file whose extents do not follow each other is read by itself.
    fn end<S: ReadAt>(self, source: &S) -> Result<Sha256Sum, IsoError> {
        if self.next == self.content.extents().len() {
            return Ok(Sha256Sum::of(self.hash.finalize().as_slice()));
        }
        let mut hash = Sha256::new();
        let mut buffer = vec![0; CHUNK as usize];
        for extent in self.content.extents() {
            let mut done = 0;
            while done < extent.length {
                let length = CHUNK.min(extent.length - done);
                let chunk = buffer.get_mut(..length as usize).unwrap_or_default();
                read(source, chunk, extent.offset + done)?;
                hash.update(&*chunk);
                done += length;
            }
        }
        Ok(Sha256Sum::of(hash.finalize().as_slice()))
    }
}

/// The SHA-512 of all bytes, as `sha512sum` prints it.
pub(crate) fn sha512_of<S: ReadAt>(source: &S) -> Result<Sha512Sum, IsoError> {
    let mut hash = Sha512::new();
    let mut buffer = vec![0; CHUNK as usize];
    let mut at = 0;
    while at < source.size() {
        let length = CHUNK.min(source.size() - at);
        let chunk = buffer.get_mut(..length as usize).unwrap_or_default();
        read(source, chunk, at)?;
        hash.update(&*chunk);
        at += length;
    }
    Ok(Sha512Sum(bundle::hexadecimal(hash.finalize().as_slice())))
}

fn read<S: ReadAt>(source: &S, chunk: &mut [u8], offset: u64) -> Result<(), IsoError> {
    let length = chunk.len() as u64;
    source
        .read_exact_at(chunk, offset)
        .map_err(|source| IsoError::Read { offset, length, source })
}

/// Where the zeros begin that fill the rest, at the end of a sector.
fn end_of_content<S: ReadAt>(source: &S) -> Result<u64, IsoError> {
    let mut buffer = vec![0; CHUNK as usize];
    let mut end = source.size();
    while end > 0 {
        let length = CHUNK.min(end);
        let chunk = buffer.get_mut(..length as usize).unwrap_or_default();
        read(source, chunk, end - length)?;
        if let Some(last) = chunk.iter().rposition(|byte| *byte != 0) {
            let content = end - length + last as u64 + 1;
            return Ok(content.next_multiple_of(SECTOR).min(source.size()));
        }
        end -= length;
    }
    Ok(0)
}

/// The image ends at `least`, or after some of the zeros behind it: there where it has the SHA-512 that it should have.
fn end(whole: &Sha512, least: u64, size: u64, given: Option<&Sha512Sum>) -> IsoSum {
    let sum = |hash: Sha512| Sha512Sum(bundle::hexadecimal(hash.finalize().as_slice()));
    let found = IsoSum {
        sha512: sum(whole.clone()),
        size: least,
    };
    let Some(given) = given else { return found };
    let (mut hash, mut at) = (whole.clone(), least);
    let zeros = [0; SECTOR as usize];
    let last = size.min(least.saturating_add(MOST_PADDING));
    loop {
        let sha512 = sum(hash.clone());
        if sha512 == *given {
            return IsoSum { sha512, size: at };
        }
        if at >= last {
            return found;
        }
        let more = SECTOR.min(last - at);
        hash.update(zeros.get(..more as usize).unwrap_or_default());
        at += more;
    }
}
