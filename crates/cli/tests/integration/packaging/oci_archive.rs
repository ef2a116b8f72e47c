//! Archives of images: read here, and those of `package/oci-archive`, which makes them without a registry or a daemon.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use release::manifest::sha256;
use serde_json::Value;

use crate::packaging::root;

/// An entry of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: tar::EntryType,
    pub(crate) mode: u32,
    pub(crate) time: u64,
    pub(crate) owner: (u64, u64),
    pub(crate) link: Option<PathBuf>,
    /// Small files only.
    pub(crate) text: String,
}

/// An image in an archive.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) names: BTreeSet<String>,
    pub(crate) digest: String,
    pub(crate) config: Value,
    pub(crate) layers: Vec<BTreeMap<PathBuf, Entry>>,
}

/// What a file of the archive has; blobs are compared with their names.
fn file(archive: &Path, name: &str) -> Vec<u8> {
    let mut tar = tar::Archive::new(File::open(archive).unwrap());
    for entry in tar.entries_with_seek().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path().unwrap() == Path::new(name) {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            if let Some(digest) = name.strip_prefix("blobs/sha256/") {
                assert_eq!(sha256(&content).as_str(), digest);
            }
            return content;
        }
    }
    panic!("{} has no {name}", archive.display());
}

fn blob(archive: &Path, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().unwrap().replace(':', "/");
    let content = file(archive, &format!("blobs/{digest}"));
    assert_eq!(descriptor["size"], content.len());
    content
}

fn layer(content: &[u8]) -> BTreeMap<PathBuf, Entry> {
    let mut found = BTreeMap::new();
    for entry in tar::Archive::new(content).entries().unwrap() {
        let mut entry = entry.unwrap();
        let header = entry.header().clone();
        // Without the slash that folders end with.
        let path: PathBuf = entry.path().unwrap().components().collect();
        let link = entry.link_name().unwrap().map(std::borrow::Cow::into_owned);
        let mut text = String::new();
        if header.size().unwrap() < 10_000 {
            drop(entry.read_to_string(&mut text));
        }
        let one = Entry {
            kind: header.entry_type(),
            mode: header.mode().unwrap(),
            time: header.mtime().unwrap(),
            owner: (header.uid().unwrap(), header.gid().unwrap()),
            link,
            text,
        };
        assert!(
            found.insert(path.clone(), one).is_none(),
            "{} is twice there",
            path.display()
        );
    }
    found
}

/// The images of an archive, by digest.
pub(crate) fn images(archive: &Path) -> Vec<Image> {
    let json = |name: &str| -> Value { serde_json::from_slice(&file(archive, name)).unwrap() };
    assert_eq!(json("oci-layout")["imageLayoutVersion"], "1.0.0");
    let mut found: BTreeMap<String, Image> = BTreeMap::new();
    for top in json("index.json")["manifests"].as_array().unwrap() {
        let digest = top["digest"].as_str().unwrap().to_owned();
        let manifest: Value = serde_json::from_slice(&blob(archive, top)).unwrap();
        let config: Value = serde_json::from_slice(&blob(archive, &manifest["config"])).unwrap();
        let name = top["annotations"]["io.containerd.image.name"]
            .as_str()
            .unwrap()
            .to_owned();
        let layers = manifest["layers"].as_array().unwrap();
        // Layers are not compressed: what is sent is what is unpacked.
        let sent: Vec<&Value> = layers.iter().map(|layer| &layer["digest"]).collect();
        let unpacked: Vec<&Value> = config["rootfs"]["diff_ids"].as_array().unwrap().iter().collect();
        assert_eq!(sent, unpacked);
        found
            .entry(digest.clone())
            .or_insert_with(|| Image {
                names: BTreeSet::new(),
                digest,
                layers: layers.iter().map(|one| layer(&blob(archive, one))).collect(),
                config: config["config"].clone(),
            })
            .names
            .insert(name);
    }
    // Engines that know no OCI layout find the same.
    let old = json("manifest.json");
    let tags = old
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|one| one["RepoTags"].as_array().unwrap());
    let tags: BTreeSet<&str> = tags.filter_map(Value::as_str).collect();
    let names: BTreeSet<&str> = found.values().flat_map(|one| &one.names).map(String::as_str).collect();
    assert_eq!(tags, names);
    found.into_values().collect()
}

