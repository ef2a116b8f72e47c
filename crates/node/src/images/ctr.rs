//! containerd through its own command line: the `ctr` that RKE2 puts on every host.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use futures::future::BoxFuture;
use tokio::process::{Child, Command};

use super::{
    clean::{Runtime, RuntimeImage},
    store::ImageStore,
};
use crate::host::HostRoot;
use program::error::{Error, Result};

/// Where kubelets keep their images in containerd.
pub const NAMESPACE: &str = "k8s.io";
/// The socket of RKE2's containerd, on the host.
pub const SOCKET: &str = "run/k3s/containerd/containerd.sock";
/// The folder of RKE2's programs, on the host: a link to those of the running version.
pub const PROGRAMS: &str = "var/lib/rancher/rke2/bin";

const BUFFER: usize = 256 * 1024;
/// How much of a complaint is of use.
const LONGEST_COMPLAINT: usize = 2000;

/// containerd, as `ctr` reaches it.
#[derive(Clone, Debug)]
pub struct Ctr {
    program: PathBuf,
    address: PathBuf,
}

/// A program of RKE2 on a host whose root is mounted somewhere. Links are followed as the host would.
///
/// # Errors
/// When it is not there.
pub fn program_of_host(root: &Path, name: &str) -> Result<PathBuf> {
    let program = HostRoot::new(root).resolve(&format!("{PROGRAMS}/{name}"))?;
    match std::fs::metadata(&program) {
        Ok(found) if found.is_file() => Ok(program),
        _ => Err(Error::Permanent(format!(
            "failed to find {name}: there is no {}",
            program.display()
        ))),
    }
}

/// The socket of RKE2's containerd on a host.
///
/// # Errors
/// When links on the way to it lead in circles.
pub fn socket_of_host(root: &Path) -> Result<PathBuf> {
    HostRoot::new(root).resolve(SOCKET)
}

impl Ctr {
    /// A `ctr` and the socket of its containerd.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, address: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            address: address.into(),
        }
    }

    /// The containerd of RKE2 on a host.
    ///
    /// # Errors
    /// When the host has no `ctr`.
    pub fn of_host(root: &Path) -> Result<Self> {
        Ok(Self::new(program_of_host(root, "ctr")?, socket_of_host(root)?))
    }

    /// The same with another socket, if one is given.
    #[must_use]
    pub fn at(mut self, socket: Option<PathBuf>) -> Self {
        self.address = socket.unwrap_or(self.address);
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--address")
            .arg(&self.address)
            .args(["--namespace", NAMESPACE])
            .args(arguments)
            .env("CONTAINERD_ADDRESS", &self.address)
            .env("CONTAINERD_NAMESPACE", NAMESPACE)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs it to its end.
    async fn output(&self, arguments: &[&str]) -> Result<String> {
        let output = self
            .command(arguments)
            .output()
            .await
            .map_err(|error| self.no_start(&error))?;
        if !output.status.success() {
            return Err(failure(&self.program, arguments, output.status, &output.stderr));
        }
        String::from_utf8(output.stdout).map_err(|_| Error::Permanent("ctr answered with what is no text".to_owned()))
    }

    fn no_start(&self, error: &io::Error) -> Error {
        Error::Permanent(format!("failed to run {}: {error}", self.program.display()))
    }

    async fn import_archive(&self, archive: Box<dyn Read + Send>) -> Result<()> {
        let arguments = ["images", "import", "--no-unpack", "-"];
        let mut command = self.command(&arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().map_err(|error| self.no_start(&error))?;
        let stdin = child.stdin.take().map(tokio::process::ChildStdin::into_owned_fd);
        let (Some(Ok(stdin)), Some(stderr)) = (stdin, child.stderr.take()) else {
            return Err(Error::Transient("failed to talk to ctr".to_owned()));
        };
        let complaint = tokio::spawn(async move {
            let mut text = Vec::new();
            let mut stderr = stderr;
            let _ = tokio::io::AsyncReadExt::read_to_end(&mut stderr, &mut text).await;
            text
        });
        let copied = tokio::task::spawn_blocking(move || copy(archive, File::from(stdin))).await;
        let (broken, unread) = match copied {
            Ok(Copied::All) => (None, None),
            // It ended before it had read everything; it says itself why.
            Ok(Copied::Refused(archive)) => (None, Some(archive)),
            // It must not see an end of what has none.
            Ok(Copied::Broken(error, stdin)) => {
                end(&mut child).await;
                drop(stdin);
                (Some(error.to_string()), None)
            }
            Err(error) => (Some(error.to_string()), None),
        };
        let status = child.wait().await.map_err(|error| self.no_start(&error))?;
        let complaint = complaint.await.unwrap_or_default();
        match (broken, unread) {
            (Some(why), _) => Err(Error::Transient(why)),
            (None, _) if !status.success() => Err(failure(&self.program, &arguments, status, &complaint)),
            (None, None) => Ok(()),
            // It ended before reading everything: the rest is padding, or the content is not what we expect.
            (None, Some(archive)) => read_to_end(archive).await,
        }
    }

    /// All records of containerd: name, what it points to, labels.
    async fn records(&self) -> Result<Vec<Record>> {
        Ok(parse_records(&self.output(&["images", "list"]).await?))
    }
}

async fn end(child: &mut Child) {
    if let Err(error) = child.kill().await {
        tracing::warn!(%error, "failed to end ctr");
    }
}

/// What became of an archive on its way to a program.
enum Copied {
    All,
    /// The program reads no more; this is left.
    Refused(Box<dyn Read + Send>),
    /// The archive broke off; the way to the program is still open.
    Broken(io::Error, File),
}

fn copy(mut archive: Box<dyn Read + Send>, mut stdin: File) -> Copied {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = match archive.read(&mut buffer) {
            Ok(0) => return Copied::All,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Copied::Broken(error, stdin),
        };
        if stdin.write_all(&buffer[..length]).is_err() {
            return Copied::Refused(archive);
        }
    }
}

