//! What the layers of an image must be: an image names its parts by their SHA-256, and a part that has another one is not
//! its own, whatever it is called.

use std::io::{self, Read};

use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Why the layers of an image cannot be known.
#[derive(Debug, thiserror::Error)]
pub(super) enum LayerError {
    /// The archive does not say what is in it.
    #[error("it has neither manifest.json nor index.json")]
    NoCatalog,
    /// A part of the archive is no JSON of its kind.
    #[error("{part}: {source}")]
    Json { part: String, source: serde_json::Error },
    /// A part is not there.
    #[error("{0} is missing")]
    Missing(String),
    /// A part is another one than its name says.
    #[error("{part} is refused: its SHA-256 is {found}")]
    Refused { part: String, found: String },
    /// An image does not say what it is made of.
    #[error("{0} has no configuration")]
    NoConfiguration(String),
    /// An image and its configuration say different things.
    #[error("{config} has {sums} layers, and its image {layers}")]
    Count { config: String, sums: usize, layers: usize },
    /// No digest that is in use.
    #[error("\"{0}\" is not a SHA-256")]
    NoSha256(String),
    /// An image of other machines.
    #[error("{image} is not for {architecture}")]
    Architecture { image: String, architecture: &'static str },
}

impl LayerError {
    pub(super) fn json(part: &str) -> impl FnOnce(serde_json::Error) -> Self {
        move |source| Self::Json {
            part: part.to_owned(),
            source,
        }
    }
}

/// A layer of an image: where it is in the archive, and what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LayerSum {
    pub(super) path: String,
    pub(super) wanted: Wanted,
}

/// What is known of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The SHA-256 of the layer as it is stored.
    Stored(String),
    /// The SHA-256 of the layer without its compression.
    Unpacked(String),
}

/// What a layer turned out to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) stored: String,
    pub(super) unpacked: String,
}

impl LayerSum {
    /// A layer that is another one than it should be is refused.
    pub(super) fn check(&self, found: &Found) -> io::Result<()> {
        let (wanted, found) = match &self.wanted {
            Wanted::Stored(wanted) => (wanted, &found.stored),
            Wanted::Unpacked(wanted) => (wanted, &found.unpacked),
        };
        if wanted == found {
            return Ok(());
        }
        let why = format!(
            "layer {} is refused: its SHA-256 is {found}, and its image says {wanted}",
            self.path
        );
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    }
}

#[derive(Deserialize)]
struct Config {
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

/// The layers of an image as `docker save` writes it: its configuration, which is named by its own SHA-256, has theirs.
pub(super) fn of_saved(layers: Vec<String>, name: &str, config: &[u8]) -> Result<Vec<LayerSum>, LayerError> {
    let digest = name.rsplit('/').next().unwrap_or(name).trim_end_matches(".json");
    is_named(config, digest, name)?;
    let config: Config = serde_json::from_slice(config).map_err(LayerError::json(name))?;
    let sums = config.rootfs.diff_ids;
    if sums.len() != layers.len() {
        return Err(LayerError::Count {
            config: name.to_owned(),
            sums: sums.len(),
            layers: layers.len(),
        });
    }
    let pairs = layers.into_iter().zip(sums);
    pairs
        .map(|(path, sum)| {
            let wanted = Wanted::Unpacked(hexadecimal_of(&sum)?);
            Ok(LayerSum { path, wanted })
        })
        .collect()
}

/// The digits of a digest. Other algorithms than SHA-256 are not in use.
pub(super) fn hexadecimal_of(digest: &str) -> Result<String, LayerError> {
    let digits = digest.strip_prefix("sha256:").filter(|digits| digits.len() == 64);
    digits
        .map(str::to_owned)
        .ok_or_else(|| LayerError::NoSha256(digest.to_owned()))
}

/// Bytes that do not have a SHA-256 are refused; `part` is what they are.
pub(super) fn is_named(bytes: &[u8], digest: &str, part: &str) -> Result<(), LayerError> {
    let found = text(Sha256::digest(bytes).as_slice());
    if found == digest {
        return Ok(());
    }
    Err(LayerError::Refused {
        part: part.to_owned(),
        found,
    })
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that are counted into a SHA-256 as they pass.
pub(super) struct Hashed<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Hashed<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
        }
    }

    /// Reads the rest, and says what all of it has.
    pub(super) fn end(mut self) -> io::Result<String> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(text(self.hash.finalize().as_slice()))
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hash.update(buffer.get(..length).unwrap_or_default());
        Ok(length)
    }
}
