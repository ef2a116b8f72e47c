//! Any file of the repository on the node, the image of the operating system for one: under its name it is always whole,
//! and what has come of it before is not fetched again.

use std::{
    fs,
    path::{Path, PathBuf},
};

use api::{ProgramWait, names};
use futures::future::BoxFuture;
use release::{
    archive::has_sum,
    bundle::{Promise, Sha256Sum},
};
use serde::{Deserialize, Serialize};
use tokio::{
    fs::{File, OpenOptions},
    io::AsyncWriteExt,
};

use super::{
    download::Download,
    repository::{Head, Repository},
};
use crate::node_run;
use program::{
    error::{Error, Result},
    report::Waiting,
    step::StepContext,
};

/// Records which version of a file is next to it.
const VERSION: &str = "version";
const PARTIAL: &str = "partial";
/// How much may have to be fetched again after a power failure.
const SYNC_EVERY: u64 = 64 << 20;

impl node_run::Repository for Repository {
    fn text<'a>(&'a self, path: &'a str, largest: u64) -> BoxFuture<'a, Result<String>> {
        // Once: the step tries again itself, and shows why.
        Box::pin(self.text_once(path, largest))
    }

    fn save<'a>(&'a self, path: &'a str, to: &'a Path, ctx: StepContext<'a>) -> BoxFuture<'a, Result<()>> {
        Box::pin(save(self, path, to, ctx))
    }

    fn promise<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Promise>>> {
        Box::pin(self.promise_of(path))
    }
}

/// What is known about the file that is being downloaded, next to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// Which version of it.
    version: String,
    /// How much of it is on the disk for certain. What is behind it may be zeros after a power failure, whatever the
    /// length of the file says.
    synced: u64,
}

/// Where the parts are.
struct Place<'a> {
    to: &'a Path,
    partial: PathBuf,
    state: PathBuf,
}

impl Place<'_> {
    fn state(&self) -> State {
        let text = fs::read(&self.state).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// In one move: half a note would be worse than none.
    fn note(&self, state: &State) -> Result<()> {
        let draft = beside(self.to, "draft");
        let text = serde_json::to_vec(state).unwrap_or_default();
        let noted = fs::write(&draft, text).and_then(|()| fs::rename(&draft, &self.state));
        noted.map_err(|error| Error::file("write", &self.state, error))
    }
}

async fn save(repository: &Repository, path: &str, to: &Path, ctx: StepContext<'_>) -> Result<()> {
    let head = repository.head(path).await?;
    let place = Place {
        to,
        partial: beside(to, PARTIAL),
        state: beside(to, VERSION),
    };
    let version = version_of(&head);
    let length = |file: &Path| fs::metadata(file).map(|found| found.len()).ok();
    let known = place.state();
    let is_this_version = known.version == version;
    let sum = repository.sum_of(path).await?.map(|sum| sum.sha256);
    if is_this_version && length(to) == Some(head.size) && is_it(to, sum.as_ref()).await? {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(|error| Error::file("make directory", folder, error))?;
    }
    // Without a name for this very version, what has come before may be of another one.
    let is_resumable = is_this_version && head.validator.is_some() && known.synced <= head.size;
    let there = length(&place.partial).filter(|there| is_resumable && *there >= known.synced);
    let mut state = State { version, synced: 0 };
    if there.is_some() {
        state.synced = known.synced;
    } else {
        // The old file first: next to the new version's record it would count as that version.
        for old in [to, &place.partial] {
            match fs::remove_file(old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::file("remove", old, error));
                }
                _ => {}
            }
        }
        place.note(&state)?;
    }
    let mut file = Partial::open(&place, state).await?;
    let fetched = fetch(repository, path, head, &mut file, ctx).await;
    // Also what has come of a download that failed.
    file.sync().await?;
    fetched?;
    drop(file);
    if !is_it(&place.partial, sum.as_ref()).await? {
        for wrong in [&place.partial, &place.state] {
            fs::remove_file(wrong).map_err(|error| Error::file("remove", wrong, error))?;
        }
        return Err(Error::Refused(format!(
            "{} is refused: its SHA-256 is not {}, which is recorded: it was replaced or damaged",
            repository.url(path),
            sum.as_ref().map(Sha256Sum::as_str).unwrap_or_default()
        )));
    }
    fs::rename(&place.partial, to).map_err(|error| Error::file("replace", to, error))?;
    let folder = to.parent().unwrap_or(to);
    let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Error::file("write", folder, error))
}

/// Whether a file is the recorded one, read completely from the disk; any file is if none is recorded.
async fn is_it(file: &Path, sum: Option<&Sha256Sum>) -> Result<bool> {
    let Some(sum) = sum.cloned() else { return Ok(true) };
    let path = file.to_owned();
    let looking = tokio::task::spawn_blocking(move || fs::File::open(&path).and_then(|file| has_sum(file, &sum)));
    let looked = looking.await.map_err(std::io::Error::other).flatten();
    looked.map_err(|error| Error::file("read", file, error))
}

/// The file while it is written: every so often what has come is made certain, and noted.
struct Partial<'a> {
    place: &'a Place<'a>,
    file: File,
    state: State,
    length: u64,
}

impl<'a> Partial<'a> {
    /// Cuts off what is not certain.
    async fn open(place: &'a Place<'a>, state: State) -> Result<Self> {
        let failed = |error| Error::file("write", &place.partial, error);
        let options = OpenOptions::new().create(true).append(true).open(&place.partial).await;
        let file = options.map_err(failed)?;
        file.set_len(state.synced).await.map_err(failed)?;
        Ok(Self {
            place,
            file,
            length: state.synced,
            state,
        })
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes).await;
        written.map_err(|error| Error::file("write", &self.place.partial, error))?;
        self.length += bytes.len() as u64;
        if self.length - self.state.synced >= SYNC_EVERY {
            self.sync().await?;
        }
        Ok(())
    }

    async fn sync(&mut self) -> Result<()> {
        let failed = |error| Error::file("write", &self.place.partial, error);
        self.file.flush().await.map_err(failed)?;
        self.file.sync_all().await.map_err(failed)?;
        self.state.synced = self.length;
        self.place.note(&self.state)
    }
}

async fn fetch(
    repository: &Repository,
    path: &str,
    head: Head,
    file: &mut Partial<'_>,
    ctx: StepContext<'_>,
) -> Result<()> {
    let size = head.size;
    let mut download = Download::new(repository, path, head, file.length);
    let mut said = None;
    while let Some(bytes) = download.next().await? {
        file.write(&bytes).await?;
        let percent = download.at() * 100 / size.max(1);
        if said.replace(percent) != Some(percent) {
            let waiting = Waiting {
                what: ProgramWait::Download,
                object: format!("File {path}"),
                message: format!("fetching {path}: {percent} % of {} MiB", size >> 20),
            };
            ctx.report.waiting(&[waiting], Some(ctx.deadline));
        }
    }
    Ok(())
}

/// What identifies this version of a file.
fn version_of(head: &Head) -> String {
    names::digest(&format!(
        "{} {}",
        head.validator.as_deref().unwrap_or_default(),
        head.size
    ))
}

fn beside(to: &Path, suffix: &str) -> PathBuf {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    to.with_file_name(format!(".{name}.{suffix}"))
}