/// Packs what the arguments say; returns the digest.
fn pack(arguments: &[&str], output: &Path) -> String {
    let done = Command::new(root().join("package/oci-archive"))
        .args(arguments)
        .arg("--output")
        .arg(output)
        .env_remove("SOURCE_DATE_EPOCH")
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// Files that are written in an order of their own.
fn tree(at: &Path, backwards: bool) {
    let mut names = vec!["bin/pause", "etc/a", "etc/b", "etc-c"];
    if backwards {
        names.reverse();
    }
    for name in names {
        let path = at.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, name).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    }
    for folder in ["bin", "etc"] {
        std::fs::set_permissions(at.join(folder), PermissionsExt::from_mode(0o750)).unwrap();
    }
    symlink("pause", at.join("bin/sleep")).unwrap();
    std::fs::hard_link(at.join("etc/a"), at.join("etc/linked")).unwrap();
}

#[test]
fn the_same_files_give_the_same_image_whenever_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (name, backwards) in [("one", false), ("two", true)] {
        std::fs::create_dir(path(name)).unwrap();
        tree(&path(name), backwards);
    }
    let old = std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    File::options()
        .write(true)
        .open(path("two/etc/b"))
        .unwrap()
        .set_times(old)
        .unwrap();
    let settings = ["--name", "pause", "--entrypoint", "/bin/pause", "--epoch", "1700000000"];
    let packed = |from: &str, to: &str| pack(&[&[path(from).to_str().unwrap()], &settings[..]].concat(), &path(to));
    let digest = packed("one", "one.tar");
    assert_eq!(packed("two", "two.tar"), digest);
    assert_eq!(
        std::fs::read(path("one.tar")).unwrap(),
        std::fs::read(path("two.tar")).unwrap()
    );
    std::fs::write(path("two/etc/b"), "changed").unwrap();
    assert_ne!(packed("two", "two.tar"), digest);

    let found = images(&path("one.tar")).remove(0);
    assert_eq!(found.digest, digest);
    assert_eq!(
        found.names,
        BTreeSet::from(["docker.io/library/pause:latest".to_owned()])
    );
    assert_eq!(found.config, serde_json::json!({"Entrypoint": ["/bin/pause"]}));
    let layer = &found.layers[0];
    let names: Vec<&str> = layer.keys().filter_map(|path| path.to_str()).collect();
    assert_eq!(
        names,
        [
            "bin",
            "bin/pause",
            "bin/sleep",
            "etc",
            "etc/a",
            "etc/b",
            "etc/linked",
            "etc-c"
        ]
    );
    assert!(
        layer
            .values()
            .all(|one| one.owner == (0, 0) && one.time == 1_700_000_000)
    );
    assert_eq!(
        (layer[Path::new("bin")].mode, layer[Path::new("etc/a")].mode),
        (0o750, 0o640)
    );
    assert_eq!(layer[Path::new("bin/sleep")].link.as_deref(), Some(Path::new("pause")));
    assert_eq!(layer[Path::new("etc/linked")].kind, tar::EntryType::Link);
}

#[test]
fn several_images_fit_into_one_archive_as_releases_have_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(path("root")).unwrap();
    tree(Path::new(&path("root")), false);
    let first = pack(&[&path("root"), "--name", "rancher/one:v1"], path("one.tar").as_ref());
    std::fs::write(path("root/etc/b"), "changed").unwrap();
    let names = ["--name", "registry.example:5000/two", "--name", "rancher/two:v2"];
    let second = pack(
        &[&[path("root").as_str()], &names[..]].concat(),
        path("two.tar").as_ref(),
    );
    pack(
        &["--join", &path("one.tar"), &path("two.tar")],
        path("all.tar").as_ref(),
    );
    let found = images(path("all.tar").as_ref());
    let names: BTreeMap<&str, Vec<&str>> = found
        .iter()
        .map(|one| (one.digest.as_str(), one.names.iter().map(String::as_str).collect()))
        .collect();
    assert_eq!(names[first.as_str()], ["docker.io/rancher/one:v1"]);
    assert_eq!(
        names[second.as_str()],
        ["docker.io/rancher/two:v2", "registry.example:5000/two:latest"]
    );
}
