//! A snapshot in a file: JSON, compressed with zstd.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use crate::Snapshot;

/// Above this, a file is no snapshot of ours: a hundred nodes with five thousand pods take a tenth of it.
const LARGEST_BYTES: u64 = 1024 * 1024 * 1024;
/// What zstd files begin with.
pub const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Why a snapshot could not be saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file could not be written.
    #[error("failed to write {}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file could not be read.
    #[error("failed to read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not a snapshot.
    #[error("{} is not a snapshot: save one with `upgrade-toolkit snapshot -o FILE`", .path.display())]
    NotOne {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

/// Saves a snapshot. The file is complete or not there.
///
/// # Errors
/// The file cannot be written.
pub fn save(snapshot: &Snapshot, path: &Path) -> Result<(), FileError> {
    let failed = |source| FileError::Write {
        path: path.to_owned(),
        source,
    };
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let written = write(snapshot, &partial).and_then(|()| std::fs::rename(&partial, path));
    if written.is_err() {
        // Nothing is lost by leaving it.
        let _ = std::fs::remove_file(&partial);
    }
    written.map_err(failed)
}

fn write(snapshot: &Snapshot, path: &Path) -> io::Result<()> {
    let mut encoder = zstd::Encoder::new(BufWriter::new(File::create(path)?), 6)?;
    serde_json::to_writer(&mut encoder, snapshot)?;
    encoder.finish()?.flush()
}

/// Loads a snapshot.
///
/// # Errors
/// The file cannot be read, or is something else.
pub fn load(path: &Path) -> Result<Snapshot, FileError> {
    let failed = |source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    let decoder = zstd::Decoder::new(File::open(path).map_err(failed)?).map_err(failed)?;
    serde_json::from_reader(BufReader::new(decoder.take(LARGEST_BYTES))).map_err(|source| FileError::NotOne {
        path: path.to_owned(),
        source,
    })
}
