//! Why an image cannot be read, for the user.

use std::{io, path::PathBuf};

/// Why an image, or a file of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum IsoError {
    /// The file cannot be opened.
    #[error("failed to open {}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("failed to read {length} bytes at byte {offset} of the image")]
    Read {
        /// From where.
        offset: u64,
        /// How much.
        length: u64,
        /// Why.
        source: io::Error,
    },
    /// Something else than an ISO 9660 image.
    #[error("not an ISO 9660 image: {0}; give the ISO of a Harvester release")]
    Foreign(&'static str),
    /// The end is missing.
    #[error(
        "the image is truncated: by its volume descriptor it has {declared} bytes, the file has {actual}; download it again"
    )]
    Truncated {
        /// What the volume descriptor says.
        declared: u64,
        /// What there is.
        actual: u64,
    },
    /// The structures contradict the standard or the file.
    #[error("the image is damaged: /{path}: {what}; download it again")]
    Damaged {
        /// Where in the image.
        path: String,
        /// What is wrong.
        what: &'static str,
    },
    /// Correct, perhaps, but more than a release has.
    #[error("the image has too much in it: /{path}: {what}; give the ISO of a Harvester release")]
    TooMuch {
        /// Where in the image.
        path: String,
        /// More of what.
        what: &'static str,
    },
    /// Nothing has that path, or what has it is no file.
    #[error("failed to find the file /{path} in the image: {why}")]
    NoFile {
        /// The path.
        path: String,
        /// Why.
        why: &'static str,
    },
    /// A file that is not what its name promises.
    #[error("/{path} in the image has {size} bytes; a file of its kind has at most {limit}")]
    TooLarge {
        /// Which file.
        path: String,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A file that should be text.
    #[error("/{path} in the image is not UTF-8 text")]
    NotText {
        /// Which file.
        path: String,
    },
}

impl IsoError {
    pub(super) fn damaged(path: &str, what: &'static str) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            what,
        }
    }

    pub(super) fn too_much(path: &str, what: &'static str) -> Self {
        Self::TooMuch {
            path: path.to_owned(),
            what,
        }
    }
}
