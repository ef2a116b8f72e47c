//! What a release is, read from its ISO alone: is it whole, what is in it, how large is it?

use std::{
    collections::BTreeSet,
    io::{self, Read},
};

use serde::Serialize;

use crate::{
    archive,
    bundle::{self, Archive, BundleError},
    image_list::{self, ImageListError},
    iso::{Content, Iso, IsoError, Kind, ReadAt},
    manifest::{self, Manifest, ROOTFS, Sha512Sum},
    release_file::{self, ReleaseFile, ReleaseFileError},
    squashfs::{self, SUPERBLOCK, SquashfsError},
};

/// How a file begins that is compressed with zstd.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// No archive of a release has more when it is unpacked.
const LARGEST_ARCHIVE: u64 = 256 << 30;
const BUFFER: usize = 1024 * 1024;

/// What an ISO holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The name of the volume.
    pub volume: String,
    /// Bytes of the image.
    pub size: u64,
    /// The SHA-512 of the image, if it was computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha512: Option<Sha512Sum>,
    /// `harvester-release.yaml`.
    pub release: ReleaseFile,
    /// Bytes of the operating system's image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_size: Option<u64>,
    /// How the operating system's image is compressed, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_compression: Option<&'static str>,
    /// `bundle/metadata.yaml`, with what it names.
    pub archives: Vec<ArchiveFound>,
    /// Versions whose lists of images are in the image, so that an upgrade from them can clean up.
    pub image_lists: Vec<ListFound>,
    /// What keeps this ISO from upgrading a cluster.
    pub problems: Vec<String>,
    /// What was not checked.
    pub not_checked: Vec<String>,
}

/// An archive of images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveFound {
    /// Who needs it: common, rke2, agent.
    pub group: String,
    /// Its path.
    pub archive: String,
    /// Its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The path of its list.
    pub list: String,
    /// Images on its list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<usize>,
}

/// The list of all images of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListFound {
    /// The version, or `current`.
    pub version: String,
    /// Images on it.
    pub images: usize,
}

/// Why an ISO is not that of a release.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// No image, or a file in it cannot be read.
    #[error(transparent)]
    Iso(#[from] IsoError),
    /// An image without `harvester-release.yaml`.
    #[error(
        "this is an ISO image (volume {volume:?}), but not of a Harvester release: it has no {}",
        release_file::PATH
    )]
    NoRelease {
        /// The name of its volume.
        volume: String,
    },
    /// `harvester-release.yaml` is not what it should be.
    #[error(transparent)]
    Release(#[from] ReleaseFileError),
}

/// How much is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Everything: archives are unpacked, and the SHA-512 of the image is computed.
    Whole,
    /// The beginning of each file, and lists.
    Quick,
}

/// Why a part of a release is of no use.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Iso(#[from] IsoError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error("/{path} in the image: {source}")]
    List { path: String, source: ImageListError },
    #[error("/{path} in the image names no image")]
    EmptyList { path: String },
    #[error("/{path} in the image: {source}")]
    System { path: String, source: SquashfsError },
    #[error("/{path} in the image is no archive of images, or is damaged: {source}")]
    Archive { path: String, source: io::Error },
    #[error("/{path} in the image lacks {missing} of the {listed} images on its list, for example {example}")]
    Lacks {
        path: String,
        missing: usize,
        listed: usize,
        example: String,
    },
    #[error("the SHA-512 of the image is {found}, not {expected}: the file is damaged, or of another release")]
    Checksum { found: String, expected: String },
}

/// Reads what an ISO says about itself, and whether it holds that. What is wrong beyond the release metadata comes back as
/// problems, all at once.
///
/// # Errors
/// When it is not the ISO of a release.
pub fn inspect<S: ReadAt + Sync>(
    iso: &Iso<S>,
    depth: Depth,
    checksum: Option<&Sha512Sum>,
) -> Result<Inspection, InspectError> {
    let text = match iso.text(release_file::PATH, release_file::LARGEST_BYTES) {
        Err(IsoError::NoFile { .. }) => {
            let volume = iso.volume_id().to_owned();
            return Err(InspectError::NoRelease { volume });
        }
        text => text?,
    };
    let release = release_file::parse(&text)?;
    let mut problems = Vec::new();
    let os_size = noted(&mut problems, iso.file(ROOTFS)).map(Content::size);
    let os_compression = os_size.and_then(|_| noted(&mut problems, system(iso)));
    let archives = noted(&mut problems, read_bundle(iso)).map(|bundle| {
        let archives = bundle.archives();
        let found = archives.map(|(group, archive)| archive_found(iso, (group, archive), depth, &mut problems));
        found.collect()
    });
    let mut image_lists = Vec::new();
    if let Ok((_, node)) = iso.tree().find(image_list::ARCHIVE)
        && let Kind::Directory(versions) = &node.kind
    {
        for version in versions {
            if let Some(images) = noted(&mut problems, list(iso, &image_list::path_of(version))) {
                let version = version.clone();
                let images = images.len();
                image_lists.push(ListFound { version, images });
            }
        }
    }
    let sha512 = match depth {
        Depth::Whole => noted(&mut problems, sum(iso, checksum)),
        Depth::Quick => None,
    };
    let archives: Vec<ArchiveFound> = archives.unwrap_or_default();
    Ok(Inspection {
        volume: iso.volume_id().to_owned(),
        size: iso.source().size(),
        sha512,
        release,
        os_size,
        os_compression,
        image_lists,
        not_checked: not_checked(depth, checksum.is_some(), &archives),
        archives,
        problems,
    })
}

