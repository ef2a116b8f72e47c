//! Any file of the repository on the node, the image of the operating system for one: under its name it is always whole,
//! and what has come of it before is not fetched again.

use std::{fs, path::Path};

use api::names;
use futures::future::BoxFuture;
use tokio::{fs::OpenOptions, io::AsyncWriteExt};

use super::{
    download::Download,
    repository::{Head, Repository},
};
use crate::{
    error::{Error, Result},
    node_run,
    report::Waiting,
    step::Pace,
};

/// Says which version of a file lies beside it.
const VERSION: &str = "version";
const PARTIAL: &str = "partial";

impl node_run::Repository for Repository {
    fn text<'a>(&'a self, path: &'a str, largest: u64) -> BoxFuture<'a, Result<String>> {
        // Once: the step tries again itself, and shows why.
        Box::pin(self.text_once(path, largest))
    }

    fn save<'a>(&'a self, path: &'a str, to: &'a Path, pace: Pace<'a>) -> BoxFuture<'a, Result<()>> {
        Box::pin(save(self, path, to, pace))
    }
}

async fn save(repository: &Repository, path: &str, to: &Path, pace: Pace<'_>) -> Result<()> {
    let head = repository.head(path).await?;
    let (version, partial) = (version_of(&head), beside(to, PARTIAL));
    let has = |file: &Path| fs::metadata(file).map(|found| found.len()).ok();
    let is_this_version = fs::read_to_string(beside(to, VERSION)).is_ok_and(|there| there == version);
    if is_this_version && has(to) == Some(head.size) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(|error| Error::file("make directory", folder, error))?;
    }
    // Without a name for this very version, what has come before may be of another one.
    let resumable =
        is_this_version && head.validator.is_some() && has(&partial).is_some_and(|length| length <= head.size);
    if !resumable {
        // The old file first: beside the new version it would pass for it.
        for old in [to, &partial] {
            match fs::remove_file(old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::file("remove", old, error));
                }
                _ => {}
            }
        }
        fs::write(beside(to, VERSION), &version).map_err(|error| Error::file("write", to, error))?;
    }
    let from = has(&partial).unwrap_or_default();
    fetch(repository, path, head, from, &partial, pace).await?;
    fs::rename(&partial, to).map_err(|error| Error::file("replace", to, error))
}

async fn fetch(
    repository: &Repository,
    path: &str,
    head: Head,
    from: u64,
    partial: &Path,
    pace: Pace<'_>,
) -> Result<()> {
    let failed = |error| Error::file("write", partial, error);
    let size = head.size;
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(partial)
        .await
        .map_err(failed)?;
    let mut download = Download::new(repository, path, head, from);
    let mut said = None;
    while let Some(bytes) = download.next().await? {
        file.write_all(&bytes).await.map_err(failed)?;
        let percent = download.at() * 100 / size.max(1);
        if said.replace(percent) != Some(percent) {
            let waiting = Waiting {
                what: "Download",
                object: format!("File {path}"),
                message: format!("fetching {path}: {percent} % of {} MiB", size >> 20),
            };
            pace.report.waiting(&[waiting], Some(pace.deadline)).await;
        }
    }
    file.flush().await.map_err(failed)?;
    file.sync_all().await.map_err(failed)
}

/// What tells this version of a file from others.
fn version_of(head: &Head) -> String {
    names::digest(&format!(
        "{} {}",
        head.validator.as_deref().unwrap_or_default(),
        head.size
    ))
}

fn beside(to: &Path, suffix: &str) -> std::path::PathBuf {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    to.with_file_name(format!(".{name}.{suffix}"))
}
