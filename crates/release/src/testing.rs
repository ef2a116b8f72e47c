//! Images for tests: builds them from directories, with `xorriso`, as releases are built.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot build its image fails here"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// `harvester-release.yaml` of the sample release.
pub const SAMPLE_RELEASE: &str = "harvester: v1.8.0\nharvesterChart: 1.8.0\nos: Harvester v1.8.0\n\
    osImage: rancher/harvester-os:v1.8.0\nkubernetes: v1.35.2+rke2r1\nrancher: v2.14.0\n\
    monitoringChart: 108.0.2+up77.9.1-rancher.11\nloggingChart: 108.0.1+up4.10.0-rancher.13\n\
    loggingChartHarvesterEventRouter: rancher/harvester-eventrouter:v0.3.3\nkubevirt: 1.7.0-150700.3.16.2\n\
    minUpgradableVersion: 'v1.7.0'\nrancherDependencies:\n  fleet:\n    chart: 108.0.0+up0.14.0\n    app: 0.14.0\n";

/// `bundle/metadata.yaml` of the sample release.
pub const SAMPLE_BUNDLE: &str = "images:\n  common:\n  - list: /harvester/images-lists/harvester-images-v1.8.0.txt\n    \
    archive: /harvester/images/harvester-images-v1.8.0.tar.zst\n  rke2:\n  \
    - list: /harvester/images-lists/rke2-images.linux-amd64-v1.35.2-rke2r1.txt\n    \
    archive: /harvester/images/rke2-images.linux-amd64-v1.35.2-rke2r1.tar.zst\n  agent:\n  \
    - list: /rancherd/images/rancherd-bootstrap-images-v1.8.0.txt\n    \
    archive: /rancherd/images/rancherd-bootstrap-images-v1.8.0.tar.zst\n";

/// The files of a small but complete release, by path.
#[must_use]
pub fn sample_files() -> Vec<(&'static str, Vec<u8>)> {
    let list = |images: &[&str]| (images.join("\n") + "\n").into_bytes();
    let harvester = list(&["docker.io/rancher/harvester:v1.8.0", "docker.io/rancher/pause:3.6"]);
    let rke2 = list(&["docker.io/rancher/rke2-runtime:v1.35.2-rke2r1"]);
    let agent = list(&["docker.io/rancher/rancherd:v0.4.0"]);
    let all = [harvester.clone(), agent.clone(), rke2.clone()].concat();
    // No two parts are alike, so that bytes from a wrong place are seen.
    let archive: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    vec![
        ("harvester-release.yaml", SAMPLE_RELEASE.into()),
        ("rootfs.squashfs", archive.clone()),
        ("bundle/metadata.yaml", SAMPLE_BUNDLE.into()),
        ("bundle/harvester/images-lists/harvester-images-v1.8.0.txt", harvester),
        (
            "bundle/harvester/images/harvester-images-v1.8.0.tar.zst",
            archive.clone(),
        ),
        (
            "bundle/harvester/images-lists/rke2-images.linux-amd64-v1.35.2-rke2r1.txt",
            rke2,
        ),
        (
            "bundle/harvester/images/rke2-images.linux-amd64-v1.35.2-rke2r1.tar.zst",
            archive.clone(),
        ),
        ("bundle/rancherd/images/rancherd-bootstrap-images-v1.8.0.txt", agent),
        (
            "bundle/rancherd/images/rancherd-bootstrap-images-v1.8.0.tar.zst",
            archive,
        ),
        (
            "bundle/harvester/images-lists-archive/current/image_list_all.txt",
            all.clone(),
        ),
        ("bundle/harvester/images-lists-archive/v1.7.1/image_list_all.txt", all),
    ]
}

/// Files to build an image from, in a folder that goes away.
#[derive(Debug)]
pub struct Sources {
    folder: TempDir,
}

impl Default for Sources {
    fn default() -> Self {
        Self::new()
    }
}

impl Sources {
    /// No files yet.
    #[must_use]
    pub fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        fs::create_dir(folder.path().join("tree")).expect("a folder in it");
        Self { folder }
    }

    /// A small but complete release.
    #[must_use]
    pub fn sample() -> Self {
        let sources = Self::new();
        for (path, content) in sample_files() {
            sources.add(path, &content);
        }
        sources
    }

    /// Where the files are.
    #[must_use]
    pub fn tree(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    /// Adds or replaces a file.
    pub fn add(&self, path: &str, content: &[u8]) {
        let path = self.tree().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("its folder");
        fs::write(&path, content).expect("a file");
    }

    /// Removes a file.
    pub fn remove(&self, path: &str) {
        fs::remove_file(self.tree().join(path)).expect("the file");
    }

    /// Adds a symbolic link.
    pub fn link(&self, path: &str, target: &str) {
        let path = self.tree().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("its folder");
        std::os::unix::fs::symlink(target, path).expect("a link");
    }

    /// Builds the image as releases are built: Rock Ridge names, no Joliet, files larger than 4 GiB allowed.
    #[must_use]
    pub fn iso(&self) -> PathBuf {
        self.iso_with(&["-R", "-iso-level", "3"])
    }

    /// Builds the image with these options of mkisofs. It goes away with its sources.
    #[must_use]
    pub fn iso_with(&self, options: &[&str]) -> PathBuf {
        let iso = self.folder.path().join("release.iso");
        build(&self.tree(), &iso, options);
        iso
    }
}

/// Builds an image from a folder.
pub fn build(tree: &Path, iso: &Path, options: &[&str]) {
    let made = Command::new("xorriso")
        .args(["-as", "mkisofs", "-quiet", "-V", "HARVESTER"])
        .args(options)
        .arg("-o")
        .args([iso, tree])
        .output()
        .expect("xorriso, which hack/prepare installs");
    if !made.status.success() {
        panic!("failed to build an image: {}", String::from_utf8_lossy(&made.stderr));
    }
}
