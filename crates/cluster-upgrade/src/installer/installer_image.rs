//! The installer image of a release, unpacked into a folder, and its Helm run as a child.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use clock::Clock;
use futures::future::BoxFuture;
use release::bundle::{self, Bundle};
use serde_json::Value;
use tokio::{io::AsyncReadExt, process::Command};

use program::release_files::ReleaseFiles;
use program::{
    error::{Error, Result},
    step::StepContext,
};

use super::{HelmAccount, RancherInstaller, image_archive, secrets::Secrets};

const IMAGE: &str = "rancher/system-agent-installer-rancher";
const HELM: &str = "helm";
/// How long Helm waits for pods; a node that pulls nothing needs a few minutes.
const HELM_WAIT: &str = "20m";
/// How long the program itself may take, should it not keep that.
const LONGEST_RUN: Duration = Duration::from_secs(25 * 60);
/// The end of what Helm says is what went wrong.
const LONGEST_MESSAGE: usize = 2000;

/// Helm and Rancher's chart, from the release's own installer image.
pub struct InstallerImage {
    files: Arc<dyn ReleaseFiles>,
    folder: PathBuf,
    clock: Clock,
    account: Option<HelmAccount>,
}

impl InstallerImage {
    /// Unpacks into `folder`, which is made when it is needed.
    #[must_use]
    pub fn new(files: Arc<dyn ReleaseFiles>, folder: impl Into<PathBuf>, clock: Clock) -> Self {
        Self {
            files,
            folder: folder.into(),
            clock,
            account: None,
        }
    }

    /// Runs Helm as an account of its own; without one it is who this program is.
    #[must_use]
    pub fn as_account(self, account: Option<HelmAccount>) -> Self {
        Self { account, ..self }
    }

    fn unpacked(&self) -> PathBuf {
        self.folder.join("rancher")
    }

    /// Rancher's chart; nothing when it has not been unpacked.
    fn chart(&self) -> Option<PathBuf> {
        let entries = std::fs::read_dir(self.unpacked()).ok()?;
        let mut charts: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        charts.retain(|path| path.file_name().is_some_and(|name| is_chart(&name.to_string_lossy())));
        charts.sort();
        charts.pop()
    }

    async fn unpack(&self, ctx: StepContext<'_>, rancher: &str, bundle: &Bundle) -> Result<()> {
        let image = format!("{IMAGE}:{rancher}");
        let draft = self.folder.join("rancher.new");
        make_empty(&draft)?;
        for archive in bundle.group(bundle::AGENT) {
            let saved = self.files.save(ctx, archive, &self.folder).await?;
            let (from, to, of) = (saved.clone(), draft.clone(), image.clone());
            let extracting = tokio::task::spawn_blocking(move || image_archive::extract(&from, &of, is_wanted, &to));
            let extracted = extracting
                .await
                .map_err(|error| Error::Transient(format!("failed to unpack: {error}")))?;
            // Gigabytes that are not needed any more.
            let _ = std::fs::remove_file(&saved);
            let extracted = extracted.map_err(|error| Error::Permanent(error.to_string()))?;
            if extracted.is_some() {
                return self.keep(&draft, &image);
            }
        }
        Err(Error::Permanent(format!(
            "no archive of the release contains the image {image}"
        )))
    }

