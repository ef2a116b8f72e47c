//! Takes single files out of an archive of container images (`docker save`, compressed with zstd), without a runtime.
//!
//! An archive is read twice: once for what is in it, once for the layers of the one image. Layers are read as they
//! come, so that nothing larger than the wanted files is ever kept.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::layer_sum::{self, Found, Hashed, LayerError, LayerSum};

/// Larger than any manifest.
const LARGEST_MANIFEST: u64 = 4 * 1024 * 1024;
/// Of all that may be manifests, together.
const LARGEST_MANIFESTS: u64 = 256 * 1024 * 1024;
const WHITEOUT: &str = ".wh.";

/// Which files of an image are wanted, by the last part of their path.
pub type Wanted = fn(&str) -> bool;

/// Why files could not be taken out.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It could not be read, or is no archive.
    #[error("failed to read {}: {source}", path.display())]
    Read {
        /// The archive.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What it says about its images makes no sense.
    #[error("{} is not an archive of images: {why}", path.display())]
    NoImages {
        /// The archive.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: Option<String>,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
}

#[derive(Deserialize)]
struct Manifest {
    layers: Vec<Descriptor>,
}

/// Takes the wanted files of an image out of an archive, into a folder. The paths of what was written; nothing when the
/// archive does not hold the image.
///
/// # Errors
/// When the archive is damaged or is none, or the files cannot be written.
pub fn extract(archive: &Path, image: &str, wanted: Wanted, into: &Path) -> Result<Option<Vec<PathBuf>>, ArchiveError> {
    let read = |source| ArchiveError::Read {
        path: archive.to_owned(),
        source,
    };
    let catalog = Catalog::read(archive).map_err(read)?;
    let Some(layers) = catalog.layers(image).map_err(|error| ArchiveError::NoImages {
        path: archive.to_owned(),
        why: error.to_string(),
    })?
    else {
        return Ok(None);
    };
    let mut found: Vec<Option<Layer>> = layers.iter().map(|_| None).collect();
    let mut tar = open(archive).map_err(read)?;
    for entry in tar.entries().map_err(read)? {
        let entry = entry.map_err(read)?;
        let name = path_of(&entry);
        let Some(first) = layers.iter().position(|layer| layer.path == name) else {
            continue;
        };
        let drafts = into.join(format!(".layer-{first}"));
        let is_it = |layer: &&LayerSum| layer.path == name;
        let taken = Layer::read(entry, wanted, &drafts).and_then(|(layer, sums)| {
            layers.iter().filter(is_it).try_for_each(|wanted| wanted.check(&sums))?;
            Ok(layer)
        });
        let layer = taken.inspect_err(|_| remove_drafts(into, layers.len())).map_err(read)?;
        for (number, other) in layers.iter().enumerate() {
            if other.path == name {
                found[number] = Some(layer.clone());
            }
        }
    }
    if let Some(missing) = found.iter().position(Option::is_none) {
        remove_drafts(into, layers.len());
        let why = format!("layer {} of {image} is missing", layers[missing].path);
        return Err(ArchiveError::NoImages {
            path: archive.to_owned(),
            why,
        });
    }
    let written = assemble(found.into_iter().flatten(), into).map_err(read)?;
    // Drafts that later layers removed again.
    remove_drafts(into, layers.len());
    Ok(Some(written))
}

fn remove_drafts(into: &Path, layers: usize) {
    for number in 0..layers {
        let _ = std::fs::remove_dir_all(into.join(format!(".layer-{number}")));
    }
}

type Stream = tar::Archive<zstd::Decoder<'static, BufReader<File>>>;

fn open(archive: &Path) -> io::Result<Stream> {
    Ok(tar::Archive::new(zstd::Decoder::new(File::open(archive)?)?))
}

fn path_of<R: Read>(entry: &tar::Entry<'_, R>) -> String {
    let path = entry.path_bytes();
    let path = String::from_utf8_lossy(&path);
    path.trim_start_matches("./").trim_start_matches('/').to_owned()
}

/// What an archive says about itself.
#[derive(Default)]
struct Catalog {
    small: BTreeMap<String, Vec<u8>>,
    links: BTreeMap<String, String>,
}

impl Catalog {
    fn read(archive: &Path) -> io::Result<Self> {
        let mut catalog = Self::default();
        let mut kept = 0;
        for entry in open(archive)?.entries()? {
            let mut entry = entry?;
            let name = path_of(&entry);
            if let Some(target) = entry.link_name()? {
                catalog
                    .links
                    .insert(name.clone(), resolved(&name, &target.to_string_lossy()));
                continue;
            }
            let is_json = name.ends_with(".json") || name.starts_with("blobs/");
            let size = entry.size();
            if is_json && size <= LARGEST_MANIFEST && kept + size <= LARGEST_MANIFESTS {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes)?;
                // Layers can be small too; a manifest begins like JSON.
                if bytes.starts_with(b"{") || bytes.starts_with(b"[") {
                    kept += size;
                    catalog.small.insert(name, bytes);
                }
            }
        }
        Ok(catalog)
    }

    /// An image's layers, lowest first.
    fn layers(&self, image: &str) -> Result<Option<Vec<LayerSum>>, LayerError> {
        let layers = match self.small.get("manifest.json") {
            Some(bytes) => self.saved_layers(bytes, image)?,
            None => match self.small.get("index.json") {
                Some(bytes) => self.index_layers(bytes, image)?,
                None => return Err(LayerError::NoCatalog),
            },
        };
        let follow = |layer: LayerSum| LayerSum {
            path: self.links.get(&layer.path).cloned().unwrap_or(layer.path),
            ..layer
        };
        Ok(layers.map(|layers| layers.into_iter().map(follow).collect()))
    }

    fn saved_layers(&self, bytes: &[u8], image: &str) -> Result<Option<Vec<LayerSum>>, LayerError> {
        let images: Vec<Saved> = serde_json::from_slice(bytes).map_err(LayerError::json("manifest.json"))?;
        let is_it = |saved: &Saved| saved.repo_tags.iter().flatten().any(|tag| same_image(tag, image));
        let Some(saved) = images.into_iter().find(is_it) else {
            return Ok(None);
        };
        let name = saved
            .config
            .ok_or_else(|| LayerError::NoConfiguration(image.to_owned()))?;
        let config = self.small.get(&name).ok_or_else(|| LayerError::Missing(name.clone()))?;
        layer_sum::of_saved(saved.layers, &name, config).map(Some)
    }

    fn index_layers(&self, bytes: &[u8], image: &str) -> Result<Option<Vec<LayerSum>>, LayerError> {
        let index: Index = serde_json::from_slice(bytes).map_err(LayerError::json("index.json"))?;
        let names = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
        let is_it = |descriptor: &&Descriptor| {
            names.iter().any(|name| {
                descriptor
                    .annotations
                    .get(*name)
                    .is_some_and(|found| same_image(found, image))
            })
        };
        let Some(descriptor) = index.manifests.iter().find(is_it) else {
            return Ok(None);
        };
        let mut bytes = self.blob(&descriptor.digest)?;
        // An image of several architectures.
        if let Ok(Index { manifests }) = serde_json::from_slice(bytes)
            && !manifests.is_empty()
        {
            let ours = match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "aarch64" => "arm64",
                other => other,
            };
            let of_ours = |one: &&Descriptor| {
                one.platform
                    .as_ref()
                    .is_some_and(|platform| platform.architecture == ours)
            };
            let one = manifests.iter().find(of_ours).ok_or_else(|| LayerError::Architecture {
                image: image.to_owned(),
                architecture: ours,
            })?;
            bytes = self.blob(&one.digest)?;
        }
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(LayerError::json(image))?;
        let layers = manifest.layers.iter().map(|layer| {
            Ok(LayerSum {
                path: blob_path(&layer.digest),
                wanted: layer_sum::Wanted::Stored(layer_sum::hexadecimal_of(&layer.digest)?),
            })
        });
        layers.collect::<Result<_, LayerError>>().map(Some)
    }

    fn blob(&self, digest: &str) -> Result<&[u8], LayerError> {
        let part = format!("blob {digest}");
        let Some(bytes) = self.small.get(&blob_path(digest)) else {
            return Err(LayerError::Missing(part));
        };
        layer_sum::is_named(bytes, &layer_sum::hexadecimal_of(digest)?, &part)?;
        Ok(bytes)
    }
}

