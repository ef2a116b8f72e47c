//! The container runtime through `crictl`, which RKE2 puts on every host.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Stdio,
};

use futures::future::BoxFuture;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::process::Command;

use super::{
    clean::{Runtime, RuntimeImage},
    ctr::{failure, program_of_host, socket_of_host},
};
use crate::host::HostRoot;
use program::error::{Error, Result};

/// Its configuration, on the host.
pub const CONFIG: &str = "var/lib/rancher/rke2/agent/etc/crictl.yaml";
/// Its own default of two seconds is too short for a busy node.
const TIMEOUT: &str = "60s";

/// `crictl` and what it talks to.
#[derive(Clone, Debug)]
pub struct Crictl {
    program: PathBuf,
    socket: PathBuf,
    config: Option<PathBuf>,
}

impl Crictl {
    /// A `crictl`, the socket of its runtime, and its configuration if there is one.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, socket: impl Into<PathBuf>, config: Option<PathBuf>) -> Self {
        Self {
            program: program.into(),
            socket: socket.into(),
            config,
        }
    }

    /// The one of RKE2 on a host.
    ///
    /// # Errors
    /// When the host has none.
    pub fn of_host(root: &Path) -> Result<Self> {
        let config = Some(HostRoot::new(root).resolve(CONFIG)?).filter(|path| path.is_file());
        Ok(Self::new(
            program_of_host(root, "crictl")?,
            socket_of_host(root)?,
            config,
        ))
    }

    /// The same with another socket, if one is given.
    #[must_use]
    pub fn at(mut self, socket: Option<PathBuf>) -> Self {
        self.socket = socket.unwrap_or(self.socket);
        self
    }

    async fn run(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        // The configuration names the socket as the host sees it; here it is elsewhere.
        let endpoint = format!("unix://{}", self.socket.display());
        let config = self.config.as_deref().unwrap_or(Path::new("/dev/null"));
        let output = Command::new(&self.program)
            .arg("--config")
            .arg(config)
            .args(["--runtime-endpoint", &endpoint, "--image-endpoint", &endpoint])
            .args(["--timeout", TIMEOUT])
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await;
        let output = output.map_err(|error| {
            let program = self.program.display();
            Error::Permanent(format!("failed to run {program}: {error}"))
        })?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(failure(&self.program, arguments, output.status, &output.stderr))
        }
    }

    async fn ask<T: DeserializeOwned>(&self, arguments: &[&str]) -> Result<T> {
        let answer = self.run(arguments).await?;
        serde_json::from_slice(&answer).map_err(|error| {
            let arguments = arguments.join(" ");
            Error::Permanent(format!("failed to read what crictl {arguments} says: {error}"))
        })
    }
}

#[derive(Deserialize)]
struct Images {
    #[serde(default)]
    images: Vec<Image>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    id: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    repo_digests: Option<Vec<String>>,
    #[serde(default)]
    pinned: bool,
}

#[derive(Deserialize)]
struct Containers {
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    image: Option<ImageSpec>,
    image_ref: String,
    image_id: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ImageSpec {
    image: String,
}

impl Runtime for Crictl {
    fn images(&self) -> BoxFuture<'_, Result<Vec<RuntimeImage>>> {
        Box::pin(async {
            let answer: Images = self.ask(&["images", "-o", "json"]).await?;
            let images = answer.images.into_iter().map(|image| RuntimeImage {
                id: image.id,
                repo_tags: image.repo_tags.unwrap_or_default(),
                repo_digests: image.repo_digests.unwrap_or_default(),
                pinned: image.pinned,
            });
            Ok(images.collect())
        })
    }

    fn in_use(&self) -> BoxFuture<'_, Result<BTreeSet<String>>> {
        Box::pin(async {
            let answer: Containers = self.ask(&["ps", "-o", "json"]).await?;
            let names = answer.containers.into_iter().flat_map(|container| {
                let image = container.image.unwrap_or_default().image;
                [image, container.image_ref, container.image_id]
            });
            Ok(names.filter(|name| !name.is_empty()).collect())
        })
    }

    fn remove_image<'a>(&'a self, image: &'a RuntimeImage) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.run(&["rmi", &image.id]).await.map(|_| ()) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::images::ctr::{PROGRAMS, SOCKET};

    /// A host whose `crictl` answers as the real one does, and records its calls.
    fn host() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let programs = root.path().join(PROGRAMS);
        fs::create_dir_all(&programs).unwrap();
        let stub = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/stubs/crictl");
        // A file of the host: a link would lead out of it.
        let crictl = programs.join("crictl");
        fs::hard_link(&stub, &crictl)
            .or_else(|_| fs::copy(&stub, &crictl).map(drop))
            .unwrap();
        root
    }

    #[tokio::test]
    async fn what_crictl_says_is_understood() {
        let root = host();
        let crictl = Crictl::of_host(root.path()).unwrap();
        let images = crictl.images().await.unwrap();
        assert_eq!(images[0].repo_tags, ["docker.io/a/x:1"]);
        assert!(images[1].repo_tags.is_empty() && images[1].pinned);
        let in_use = crictl.in_use().await.unwrap();
        assert!(in_use.contains("sha256:aa") && in_use.contains("docker.io/a/x@sha256:00"));
        let bad = RuntimeImage {
            id: "sha256:bad".to_owned(),
            ..RuntimeImage::default()
        };
        let error = crictl.remove_image(&bad).await.unwrap_err();
        assert!(error.to_string().contains("no such image"), "{error}");
    }

    #[tokio::test]
    async fn the_hosts_configuration_is_used_where_there_is_one_but_never_its_socket() {
        let root = host();
        Crictl::of_host(root.path()).unwrap().images().await.unwrap();
        let config = root.path().join(CONFIG);
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        fs::write(
            &config,
            "runtime-endpoint: unix:///run/k3s/containerd/containerd.sock\n",
        )
        .unwrap();
        Crictl::of_host(root.path()).unwrap().images().await.unwrap();
        let asked = fs::read_to_string(root.path().join(PROGRAMS).join("asked")).unwrap();
        let lines: Vec<&str> = asked.lines().collect();
        let endpoint = format!("--runtime-endpoint unix://{}/{SOCKET}", root.path().display());
        assert!(
            lines[0].starts_with("--config /dev/null") && lines[0].contains(&endpoint),
            "{asked}"
        );
        assert!(lines[1].contains(CONFIG) && lines[1].contains(&endpoint), "{asked}");
    }

    #[test]
    fn a_host_without_crictl_is_reported() {
        let root = tempfile::tempdir().unwrap();
        assert!(
            Crictl::of_host(root.path())
                .unwrap_err()
                .to_string()
                .contains("failed to find crictl")
        );
    }
}
