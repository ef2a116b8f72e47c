//! Archives as `docker save` writes them, compressed as releases have them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
use std::collections::BTreeMap;

use release::{
    manifest::{self, FileSum, IsoSum, Manifest},
    testing::{SAMPLE_BUNDLE, SAMPLE_RELEASE},
};
use sha2::{Digest, Sha256};

/// An archive of images, each with a layer of its own of about so many bytes that cannot be compressed.
pub fn archive(images: &[&str], layer_bytes: usize) -> Vec<u8> {
    zstd::encode_all(tar(images, layer_bytes).as_slice(), 1).unwrap()
}

/// The same with configurations and layers that are changed under their names.
#[must_use]
pub fn tampered(images: &[&str], layer_bytes: usize, change: fn(&mut Vec<u8>, &mut Vec<u8>)) -> Vec<u8> {
    zstd::encode_all(tar_with(images, layer_bytes, change).as_slice(), 1).unwrap()
}

fn tar(images: &[&str], layer_bytes: usize) -> Vec<u8> {
    tar_with(images, layer_bytes, |_, _| {})
}

fn tar_with(images: &[&str], layer_bytes: usize, change: fn(&mut Vec<u8>, &mut Vec<u8>)) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut manifest = Vec::new();
    for image in images {
        let mut layer = tar::Builder::new(Vec::new());
        add(&mut layer, "content", &noise(image, layer_bytes));
        let mut layer = layer.into_inner().unwrap();
        let diff = hex(&layer);
        let config = serde_json::json!({
            "architecture": "amd64", "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{diff}")]},
        });
        let mut config = config.to_string().into_bytes();
        let config_name = format!("{}.json", hex(&config));
        let layer_name = format!("{diff}/layer.tar");
        change(&mut config, &mut layer);
        add(&mut archive, &config_name, &config);
        add(&mut archive, &layer_name, &layer);
        manifest.push(serde_json::json!({"Config": config_name, "RepoTags": [image], "Layers": [layer_name]}));
    }
    add(
        &mut archive,
        "manifest.json",
        serde_json::Value::from(manifest).to_string().as_bytes(),
    );
    archive.into_inner().unwrap()
}

fn add(tar: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]) {
    let mut header = tar::Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, name, content).unwrap();
}

/// The SHA-256 of some bytes, in hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that look random and are the same each time.
fn noise(seed: &str, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 32);
    let mut block = Sha256::digest(seed.as_bytes());
    while bytes.len() < length {
        bytes.extend_from_slice(&block);
        block = Sha256::digest(block);
    }
    bytes.truncate(length);
    bytes
}

/// The archive of images that every node has.
pub const COMMON: &str = "bundle/harvester/images/harvester-images-v1.8.0.tar.zst";
/// What is in it.
pub const COMMON_LIST: &str = "bundle/harvester/images-lists/harvester-images-v1.8.0.txt";
/// The archive of RKE2.
pub const RKE2: &str = "bundle/harvester/images/rke2-images.linux-amd64-v1.35.2-rke2r1.tar.zst";
/// What is in it.
pub const RKE2_LIST: &str = "bundle/harvester/images-lists/rke2-images.linux-amd64-v1.35.2-rke2r1.txt";
/// The archive of the agent.
pub const AGENT: &str = "bundle/rancherd/images/rancherd-bootstrap-images-v1.8.0.tar.zst";
/// What is in it.
pub const AGENT_LIST: &str = "bundle/rancherd/images/rancherd-bootstrap-images-v1.8.0.txt";

/// Images of the first.
pub const COMMON_IMAGES: [&str; 3] = [
    "docker.io/rancher/harvester:v1.8.0",
    "docker.io/rancher/harvester-webhook:v1.8.0",
    "docker.io/rancher/pause:3.6",
];
/// Images of RKE2.
pub const RKE2_IMAGES: [&str; 1] = ["docker.io/rancher/rke2-runtime:v1.35.2-rke2r1"];
/// Images of the agent.
pub const AGENT_IMAGES: [&str; 1] = ["docker.io/rancher/rancherd:v0.4.0"];

/// What the release before had: one image is in both.
pub const PREVIOUS_IMAGES: [&str; 4] = [
    "docker.io/rancher/harvester:v1.7.1",
    "docker.io/rancher/harvester-upgrade-toolkit:v1.7.1",
    "docker.io/rancher/old-component:v3",
    "docker.io/rancher/pause:3.6",
];

/// The files of a release whose archives hold what its lists say, by path in the ISO.
pub fn release_files(layer_bytes: usize) -> BTreeMap<String, Vec<u8>> {
    let list = |images: &[&str]| (images.join("\n") + "\n").into_bytes();
    let files: [(&str, Vec<u8>); 8] = [
        ("harvester-release.yaml", SAMPLE_RELEASE.into()),
        ("bundle/metadata.yaml", SAMPLE_BUNDLE.into()),
        (COMMON, archive(&COMMON_IMAGES, layer_bytes)),
        (COMMON_LIST, list(&COMMON_IMAGES)),
        (RKE2, archive(&RKE2_IMAGES, layer_bytes)),
        (RKE2_LIST, list(&RKE2_IMAGES)),
        (AGENT, archive(&AGENT_IMAGES, layer_bytes)),
        (AGENT_LIST, list(&AGENT_IMAGES)),
    ];
    files
        .into_iter()
        .map(|(path, content)| (path.to_owned(), content))
        .collect()
}

/// Writes sizes and checksums of the archives into the metadata of the bundle.
pub fn add_checksums(files: &mut BTreeMap<String, Vec<u8>>) {
    let mut bundle = SAMPLE_BUNDLE.to_owned();
    for path in [COMMON, RKE2, AGENT] {
        let (content, name) = (&files[path], path.strip_prefix("bundle").unwrap());
        let entry = format!("{name}\n    size: {}\n    sha256: {}", content.len(), hex(content));
        bundle = bundle.replace(&format!("archive: {name}"), &format!("archive: {entry}"));
    }
    files.insert("bundle/metadata.yaml".to_owned(), bundle.into());
}

/// The manifest of a release with these files, as its repository serves it.
pub fn manifest(files: &BTreeMap<String, Vec<u8>>) -> String {
    let sums = files.iter().map(|(path, content)| {
        let sum = FileSum {
            size: content.len() as u64,
            sha256: manifest::sha256(content),
        };
        (path.clone(), sum)
    });
    let iso = IsoSum {
        sha512: "ab".repeat(64).parse().unwrap(),
        size: 1 << 30,
    };
    let files = sums.collect();
    Manifest { iso, files }.text()
}
