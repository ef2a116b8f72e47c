//! What a release is, read from its ISO alone: is it whole, what is in it, how large is it?

use serde::Serialize;

use crate::{
    bundle::{self, BundleError},
    image_list::{self, ImageListError},
    iso::{Iso, IsoError, Kind, ReadAt},
    release_file::{self, ReleaseFile, ReleaseFileError},
};

/// The operating system.
const ROOTFS: &str = "rootfs.squashfs";

/// What an ISO holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The name of the volume.
    pub volume: String,
    /// Bytes of the image.
    pub size: u64,
    /// `harvester-release.yaml`.
    pub release: ReleaseFile,
    /// Bytes of the operating system's image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_size: Option<u64>,
    /// `bundle/metadata.yaml`, with what it names.
    pub archives: Vec<ArchiveFound>,
    /// Versions whose lists of images are in the image, so that an upgrade from them can clean up.
    pub image_lists: Vec<ListFound>,
    /// What keeps this ISO from upgrading a cluster.
    pub problems: Vec<String>,
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

/// Why a list could not be counted.
#[derive(Debug, thiserror::Error)]
enum ListError {
    #[error(transparent)]
    Iso(#[from] IsoError),
    #[error("/{path} in the image: {source}")]
    List { path: String, source: ImageListError },
}

/// Why the bundle is not known.
#[derive(Debug, thiserror::Error)]
enum NoBundle {
    #[error(transparent)]
    Iso(#[from] IsoError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

/// Reads what an ISO says about itself. What is wrong beyond the release metadata comes back as problems, all at once.
///
/// # Errors
/// When it is not the ISO of a release.
pub fn inspect<S: ReadAt>(iso: &Iso<S>) -> Result<Inspection, InspectError> {
    let text = match iso.text(release_file::PATH, release_file::LARGEST_BYTES) {
        Err(IsoError::NoFile { .. }) => {
            let volume = iso.volume_id().to_owned();
            return Err(InspectError::NoRelease { volume });
        }
        text => text?,
    };
    let release = release_file::parse(&text)?;
    let mut problems = Vec::new();
    let os_size = noted(&mut problems, iso.file(ROOTFS)).map(crate::iso::Content::size);
    let archives = noted(&mut problems, read_bundle(iso)).map(|bundle| {
        let archives = bundle.archives();
        let found = archives.map(|(group, archive)| ArchiveFound {
            group: group.to_owned(),
            size: noted(&mut problems, iso.file(archive.archive.as_str())).map(crate::iso::Content::size),
            archive: archive.archive.to_string(),
            images: noted(&mut problems, count(iso, archive.list.as_str())),
            list: archive.list.to_string(),
        });
        found.collect()
    });
    let mut image_lists = Vec::new();
    if let Ok((_, node)) = iso.tree().find(image_list::ARCHIVE)
        && let Kind::Directory(versions) = &node.kind
    {
        for version in versions {
            if let Some(images) = noted(&mut problems, count(iso, &image_list::path_of(version))) {
                let version = version.clone();
                image_lists.push(ListFound { version, images });
            }
        }
    }
    Ok(Inspection {
        volume: iso.volume_id().to_owned(),
        size: iso.source().size(),
        release,
        os_size,
        archives: archives.unwrap_or_default(),
        image_lists,
        problems,
    })
}

fn read_bundle<S: ReadAt>(iso: &Iso<S>) -> Result<bundle::Bundle, NoBundle> {
    let text = iso.text(bundle::PATH, bundle::LARGEST_BYTES)?;
    Ok(bundle::parse(&text)?)
}

fn count<S: ReadAt>(iso: &Iso<S>, path: &str) -> Result<usize, ListError> {
    let text = iso.text(path, image_list::LARGEST_BYTES)?;
    let images = image_list::parse(&text).map_err(|source| ListError::List {
        path: path.to_owned(),
        source,
    })?;
    Ok(images.len())
}

/// The value, or a problem more.
fn noted<T, E: ToString>(problems: &mut Vec<String>, result: Result<T, E>) -> Option<T> {
    result.map_err(|error| problems.push(error.to_string())).ok()
}
