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
    step::Pace,
};

use super::{RancherInstaller, image_archive, secrets::Secrets};

const IMAGE: &str = "rancher/system-agent-installer-rancher";
const HELM: &str = "helm";
/// How long Helm waits for pods; a node that pulls nothing needs a few minutes.
const HELM_WAIT: &str = "20m";
/// How long the program itself may take, should it not keep that.
const LONGEST_RUN: Duration = Duration::from_secs(25 * 60);
/// The end of what Helm says is what went wrong.
const LAST_WORDS: usize = 2000;

/// Helm and Rancher's chart, from the release's own installer image.
pub struct InstallerImage {
    files: Arc<dyn ReleaseFiles>,
    folder: PathBuf,
    clock: Clock,
}

impl InstallerImage {
    /// Unpacks into `folder`, which is made when it is needed.
    #[must_use]
    pub fn new(files: Arc<dyn ReleaseFiles>, folder: impl Into<PathBuf>, clock: Clock) -> Self {
        Self {
            files,
            folder: folder.into(),
            clock,
        }
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

    async fn unpack(&self, pace: Pace<'_>, rancher: &str, bundle: &Bundle) -> Result<()> {
        let image = format!("{IMAGE}:{rancher}");
        let draft = self.folder.join("rancher.new");
        make_empty(&draft)?;
        for archive in bundle.group(bundle::AGENT) {
            let saved = self.files.save(pace, archive, &self.folder).await?;
            let (from, to, of) = (saved.clone(), draft.clone(), image.clone());
            let extracting = tokio::task::spawn_blocking(move || image_archive::extract(&from, &of, is_wanted, &to));
            let extracted = extracting
                .await
                .map_err(|error| Error::Passing(format!("failed to unpack: {error}")))?;
            // Gigabytes that nobody needs any more.
            let _ = std::fs::remove_file(&saved);
            let extracted = extracted.map_err(|error| Error::Lasting(error.to_string()))?;
            if extracted.is_some() {
                return self.keep(&draft, &image);
            }
        }
        Err(Error::Lasting(format!(
            "no archive of the release holds the image {image}"
        )))
    }

    /// Takes the unpacked files into use, when all are there.
    fn keep(&self, draft: &Path, image: &str) -> Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        let helm = draft.join(HELM);
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&helm, executable)
            .map_err(|error| Error::Lasting(format!("the image {image} has no {HELM}: {error}")))?;
        let unpacked = self.unpacked();
        if unpacked.exists() {
            std::fs::remove_dir_all(&unpacked).map_err(|error| Error::file("remove", &unpacked, error))?;
        }
        std::fs::rename(draft, &unpacked).map_err(|error| Error::file("replace", &unpacked, error))?;
        let chart = self.chart();
        chart
            .map(drop)
            .ok_or_else(|| Error::Lasting(format!("the image {image} has no chart of Rancher")))
    }

    async fn helm(&self, arguments: &[&str], secrets: &Secrets) -> Result<()> {
        let helm = self.unpacked().join(HELM);
        let mut child = Command::new(&helm)
            .args(arguments)
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
                return Err(Error::Passing(format!("helm {} took more than {LONGEST_RUN:?}", arguments.join(" "))));
            }
        };
        if ended.success() {
            return Ok(());
        }
        // Before it is cut: half a secret is one too.
        let said = secrets.mask(&String::from_utf8_lossy(&said));
        let last: Vec<char> = said.trim().chars().rev().take(LAST_WORDS).collect();
        let last: String = last.into_iter().rev().collect();
        // Helm does not say which failures last. The step looks at the release again, until its deadline.
        Err(Error::Passing(format!(
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
    fn prepare<'a>(&'a self, pace: Pace<'a>, rancher: &'a str, bundle: &'a Bundle) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if self.chart().is_some() {
                return Ok(());
            }
            self.unpack(pace, rancher, bundle).await
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
                .ok_or_else(|| Error::Lasting("Rancher's chart is not unpacked".to_owned()))?;
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
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use jiff::Timestamp;
    use release::bundle::Archive;
    use serde_json::json;

    use crate::installer::image_archive::tests::{config_of, tar_of};
    use program::{board::NoBoard, report::Reporter};

    use super::*;

    /// A release whose only archive is a file of this test.
    struct OneArchive(PathBuf);

    impl ReleaseFiles for OneArchive {
        fn text<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<String>> {
            Box::pin(std::future::ready(Err(Error::Lasting(path.to_owned()))))
        }

        fn save<'a>(&'a self, _: Pace<'a>, archive: &'a Archive, folder: &'a Path) -> BoxFuture<'a, Result<PathBuf>> {
            let to = folder.join(archive.archive.file_name());
            let copied = std::fs::copy(&self.0, &to).map(|_| to.clone());
            Box::pin(std::future::ready(
                copied.map_err(|error| Error::file("write", to, error)),
            ))
        }
    }

    /// An installer whose Helm writes down its arguments and ends as told.
    fn installer(folder: &Path, script: &str) -> InstallerImage {
        let layer = tar_of(&[
            ("helm", script.as_bytes()),
            ("rancher-2.14.0.tgz", b"chart"),
            ("run.sh", b""),
        ]);
        let (config, content) = config_of(&[&layer]);
        let tags = [format!("{IMAGE}:v2.14.0")];
        let manifest = json!([{"Config": config, "RepoTags": tags, "Layers": ["l"]}]).to_string();
        let archive = tar_of(&[
            ("l", &layer),
            (&config, &content),
            ("manifest.json", manifest.as_bytes()),
        ]);
        let file = folder.join("release.tar.zst");
        std::fs::write(&file, zstd::encode_all(archive.as_slice(), 1).unwrap()).unwrap();
        InstallerImage::new(Arc::new(OneArchive(file)), folder.join("work"), Clock::system())
    }

    fn bundle_of_one() -> Bundle {
        bundle::parse("images:\n  agent:\n  - list: /a.txt\n    archive: /a.tar.zst\n").unwrap()
    }

    #[tokio::test]
    async fn helm_comes_out_of_the_image_and_is_run() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let script = format!("#!/bin/sh\necho \"$@\" >> {}\n", log.display());
        let installer = installer(folder.path(), &script);
        let report = Reporter::new(Clock::system(), Arc::new(NoBoard));
        let pace = Pace {
            report: &report,
            deadline: Timestamp::MAX,
            limit: Duration::MAX,
        };
        installer.prepare(pace, "v2.14.0", &bundle_of_one()).await.unwrap();
        // What is unpacked is not unpacked again.
        let helm = folder.path().join("work/rancher/helm");
        assert_eq!(std::fs::metadata(&helm).unwrap().permissions().mode() & 0o777, 0o755);
        installer.prepare(pace, "v2.14.0", &Bundle::default()).await.unwrap();

        let values = json!({"image": {"tag": "v2.14.0"}});
        installer
            .upgrade_rancher("cattle-system", "rancher", &values)
            .await
            .unwrap();
        installer.roll_back("cattle-fleet-system", "fleet", 3).await.unwrap();
        let work = folder.path().join("work");
        let work = work.display();
        assert_eq!(
            std::fs::read_to_string(log).unwrap(),
            format!(
                "upgrade rancher {work}/rancher/rancher-2.14.0.tgz --namespace cattle-system --values \
                 {work}/rancher-values.json --wait --timeout 20m\n\
                 rollback fleet 3 --namespace cattle-fleet-system --wait --timeout 20m\n"
            )
        );
        let written = std::fs::read_to_string(folder.path().join("work/rancher-values.json")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), values);
        assert!(!folder.path().join("work/a.tar.zst").exists());
    }

    #[tokio::test]
    async fn what_helm_said_last_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let installer = installer(
            folder.path(),
            "#!/bin/sh\necho 'another operation is in progress' >&2\nexit 1\n",
        );
        let report = Reporter::new(Clock::system(), Arc::new(NoBoard));
        let pace = Pace {
            report: &report,
            deadline: Timestamp::MAX,
            limit: Duration::MAX,
        };
        installer.prepare(pace, "v2.14.0", &bundle_of_one()).await.unwrap();
        let error = installer.roll_back("cattle-system", "rancher", 1).await.unwrap_err();
        assert!(error.passes());
        assert!(
            error.to_string().ends_with("another operation is in progress"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn s15_what_rancher_is_given_is_the_owners_alone_and_helm_does_not_tell_it() {
        let folder = tempfile::tempdir().unwrap();
        // A Helm that repeats what it was given, as some of its errors do.
        let installer = installer(folder.path(), "#!/bin/sh\ncat \"$7\" >&2\nexit 1\n");
        let report = Reporter::new(Clock::system(), Arc::new(NoBoard));
        let pace = Pace {
            report: &report,
            deadline: Timestamp::MAX,
            limit: Duration::MAX,
        };
        installer.prepare(pace, "v2.14.0", &bundle_of_one()).await.unwrap();
        let file = folder.path().join("work/rancher-values.json");
        std::fs::write(&file, "left behind").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let values = json!({"bootstrapPassword": "hunter2-hunter2", "hostname": "rancher.example"});
        let upgraded = installer.upgrade_rancher("cattle-system", "rancher", &values).await;
        let error = upgraded.unwrap_err().to_string();
        assert!(error.contains("rancher.example"), "Helm said nothing: {error}");
        assert!(!error.contains("hunter2"), "{error}");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn an_image_that_is_nowhere_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let installer = installer(folder.path(), "");
        let report = Reporter::new(Clock::system(), Arc::new(NoBoard));
        let pace = Pace {
            report: &report,
            deadline: Timestamp::MAX,
            limit: Duration::MAX,
        };
        let error = installer
            .prepare(pace, "v2.15.0", &bundle_of_one())
            .await
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "no archive of the release holds the image rancher/system-agent-installer-rancher:v2.15.0"
        );
    }
}