    /// Takes the unpacked files into use, when all are there.
    fn keep(&self, draft: &Path, image: &str) -> Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        let helm = draft.join(HELM);
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&helm, executable)
            .map_err(|error| Error::Permanent(format!("the image {image} has no {HELM}: {error}")))?;
        let unpacked = self.unpacked();
        if unpacked.exists() {
            std::fs::remove_dir_all(&unpacked).map_err(|error| Error::file("remove", &unpacked, error))?;
        }
        std::fs::rename(draft, &unpacked).map_err(|error| Error::file("replace", &unpacked, error))?;
        let chart = self.chart();
        chart
            .map(drop)
            .ok_or_else(|| Error::Permanent(format!("the image {image} has no chart of Rancher")))
    }

    async fn helm(&self, arguments: &[&str], secrets: &Secrets) -> Result<()> {
        let Some(account) = &self.account else {
            return self.call_helm(arguments, secrets, None).await;
        };
        let file = self.folder.join("helm-kubeconfig.json");
        write_for_owner(&file, &account.kubeconfig().await?).map_err(|error| Error::file("write", &file, error))?;
        let ended = self.call_helm(arguments, secrets, Some(&file)).await;
        // What is left when this program is killed goes with its pod, and the token soon.
        let _ = std::fs::remove_file(&file);
        ended
    }

    async fn call_helm(&self, arguments: &[&str], secrets: &Secrets, kubeconfig: Option<&Path>) -> Result<()> {
        let helm = self.unpacked().join(HELM);
        let mut child = Command::new(&helm)
            .args(arguments)
            .envs(kubeconfig.map(|file| ("KUBECONFIG", file)))
            .env("HELM_CACHE_HOME", self.folder.join("helm/cache"))
            .env("HELM_CONFIG_HOME", self.folder.join("helm/config"))
            .env("HELM_DATA_HOME", self.folder.join("helm/data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::file("run", &helm, error))?;
        let mut said = Vec::new();
        let pipe = child.stderr.take();
        let running = async {
            if let Some(mut pipe) = pipe {
                // What cannot be read is not worth more than what went wrong.
                let _ = pipe.read_to_end(&mut said).await;
            }
            child.wait().await
        };
        let ended = tokio::select! {
            biased;
            ended = running => ended.map_err(|error| Error::file("run", &helm, error))?,
            () = self.clock.sleep(LONGEST_RUN) => {
                return Err(Error::Transient(format!("helm {} took more than {LONGEST_RUN:?}", arguments.join(" "))));
            }
        };
        if ended.success() {
            return Ok(());
        }
        // Before it is cut: half a secret is one too.
        let said = secrets.mask(&String::from_utf8_lossy(&said));
        let last: Vec<char> = said.trim().chars().rev().take(LONGEST_MESSAGE).collect();
        let last: String = last.into_iter().rev().collect();
        // Helm does not say which failures last. The step looks at the release again, until its deadline.
        Err(Error::Transient(format!(
            "helm {} ended with {ended}: {last}",
            arguments[..2.min(arguments.len())].join(" ")
        )))
    }
}

/// Writes a file that only its owner reads; one that is there goes first, with its mode and whatever it links to.
fn write_for_owner(file: &Path, text: &str) -> std::io::Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let options = std::fs::File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file);
    options?.write_all(text.as_bytes())
}

fn is_chart(name: &str) -> bool {
    name.starts_with("rancher-") && name.ends_with(".tgz")
}

fn is_wanted(name: &str) -> bool {
    name == HELM || is_chart(name)
}

fn make_empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|error| Error::file("remove", folder, error))?;
    }
    std::fs::create_dir_all(folder).map_err(|error| Error::file("make", folder, error))
}

impl RancherInstaller for InstallerImage {
    fn prepare<'a>(&'a self, ctx: StepContext<'a>, rancher: &'a str, bundle: &'a Bundle) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if self.chart().is_some() {
                return Ok(());
            }
            self.unpack(ctx, rancher, bundle).await
        })
    }

    fn upgrade_rancher<'a>(
        &'a self,
        namespace: &'a str,
        release: &'a str,
        values: &'a Value,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let chart = self
                .chart()
                .ok_or_else(|| Error::Permanent("Rancher's chart is not unpacked".to_owned()))?;
            let file = self.folder.join("rancher-values.json");
            // JSON is YAML.
            write_for_owner(&file, &values.to_string()).map_err(|error| Error::file("write", &file, error))?;
            let (chart, file) = (chart.to_string_lossy(), file.to_string_lossy());
            let arguments = [
                "upgrade",
                release,
                &chart,
                "--namespace",
                namespace,
                "--values",
                &file,
                "--wait",
                "--timeout",
                HELM_WAIT,
            ];
            self.helm(&arguments, &Secrets::of(values)).await
        })
    }

    fn roll_back<'a>(&'a self, namespace: &'a str, release: &'a str, revision: i64) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let revision = revision.to_string();
            let arguments = [
                "rollback",
                release,
                &revision,
                "--namespace",
                namespace,
                "--wait",
                "--timeout",
                HELM_WAIT,
            ];
            self.helm(&arguments, &Secrets::default()).await
        })
    }
}

#[cfg(test)]
mod tests;
