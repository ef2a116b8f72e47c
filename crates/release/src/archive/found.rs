//! What is known of an image archive when all of it has passed: its blobs, and the images that they make up.

use std::{collections::BTreeMap, io};

use serde::Deserialize;

/// What is kept of one text, and of all together. The largest release has some hundred images.
pub(super) const LARGEST_TEXT: u64 = 4 * 1024 * 1024;
const ALL_TEXTS: usize = 64 * 1024 * 1024;

/// What has passed.
#[derive(Default)]
pub(super) struct Found {
    /// SHA-256 by name.
    sums: BTreeMap<String, String>,
    /// Small texts by name.
    texts: BTreeMap<String, Vec<u8>>,
    kept: usize,
    pub(super) links: BTreeMap<String, String>,
}

pub(super) fn wrong(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// An image as `docker save` lists it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Vec<String>,
}

/// The images of an archive in the layout of OCI.
#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// The annotation by which containerd and Docker name an image in an index.
const IMAGE_NAME: &str = "io.containerd.image.name";

#[derive(Deserialize)]
struct Config {
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

/// The SHA-256 that a name promises: `blobs/sha256/DIGITS` and `DIGITS.json` by `docker save`, `sha256:DIGITS` and
/// `DIGITS.tar.gz` by tools that save images without a Docker engine.
fn promised(name: &str) -> Option<&str> {
    let digits = name
        .strip_prefix("blobs/sha256/")
        .or_else(|| name.strip_prefix("sha256:"))
        .or_else(|| name.strip_suffix(".json"))
        .or_else(|| name.strip_suffix(".tar.gz"))?;
    let is_digest = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then_some(digits)
}

impl Found {
    pub(super) fn blob(&mut self, name: String, sum: String, text: Option<Vec<u8>>) -> io::Result<()> {
        if let Some(promised) = promised(&name)
            && promised != sum
        {
            return Err(wrong(format!("blob {name} is refused: its SHA-256 is {sum}")));
        }
        if let Some(text) = text.filter(|text| text.starts_with(b"{") || text.starts_with(b"[")) {
            self.kept += text.len();
            if self.kept > ALL_TEXTS {
                return Err(wrong("the archive has too many texts to be one of a release"));
            }
            self.texts.insert(name.clone(), text);
        }
        self.sums.insert(name, sum);
        Ok(())
    }

    /// The names of the images that have passed.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        if let Some(list) = self.texts.get("manifest.json") {
            let images = saved(list)?.into_iter();
            return Ok(images.flat_map(|image| image.repo_tags.unwrap_or_default()).collect());
        }
        let Some(index) = self.texts.get("index.json") else {
            return Err(wrong(
                "it has neither a manifest.json nor an index.json, so it is no archive of images",
            ));
        };
        let index: Index = serde_json::from_slice(index).map_err(|error| wrong(format!("index.json: {error}")))?;
        let names = index
            .manifests
            .into_iter()
            .map(|mut one| one.annotations.remove(IMAGE_NAME));
        Ok(names.flatten().collect())
    }

    /// All has passed: images must be made of their own layers. An archive in the layout of OCI names all parts by digest.
    pub(super) fn images(&self) -> io::Result<()> {
        let Some(list) = self.texts.get("manifest.json") else {
            return Ok(());
        };
        saved(list)?.iter().try_for_each(|image| self.image(image))
    }

    fn image(&self, image: &Saved) -> io::Result<()> {
        let name = clean(&image.config);
        let config = self
            .texts
            .get(&name)
            .ok_or_else(|| wrong(format!("{name} is missing")))?;
        if promised(&name).is_none() {
            return Err(wrong(format!(
                "{name} is refused: a configuration is named by its SHA-256"
            )));
        }
        let config: Config = serde_json::from_slice(config).map_err(|error| wrong(format!("{name}: {error}")))?;
        let sums = &config.rootfs.diff_ids;
        if sums.len() != image.layers.len() {
            let (of_config, listed) = (sums.len(), image.layers.len());
            return Err(wrong(format!("{name} has {of_config} layers, and its image {listed}")));
        }
        for (layer, sum) in image.layers.iter().zip(sums) {
            let layer = clean(layer);
            let place = self.links.get(&layer).unwrap_or(&layer);
            let found = self
                .sums
                .get(place)
                .ok_or_else(|| wrong(format!("layer {layer} is missing")))?;
            // One that its own name promises has been verified; compressed, it has another SHA-256 than without.
            let is_right = promised(place).is_some() || sum.strip_prefix("sha256:") == Some(found);
            if !is_right {
                return Err(wrong(format!(
                    "layer {layer} is refused: its SHA-256 is {found}, and its image says {sum}"
                )));
            }
        }
        Ok(())
    }
}

fn saved(list: &[u8]) -> io::Result<Vec<Saved>> {
    serde_json::from_slice(list).map_err(|error| wrong(format!("manifest.json: {error}")))
}

/// A name without what means nothing in it.
pub(super) fn clean(name: &str) -> String {
    let parts = name.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.collect::<Vec<_>>().join("/")
}
