//! Archives made by hand, as `docker save` and containerd write them.

use std::io::Write;

use rstest::rstest;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::*;

const IMAGE: &str = "rancher/system-agent-installer-rancher:v2.14.0";

pub(crate) fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        header.set_entry_type(tar::EntryType::Regular);
        builder.append_data(&mut header, path, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

pub(crate) fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The configuration of an image with these layers, and its name.
pub(crate) fn config_of(layers: &[&[u8]]) -> (String, Vec<u8>) {
    let sums: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", sum(layer))).collect();
    let config = json!({"rootfs": {"type": "layers", "diff_ids": sums}})
        .to_string()
        .into_bytes();
    (format!("{}.json", sum(&config)), config)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn saved(folder: &Path, tar: &[u8]) -> PathBuf {
    let path = folder.join("images.tar.zst");
    std::fs::write(&path, zstd::encode_all(tar, 1).unwrap()).unwrap();
    path
}

fn wanted(name: &str) -> bool {
    name == "helm" || name.ends_with(".tgz")
}

fn content(folder: &Path, name: &str) -> Option<String> {
    std::fs::read_to_string(folder.join(name)).ok()
}

#[rstest]
#[case::with_host("docker.io/rancher/system-agent-installer-rancher:v2.14.0")]
#[case::bare(IMAGE)]
fn the_files_of_one_image_come_out_and_no_others(#[case] tag: &str) {
    let folder = tempfile::tempdir().unwrap();
    let other = tar_of(&[("helm", b"of another image")]);
    let below = tar_of(&[
        ("helm", b"old"),
        ("run.sh", b"sh"),
        ("charts/rancher-2.13.0.tgz", b"old chart"),
    ]);
    let above = tar_of(&[
        ("helm", b"new"),
        ("charts/.wh.rancher-2.13.0.tgz", b""),
        ("rancher-2.14.0.tgz", b"chart"),
    ]);
    let (config, content_of_config) = config_of(&[&below, &above]);
    let manifest = json!([
        {"Config": "c0.json", "RepoTags": ["docker.io/a/b:1"], "Layers": ["l0/layer.tar"]},
        {"Config": config, "RepoTags": [tag], "Layers": ["l1/layer.tar", "l2/layer.tar"]},
    ]);
    // The manifest may come last, and layers in any order.
    let archive = tar_of(&[
        ("l2/layer.tar", &gzip(&above)),
        ("l0/layer.tar", &other),
        ("l1/layer.tar", &below),
        (&config, &content_of_config),
        ("manifest.json", manifest.to_string().as_bytes()),
    ]);
    let archive = saved(folder.path(), &archive);
    let into = folder.path().join("out");
    std::fs::create_dir(&into).unwrap();
    let written = extract(&archive, IMAGE, wanted, &into).unwrap().unwrap();
    assert_eq!(written, [into.join("helm"), into.join("rancher-2.14.0.tgz")]);
    assert_eq!(content(&into, "helm").as_deref(), Some("new"));
    assert_eq!(content(&into, "rancher-2.14.0.tgz").as_deref(), Some("chart"));
    assert_eq!(std::fs::read_dir(&into).unwrap().count(), 2);
}

#[test]
fn an_archive_of_another_image_has_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = json!([{"RepoTags": null, "Layers": []}, {"RepoTags": ["a/b:1"], "Layers": []}]).to_string();
    let archive = saved(folder.path(), &tar_of(&[("manifest.json", manifest.as_bytes())]));
    assert_eq!(extract(&archive, IMAGE, wanted, folder.path()).unwrap(), None);
}

#[test]
fn an_oci_layout_is_read_too() {
    let folder = tempfile::tempdir().unwrap();
    let layer = gzip(&tar_of(&[("helm", b"oci"), ("rancher-2.14.0.tgz", b"chart")]));
    let manifest = json!({"schemaVersion": 2, "layers": [{"digest": format!("sha256:{}", sum(&layer))}]}).to_string();
    let (of_manifest, of_layer) = (sum(manifest.as_bytes()), sum(&layer));
    let index = json!({"manifests": [
        {"digest": format!("sha256:{of_manifest}"), "annotations": {"io.containerd.image.name": format!("docker.io/{IMAGE}")}},
    ]})
    .to_string();
    let (manifest_path, layer_path) = (
        format!("blobs/sha256/{of_manifest}"),
        format!("blobs/sha256/{of_layer}"),
    );
    let archive_with = |manifest: &[u8], layer: &[u8]| {
        tar_of(&[
            ("index.json", index.as_bytes()),
            (&manifest_path, manifest),
            (&layer_path, layer),
        ])
    };
    let archive = saved(folder.path(), &archive_with(manifest.as_bytes(), &layer));
    let into = folder.path().join("out");
    std::fs::create_dir(&into).unwrap();
    extract(&archive, IMAGE, wanted, &into).unwrap().unwrap();
    assert_eq!(content(&into, "helm").as_deref(), Some("oci"));

    // S-07: parts that are not what they are called.
    let evil = gzip(&tar_of(&[("helm", b"evil")]));
    let other = manifest.replace("schemaVersion", "schemaVersiom");
    for (manifest, layer, words) in [
        (
            manifest.as_bytes(),
            evil.as_slice(),
            format!("layer {layer_path} is refused"),
        ),
        (
            other.as_bytes(),
            layer.as_slice(),
            format!("blob sha256:{of_manifest} is refused"),
        ),
    ] {
        let into = folder.path().join("refused");
        std::fs::create_dir(&into).unwrap();
        let archive = saved(folder.path(), &archive_with(manifest, layer));
        let error = extract(&archive, IMAGE, wanted, &into).unwrap_err().to_string();
        assert!(error.contains(&words), "{error}");
        assert_eq!(std::fs::read_dir(&into).unwrap().count(), 0, "nothing of it stays");
        std::fs::remove_dir(&into).unwrap();
    }
}

#[test]
fn s07_a_layer_or_configuration_with_another_digest_than_its_image_says_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("out");
    std::fs::create_dir(&into).unwrap();
    let (good, evil) = (tar_of(&[("helm", b"good")]), tar_of(&[("helm", b"evil")]));
    let (name, config) = config_of(&[&good]);
    let manifest = json!([{"Config": name, "RepoTags": [IMAGE], "Layers": ["l/layer.tar"]}]).to_string();
    let archive_with = |config: &[u8], layer: &[u8]| {
        let files = [
            (name.as_str(), config),
            ("l/layer.tar", layer),
            ("manifest.json", manifest.as_bytes()),
        ];
        saved(folder.path(), &tar_of(&files))
    };
    let refused = |config: &[u8], layer: &[u8], words: &str| {
        let error = extract(&archive_with(config, layer), IMAGE, wanted, &into)
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(std::fs::read_dir(&into).unwrap().count(), 0, "nothing of it stays");
    };
    refused(&config, &evil, "layer l/layer.tar is refused");
    refused(&config, &gzip(&evil), "layer l/layer.tar is refused");
    // Nor does it help to change what the image says.
    refused(&config_of(&[&evil]).1, &evil, &format!("{name} is refused"));
    extract(&archive_with(&config, &gzip(&good)), IMAGE, wanted, &into)
        .unwrap()
        .unwrap();
    assert_eq!(content(&into, "helm").as_deref(), Some("good"));
}

