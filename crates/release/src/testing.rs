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

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::bundle;

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
    let of_harvester = ["docker.io/rancher/harvester:v1.8.0", "docker.io/rancher/pause:3.6"];
    let of_rke2 = ["docker.io/rancher/rke2-runtime:v1.35.2-rke2r1"];
    let of_agent = ["docker.io/rancher/rancherd:v0.4.0"];
    let (harvester, rke2, agent) = (list(&of_harvester), list(&of_rke2), list(&of_agent));
    let all = [harvester.clone(), agent.clone(), rke2.clone()].concat();
    vec![
        ("harvester-release.yaml", SAMPLE_RELEASE.into()),
        ("rootfs.squashfs", sample_system()),
        ("bundle/metadata.yaml", SAMPLE_BUNDLE.into()),
        ("bundle/harvester/images-lists/harvester-images-v1.8.0.txt", harvester),
        (
            "bundle/harvester/images/harvester-images-v1.8.0.tar.zst",
            sample_archive(&of_harvester),
        ),
        (
            "bundle/harvester/images-lists/rke2-images.linux-amd64-v1.35.2-rke2r1.txt",
            rke2,
        ),
        (
            "bundle/harvester/images/rke2-images.linux-amd64-v1.35.2-rke2r1.tar.zst",
            sample_archive(&of_rke2),
        ),
        ("bundle/rancherd/images/rancherd-bootstrap-images-v1.8.0.txt", agent),
        (
            "bundle/rancherd/images/rancherd-bootstrap-images-v1.8.0.tar.zst",
            sample_archive(&of_agent),
        ),
        (
            "bundle/harvester/images-lists-archive/current/image_list_all.txt",
            all.clone(),
        ),
        ("bundle/harvester/images-lists-archive/v1.7.1/image_list_all.txt", all),
    ]
}

/// The bytes of each large file.
const LARGE: usize = 800_000;

/// No two parts are alike, so that bytes from a wrong place are seen.
fn filling() -> impl Iterator<Item = u8> {
    (0..200_000_u32).flat_map(u32::to_le_bytes)
}

/// A file with the superblock of a squashfs.
#[must_use]
pub fn sample_system() -> Vec<u8> {
    let mut bytes: Vec<u8> = filling().take(LARGE).collect();
    let size = (LARGE as u64).to_le_bytes();
    let fields: [(usize, &[u8]); 6] = [
        (0, b"hsqs"),
        (12, &131_072_u32.to_le_bytes()),
        (20, &4_u16.to_le_bytes()),
        (22, &17_u16.to_le_bytes()),
        (28, &4_u16.to_le_bytes()),
        (40, &size),
    ];
    for (at, field) in fields {
        bytes[at..at + field.len()].copy_from_slice(field);
    }
    bytes
}

/// An archive of images without layers, as `docker save` writes it.
#[must_use]
pub fn sample_archive(images: &[&str]) -> Vec<u8> {
    let config = br#"{"rootfs":{"type":"layers","diff_ids":[]}}"#;
    let name = bundle::hexadecimal(Sha256::digest(config).as_slice()) + ".json";
    let tags: Vec<&str> = images
        .iter()
        .map(|image| image.trim_start_matches("docker.io/"))
        .collect();
    let manifest = serde_json::json!([{"Config": name, "RepoTags": tags, "Layers": []}]).to_string();
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in [
        (name.as_str(), config.as_slice()),
        ("manifest.json", manifest.as_bytes()),
    ] {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, content).expect("an entry");
    }
    let tar = tar.into_inner().expect("a tar");
    let mut bytes = zstd::encode_all(tar.as_slice(), 3).expect("a compressed tar");
    // The rest is a frame that readers skip.
    let rest = u32::try_from(LARGE - bytes.len() - 8).expect("a small archive");
    bytes.extend(0x184D_2A50_u32.to_le_bytes());
    bytes.extend(rest.to_le_bytes());
    bytes.extend(filling().take(rest as usize));
    bytes
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
