//! An archive of logs as a file: written next to its place first, so that a failure leaves what was there.

use std::{
    fs::OpenOptions,
    io::{self, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use jiff::Timestamp;
use logs::{Archive, View};

/// A file besides the logs: its path in the archive, and its content.
pub(in super::super) type Entry = (String, Vec<u8>);

/// Writes an archive, and returns what is said about it. `-` is standard output, where nothing is said.
pub(in super::super) fn write(
    view: View,
    made: Timestamp,
    entries: Vec<Entry>,
    to: &Path,
) -> anyhow::Result<Option<String>> {
    let logs = view.streams().len();
    let archive = entries
        .into_iter()
        .fold(Archive::new(view, made), |archive, (path, content)| {
            archive.with(&path, content)
        });
    if to == Path::new("-") {
        let mut out = archive.write(BufWriter::new(io::stdout().lock()))?;
        out.flush().context("failed to write the archive")?;
        return Ok(None);
    }
    let partial = partial(to);
    let written = write_file(&archive, &partial).and_then(|size| {
        std::fs::rename(&partial, to)?;
        Ok(size)
    });
    if written.is_err() {
        // It is of no use, and what is wrong with the disk is in the error.
        let _ = std::fs::remove_file(&partial);
    }
    let size = written.with_context(|| format!("failed to write {}", to.display()))?;
    Ok(Some(format!(
        "{}: {logs} logs, {} KiB",
        to.display(),
        size.div_ceil(1024)
    )))
}

fn write_file(archive: &Archive, path: &Path) -> anyhow::Result<u64> {
    // Logs are for those who may read them in the cluster.
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let file = archive.write(BufWriter::new(file))?;
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    Ok(file.metadata()?.len())
}

fn partial(to: &Path) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    to.with_file_name(name)
}