#[test]
fn what_is_damaged_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (name, config) = config_of(&[b""]);
    let manifest = json!([{"Config": name, "RepoTags": [IMAGE], "Layers": ["gone/layer.tar"]}]).to_string();
    let whole = tar_of(&[(&name, &config), ("manifest.json", manifest.as_bytes())]);
    let archive = saved(folder.path(), &whole);
    let error = extract(&archive, IMAGE, wanted, folder.path()).unwrap_err().to_string();
    assert!(error.contains("layer gone/layer.tar of"), "{error}");

    let bytes = std::fs::read(&archive).unwrap();
    std::fs::write(&archive, &bytes[..bytes.len() / 2]).unwrap();
    assert!(matches!(
        extract(&archive, IMAGE, wanted, folder.path()),
        Err(ArchiveError::Read { .. })
    ));
    std::fs::write(&archive, "<html>").unwrap();
    assert!(extract(&archive, IMAGE, wanted, folder.path()).is_err());
    let empty = saved(folder.path(), &tar_of(&[]));
    let error = extract(&empty, IMAGE, wanted, folder.path()).unwrap_err().to_string();
    assert!(error.contains("neither manifest.json nor index.json"), "{error}");
}

#[test]
fn names_in_an_archive_never_lead_out_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_entry_type(tar::EntryType::Regular);
    let name = b"../../helm";
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_cksum();
    builder.append(&header, &b"evil"[..]).unwrap();
    let layer = builder.into_inner().unwrap();
    let (config, content_of_config) = config_of(&[&layer]);
    let manifest = json!([{"Config": config, "RepoTags": [IMAGE], "Layers": ["l"]}]).to_string();
    let files = [
        ("manifest.json", manifest.as_bytes()),
        ("l", &layer),
        (&config, &content_of_config),
    ];
    let archive = saved(folder.path(), &tar_of(&files));
    let into = folder.path().join("a/b");
    std::fs::create_dir_all(&into).unwrap();
    let written = extract(&archive, IMAGE, wanted, &into).unwrap().unwrap();
    assert_eq!(written, [into.join("helm")]);
    assert!(!folder.path().join("helm").exists());
}

#[test]
fn links_are_resolved_inside_the_archive() {
    assert_eq!(resolved("a/layer.tar", "../b/layer.tar"), "b/layer.tar");
    assert_eq!(resolved("layer.tar", "../../b"), "b");
}