/// The SHA-512 of an image, which must be the given one. In a volume, zeros may follow the image that has it.
fn sum<S: ReadAt>(iso: &Iso<S>, expected: Option<&Sha512Sum>) -> Result<Sha512Sum, Fault> {
    let mut found = manifest::sha512_of(iso.source())?;
    if let Some(expected) = expected.filter(|expected| **expected != found)
        && Manifest::of(iso, Some(expected))?.iso.sha512 == *expected
    {
        found = expected.clone();
    }
    match expected.filter(|expected| **expected != found) {
        Some(expected) => Err(Fault::Checksum {
            found: found.to_string(),
            expected: expected.to_string(),
        }),
        None => Ok(found),
    }
}

/// What is not checked here.
fn not_checked(depth: Depth, has_checksum: bool, archives: &[ArchiveFound]) -> Vec<String> {
    let mut parts = vec![format!("the files in /{ROOTFS}: only its superblock is read")];
    if depth == Depth::Quick {
        parts.extend(
            archives
                .iter()
                .map(|archive| format!("the images in /{}", archive.archive)),
        );
        parts.push("the SHA-512 of the image".to_owned());
    } else if !has_checksum {
        parts.push("whether the image is the one that was published: compare its SHA-512".to_owned());
    }
    parts
}

/// The compression of the operating system's image.
fn system<S: ReadAt + Sync>(iso: &Iso<S>) -> Result<&'static str, Fault> {
    let content = iso.file(ROOTFS)?;
    let beginning = beginning(iso, content, SUPERBLOCK as u64).map_err(|source| broken(ROOTFS, source))?;
    squashfs::compression_of(&beginning, content.size()).map_err(|source| Fault::System {
        path: ROOTFS.to_owned(),
        source,
    })
}

fn beginning<S: ReadAt + Sync>(iso: &Iso<S>, content: &Content, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    iso.reader(content).take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn broken(path: &str, source: io::Error) -> Fault {
    Fault::Archive {
        path: path.to_owned(),
        source,
    }
}

fn archive_found<S: ReadAt + Sync>(
    iso: &Iso<S>,
    (group, archive): (&str, &Archive),
    depth: Depth,
    problems: &mut Vec<String>,
) -> ArchiveFound {
    let path = archive.archive.as_str();
    let content = noted(problems, iso.file(path));
    let images = noted(problems, list(iso, archive.list.as_str()));
    if let Some(content) = content {
        noted(problems, holds(iso, (path, content), images.as_ref(), depth));
    }
    ArchiveFound {
        group: group.to_owned(),
        size: content.map(Content::size),
        archive: archive.archive.to_string(),
        images: images.map(|images| images.len()),
        list: archive.list.to_string(),
    }
}

/// Whether an archive holds the images on its list.
fn holds<S: ReadAt + Sync>(
    iso: &Iso<S>,
    (path, content): (&str, &Content),
    list: Option<&BTreeSet<String>>,
    depth: Depth,
) -> Result<(), Fault> {
    if depth == Depth::Quick {
        let start = beginning(iso, content, ZSTD.len() as u64).map_err(|source| broken(path, source))?;
        return match start == ZSTD {
            true => Ok(()),
            false => Err(broken(path, io::Error::other("it is not compressed with zstd"))),
        };
    }
    let reader = io::BufReader::with_capacity(BUFFER, iso.reader(content));
    let names = archive::images_of(reader, LARGEST_ARCHIVE).map_err(|source| broken(path, source))?;
    let names: BTreeSet<&str> = names.iter().map(|name| plain(name)).collect();
    let listed = list.into_iter().flatten();
    // Archives do not name what was saved by its digest.
    let mut missing = listed.filter(|image| !image.contains('@') && !names.contains(plain(image)));
    match missing.next() {
        None => Ok(()),
        Some(example) => Err(Fault::Lacks {
            path: path.to_owned(),
            missing: missing.count() + 1,
            listed: list.map_or(0, BTreeSet::len),
            example: example.clone(),
        }),
    }
}

/// A name without the registry and the project that stand for themselves.
fn plain(image: &str) -> &str {
    let image = image.strip_prefix("docker.io/").unwrap_or(image);
    image.strip_prefix("library/").unwrap_or(image)
}

fn read_bundle<S: ReadAt>(iso: &Iso<S>) -> Result<bundle::Bundle, Fault> {
    let text = iso.text(bundle::PATH, bundle::LARGEST_BYTES)?;
    Ok(bundle::parse(&text)?)
}

fn list<S: ReadAt>(iso: &Iso<S>, path: &str) -> Result<BTreeSet<String>, Fault> {
    let text = iso.text(path, image_list::LARGEST_BYTES)?;
    let path = path.to_owned();
    match image_list::parse(&text) {
        Ok(images) if images.is_empty() => Err(Fault::EmptyList { path }),
        Ok(images) => Ok(images),
        Err(source) => Err(Fault::List { path, source }),
    }
}

/// The value, or a problem more.
fn noted<T, E: ToString>(problems: &mut Vec<String>, result: Result<T, E>) -> Option<T> {
    result.map_err(|error| problems.push(error.to_string())).ok()
}