/// An archive is whole when it can be read to its end.
async fn read_to_end(mut archive: Box<dyn Read + Send>) -> Result<()> {
    let read = tokio::task::spawn_blocking(move || io::copy(&mut archive, &mut io::sink())).await;
    match read {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Error::Transient(error.to_string())),
        Err(error) => Err(Error::Transient(error.to_string())),
    }
}

/// containerd may be restarting, so a retry may help.
pub(super) fn failure(program: &Path, arguments: &[&str], status: ExitStatus, stderr: &[u8]) -> Error {
    let text = String::from_utf8_lossy(stderr);
    let complaint: String = text.trim().chars().take(LONGEST_COMPLAINT).collect();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    Error::Transient(format!(
        "{name} {} ended with {status}: {complaint}",
        arguments.join(" ")
    ))
}

impl ImageStore for Ctr {
    fn list(&self) -> BoxFuture<'_, Result<BTreeSet<String>>> {
        Box::pin(async {
            let names = self.output(&["images", "list", "--quiet"]).await?;
            let names = names.lines().map(str::trim);
            Ok(names
                .filter(|name| !name.is_empty() && !name.starts_with("sha256"))
                .map(str::to_owned)
                .collect())
        })
    }

    fn import(&self, archive: Box<dyn Read + Send>) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.import_archive(archive))
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match self.output(&["images", "remove", name]).await {
                Err(Error::Transient(why)) if !why.contains("not found") => Err(Error::Transient(why)),
                // What is gone is removed.
                Ok(_) | Err(Error::Transient(_)) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }
}

/// One line of `ctr images list`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    name: String,
    digest: String,
    pinned: bool,
}

fn parse_records(table: &str) -> Vec<Record> {
    let rows = table
        .lines()
        .skip(1)
        .map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter_map(|columns| {
        let digest = columns.iter().skip(1).find(|column| column.starts_with("sha256:"))?;
        Some(Record {
            name: (*columns.first()?).to_owned(),
            digest: (*digest).to_owned(),
            pinned: columns.last()?.contains("io.cri-containerd.pinned=pinned"),
        })
    })
    .collect()
}

/// Records that point to the same are one image.
fn group(records: Vec<Record>) -> Vec<RuntimeImage> {
    let mut images: BTreeMap<String, RuntimeImage> = BTreeMap::new();
    for record in records {
        let image = images.entry(record.digest.clone()).or_insert_with(|| RuntimeImage {
            id: record.digest.clone(),
            ..RuntimeImage::default()
        });
        image.pinned |= record.pinned;
        if record.name.starts_with("sha256:") {
            continue;
        }
        if record.name.contains('@') {
            image.repo_digests.push(record.name);
        } else {
            image.repo_tags.push(record.name);
        }
    }
    images.into_values().collect()
}