fn blob_path(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

/// Whether two references are of one image. `docker.io` goes without saying.
fn same_image(one: &str, other: &str) -> bool {
    let bare = |reference: &str| {
        let reference = reference.strip_prefix("docker.io/").unwrap_or(reference);
        reference.strip_prefix("library/").unwrap_or(reference).to_owned()
    };
    bare(one) == bare(other)
}

/// Where a link leads, from the root of the archive.
fn resolved(link: &str, target: &str) -> String {
    let folder = link.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// What one layer does to the wanted files.
#[derive(Clone, Default)]
struct Layer {
    /// Where each wanted file of this layer was written.
    files: BTreeMap<String, PathBuf>,
    /// What it removes of the layers below.
    removed: BTreeSet<String>,
}

impl Layer {
    /// Reads a layer to its end: what it has of the wanted files, and what it is.
    fn read(stream: impl Read, wanted: Wanted, drafts: &Path) -> io::Result<(Self, Found)> {
        let mut stored = BufReader::new(Hashed::new(stream));
        // `docker save` writes layers as they are, registries compress them.
        let start = std::io::BufRead::fill_buf(&mut stored)?;
        let (is_gzip, is_zstd) = (
            start.starts_with(&[0x1f, 0x8b]),
            start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]),
        );
        let (layer, unpacked) = if is_gzip {
            Self::read_hashed(flate2::read::GzDecoder::new(&mut stored), wanted, drafts)?
        } else if is_zstd {
            Self::read_hashed(zstd::Decoder::with_buffer(&mut stored)?, wanted, drafts)?
        } else {
            Self::read_hashed(&mut stored, wanted, drafts)?
        };
        io::copy(&mut stored, &mut io::sink())?;
        let stored = stored.into_inner().end()?;
        Ok((layer, Found { stored, unpacked }))
    }

    fn read_hashed(stream: impl Read, wanted: Wanted, drafts: &Path) -> io::Result<(Self, String)> {
        let mut stream = Hashed::new(stream);
        let layer = Self::read_tar(&mut stream, wanted, drafts)?;
        Ok((layer, stream.end()?))
    }

    fn read_tar(stream: impl Read, wanted: Wanted, drafts: &Path) -> io::Result<Self> {
        let mut layer = Self::default();
        for entry in tar::Archive::new(stream).entries()? {
            let mut entry = entry?;
            let path = path_of(&entry);
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
            if let Some(hidden) = name.strip_prefix(WHITEOUT) {
                let gone = if hidden == ".wh..opq" {
                    folder.to_owned()
                } else {
                    join(folder, hidden)
                };
                layer.removed.insert(gone);
            } else if entry.header().entry_type().is_file() && wanted(name) {
                // Names of our own: what stands in an archive never becomes a path.
                std::fs::create_dir_all(drafts)?;
                let draft = drafts.join(layer.files.len().to_string());
                io::copy(&mut entry, &mut File::create(&draft)?)?;
                layer.files.insert(path.clone(), draft);
            }
        }
        Ok(layer)
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

/// Puts the layers on top of each other and gives what is left its place.
fn assemble(layers: impl Iterator<Item = Layer>, into: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    for layer in layers {
        files.retain(|path, _| {
            let is_gone = |gone: &String| gone.is_empty() || path == gone || path.starts_with(&format!("{gone}/"));
            !layer.removed.iter().any(is_gone)
        });
        files.extend(layer.files);
    }
    let mut written = Vec::new();
    for (path, draft) in files {
        let name = path.rsplit('/').next().unwrap_or(&path);
        let target = into.join(name);
        std::fs::rename(&draft, &target)?;
        written.push(target);
    }
    Ok(written)
}

#[cfg(test)]
#[path = "image_archive_tests.rs"]
pub(super) mod tests;
