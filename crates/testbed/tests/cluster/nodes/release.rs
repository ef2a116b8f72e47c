//! A release that nodes can really be upgraded to: an ISO with archives of images that run, a system in a squashfs, and the
//! installer image with Helm and a chart in place of Rancher's.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use release::testing::{SAMPLE_BUNDLE, Sources};
use testbed::archive::{AGENT, AGENT_LIST, COMMON, COMMON_LIST, RKE2, RKE2_LIST};
use world::Release;

use super::images;

/// What runs before the upgrade and is not part of the new release.
const OLD: [&str; 9] = [
    "docker.io/rancher/rancher:v2.13.1",
    "docker.io/rancher/rancher-webhook:v0.9.1",
    "docker.io/rancher/harvester:v1.7.1",
    "docker.io/rancher/harvester-cluster-repo:v1.7.1",
    "docker.io/rancher/fleet:v0.14.1",
    "docker.io/rancher/fleet-agent:v0.14.1",
    "docker.io/longhornio/longhorn-manager:v1.10.1",
    "docker.io/longhornio/longhorn-instance-manager:v1.10.1",
    "docker.io/rancher/rke2-runtime:v1.34.3-rke2r1",
];

/// What both releases have.
const BOTH: [&str; 3] = [
    "docker.io/rancher/system-upgrade-controller:v0.17.0",
    "docker.io/rancher/pause:3.6",
    "registry.suse.com/suse/sles/15.7/virt-launcher:1.7.0",
];

/// What the new release brings.
const NEW: [&str; 8] = [
    "docker.io/rancher/rancher:v2.14.0-alpha9",
    "docker.io/rancher/rancher-webhook:v0.10.0-rc.5",
    "docker.io/rancher/harvester:v1.8.0",
    "docker.io/rancher/harvester-cluster-repo:v1.8.0",
    "docker.io/rancher/fleet:v0.15.0-alpha.8",
    "docker.io/rancher/fleet-agent:v0.15.0-alpha.8",
    "docker.io/longhornio/longhorn-manager:v1.11.0",
    "docker.io/longhornio/longhorn-instance-manager:v1.11.0",
];
const NEW_RKE2: [&str; 1] = ["docker.io/rancher/rke2-runtime:v1.35.2-rke2r1"];
const INSTALLER: &str = "docker.io/rancher/system-agent-installer-rancher:v2.14.0-alpha9";

/// Kept although only the old release has it: Longhorn may still run engines from it (docs/node-images.md).
const RETAINED: &str = "docker.io/longhornio/longhorn-instance-manager:v1.10.1";

/// Images that are stale after the upgrade.
pub(crate) fn stale_images() -> impl Iterator<Item = &'static str> {
    OLD.into_iter().filter(|image| *image != RETAINED)
}

/// Images that every node has after the upgrade.
pub(crate) fn expected_images() -> impl Iterator<Item = &'static str> {
    NEW.into_iter().chain(NEW_RKE2).chain(BOTH).chain([RETAINED])
}

fn owned(images: &[&str]) -> Vec<String> {
    images.iter().copied().map(str::to_owned).collect()
}

/// Writes an archive with the images that nodes have before the upgrade.
pub(crate) fn write_old_images(folder: &Path) -> PathBuf {
    let path = folder.join("old-images.tar");
    let images = owned(&[OLD.as_slice(), &BOTH].concat());
    fs::write(&path, images::archive(&images, &images::busybox_layer())).unwrap();
    path
}

/// Packs a chart that installs Rancher's Deployment, in place of Rancher's own.
pub(crate) fn rancher_chart(helm: &str, folder: &Path, version: &str) -> PathBuf {
    let chart = folder.join(format!("chart-{version}")).join("rancher");
    fs::create_dir_all(chart.join("templates")).unwrap();
    let about = format!("apiVersion: v2\nname: rancher\nversion: {version}\nappVersion: v{version}\n");
    fs::write(chart.join("Chart.yaml"), about).unwrap();
    let deployment = r#"apiVersion: apps/v1
kind: Deployment
metadata: {name: rancher, labels: {app: rancher}}
spec:
  replicas: 1
  selector: {matchLabels: {app: rancher}}
  template:
    metadata: {labels: {app: rancher}}
    spec:
      containers:
      - {name: rancher, image: "rancher/rancher:{{ .Values.rancherImageTag | default (.Values.image).tag }}"}
"#;
    fs::write(chart.join("templates/deployment.yaml"), deployment).unwrap();
    let packed = Command::new(helm)
        .args(["package", "--destination"])
        .args([folder, &chart])
        .output()
        .unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    folder.join(format!("rancher-{version}.tgz"))
}

/// A root file system that is as much of a system as a boot of these nodes needs.
fn system(os: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("usr/lib")).unwrap();
    fs::create_dir_all(tree.join("etc")).unwrap();
    let version = os.rsplit(' ').next().unwrap();
    let about = format!("NAME=\"Harvester\"\nID=harvester\nPRETTY_NAME=\"{os}\"\nVERSION_ID=\"{version}\"\n");
    fs::write(tree.join("usr/lib/os-release"), about).unwrap();
    std::os::unix::fs::symlink("../usr/lib/os-release", tree.join("etc/os-release")).unwrap();
    let image = folder.path().join("rootfs.squashfs");
    let made = Command::new("mksquashfs")
        .args([&tree, &image])
        .args(["-quiet", "-no-progress", "-all-root"])
        .output()
        .expect("squashfs-tools, which hack/prepare installs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fs::read(&image).unwrap()
}

/// The release, as sources of its ISO.
pub(crate) fn sources(helm: &str) -> Sources {
    let release = Release::of("v1.8.0");
    let list = |images: &[&str]| (images.join("\n") + "\n").into_bytes();
    let packed = |archive: Vec<u8>| zstd::encode_all(archive.as_slice(), 1).unwrap();
    let shell = images::busybox_layer();
    let common = [NEW.as_slice(), &BOTH].concat();
    let all = [NEW.as_slice(), &BOTH, &NEW_RKE2, &[INSTALLER]].concat();
    let folder = tempfile::tempdir().unwrap();
    let version = release.rancher.trim_start_matches('v');
    let chart = rancher_chart(helm, folder.path(), version);
    let installer = images::layer_of(&[
        ("helm", 0o755, fs::read(helm).unwrap()),
        (&format!("rancher-{version}.tgz"), 0o644, fs::read(chart).unwrap()),
    ]);
    let sources = Sources::new();
    sources.add("harvester-release.yaml", release.yaml().as_bytes());
    sources.add("rootfs.squashfs", &system(&release.os));
    sources.add("bundle/metadata.yaml", SAMPLE_BUNDLE.as_bytes());
    sources.add(COMMON_LIST, &list(&common));
    sources.add(COMMON, &packed(images::archive(&owned(&common), &shell)));
    sources.add(RKE2_LIST, &list(&NEW_RKE2));
    sources.add(RKE2, &packed(images::archive(&owned(&NEW_RKE2), &shell)));
    sources.add(AGENT_LIST, &list(&[INSTALLER]));
    sources.add(AGENT, &packed(images::archive(&owned(&[INSTALLER]), &installer)));
    let archive_list = |version: &str| format!("bundle/harvester/images-lists-archive/{version}/image_list_all.txt");
    sources.add(&archive_list("current"), &list(&all));
    sources.add(&archive_list("v1.7.1"), &list(&[OLD.as_slice(), &BOTH].concat()));
    sources
}
