//! The installer, with an archive and a Helm of these tests.

use std::os::unix::fs::PermissionsExt as _;

use jiff::Timestamp;
use release::bundle::Archive;
use serde_json::json;

use crate::{
    board::NoBoard,
    cluster::installer::image_archive::tests::{config_of, tar_of},
    report::Reporter,
};

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