/// Where there is no `crictl`: an image is removed by all its records.
impl Runtime for Ctr {
    fn images(&self) -> BoxFuture<'_, Result<Vec<RuntimeImage>>> {
        Box::pin(async { Ok(group(self.records().await?)) })
    }

    fn in_use(&self) -> BoxFuture<'_, Result<BTreeSet<String>>> {
        Box::pin(async {
            let containers = self.output(&["containers", "list"]).await?;
            let rows = containers.lines().skip(1);
            Ok(rows
                .filter_map(|row| row.split_whitespace().nth(1))
                .map(str::to_owned)
                .collect())
        })
    }

    fn remove_image<'a>(&'a self, image: &'a RuntimeImage) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let records = self.records().await?;
            let names = records.iter().filter(|record| record.digest == image.id);
            for record in names {
                self.remove(&record.name).await?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_one_image_are_one_image() {
        let table = "REF TYPE DIGEST SIZE PLATFORMS LABELS \n\
            docker.io/a/x:1 application/vnd.docker.distribution.manifest.v2+json sha256:aa 1.2 KiB linux/amd64 io.cri-containerd.image=managed \n\
            docker.io/a/x@sha256:aa application/vnd.docker.distribution.manifest.v2+json sha256:aa 1.2 KiB linux/amd64 io.cri-containerd.image=managed \n\
            sha256:cc application/vnd.docker.distribution.manifest.v2+json sha256:aa 1.2 KiB linux/amd64 io.cri-containerd.image=managed \n\
            docker.io/p/pause:3 application/x sha256:bb 9 B linux/amd64 io.cri-containerd.image=managed,io.cri-containerd.pinned=pinned \n";
        let images = group(parse_records(table));
        assert_eq!(images.len(), 2);
        assert_eq!(images[0].repo_tags, ["docker.io/a/x:1"]);
        assert_eq!(images[0].repo_digests, ["docker.io/a/x@sha256:aa"]);
        assert!(!images[0].pinned && images[1].pinned);
    }

    #[test]
    fn programs_are_found_behind_the_link_of_the_host() {
        let root = tempfile::tempdir().unwrap();
        let error = program_of_host(root.path(), "ctr").unwrap_err();
        assert!(error.to_string().contains("var/lib/rancher/rke2/bin/ctr"), "{error}");
        let rke2 = root.path().join("var/lib/rancher/rke2");
        std::fs::create_dir_all(rke2.join("data/v1/bin")).unwrap();
        std::fs::write(rke2.join("data/v1/bin/ctr"), "").unwrap();
        std::os::unix::fs::symlink("/var/lib/rancher/rke2/data/v1/bin", rke2.join("bin")).unwrap();
        assert_eq!(
            program_of_host(root.path(), "ctr").unwrap(),
            rke2.join("data/v1/bin/ctr")
        );
        std::fs::remove_file(rke2.join("bin")).unwrap();
        std::os::unix::fs::symlink("data/v1/bin", rke2.join("bin")).unwrap();
        assert_eq!(
            program_of_host(root.path(), "ctr").unwrap(),
            rke2.join("data/v1/bin/ctr")
        );
    }

    #[test]
    fn links_anywhere_on_the_way_lead_where_they_lead_on_the_host() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for folder in ["var/lib", "data/rancher/rke2/v1", "data/run/containerd", "run"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        std::fs::write(at("data/rancher/rke2/v1/ctr-1"), "").unwrap();
        for (link, target) in [
            ("var/lib/rancher", "/data/rancher"),
            ("data/rancher/rke2/bin", "/data/rancher/rke2/v1"),
            ("data/rancher/rke2/v1/ctr", "/data/rancher/rke2/v1/ctr-1"),
            ("run/k3s", "/data/run"),
        ] {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        assert_eq!(
            program_of_host(root.path(), "ctr").unwrap(),
            at("data/rancher/rke2/v1/ctr-1")
        );
        assert_eq!(
            socket_of_host(root.path()).unwrap(),
            at("data/run/containerd/containerd.sock")
        );
    }
}
