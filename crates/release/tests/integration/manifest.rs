//! The manifest of a release: what it says of the image, and where it is served.

use std::{fs, path::Path};

use crate::support::Running;
use release::{
    iso::Iso,
    manifest::{Manifest, ManifestError, ROOTFS, Sha512Sum, sha256},
    repo::Limits,
    testing::{Sources, sample_files},
};
use sha2::{Digest, Sha512};

fn sha512(bytes: &[u8]) -> Sha512Sum {
    let digits: String = Sha512::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    digits.parse().unwrap()
}

fn manifest(iso: &Path, given: Option<&Sha512Sum>) -> Manifest {
    Manifest::of(&Iso::open(iso).unwrap(), given).unwrap()
}

#[test]
fn it_has_the_image_and_every_file_that_an_upgrade_reads() {
    let sources = Sources::sample();
    sources.add("EFI/boot.img", b"nobody reads this");
    let iso = sources.iso();
    let found = manifest(&iso, None);
    for (path, content) in sample_files() {
        assert_eq!(found.files[path].size, content.len() as u64, "{path}");
        assert_eq!(found.files[path].sha256, sha256(&content), "{path}");
    }
    assert_eq!(found.files.len(), sample_files().len());
    let bytes = fs::read(&iso).unwrap();
    assert_eq!(found.iso.sha512, sha512(&bytes));
    assert_eq!(found.iso.size, bytes.len() as u64);
}

#[test]
fn zeros_that_a_volume_has_behind_the_image_do_not_count() {
    let sources = Sources::sample();
    let iso = sources.iso();
    let mut bytes = fs::read(&iso).unwrap();
    let (published, size) = (sha512(&bytes), bytes.len() as u64);
    bytes.resize(bytes.len().next_multiple_of(4 << 20) + 512, 0);
    fs::write(&iso, &bytes).unwrap();
    let found = manifest(&iso, Some(&published));
    assert_eq!((found.iso.sha512, found.iso.size), (published.clone(), size));
    // Anything but zeros does.
    let last = bytes.len() - 1;
    bytes[last] = 1;
    fs::write(&iso, &bytes).unwrap();
    assert_ne!(manifest(&iso, Some(&published)).iso.sha512, published);
}

#[test]
fn an_image_with_its_own_zeros_at_its_end_is_found_whole() {
    let sources = Sources::sample();
    let iso = sources.iso();
    let mut bytes = fs::read(&iso).unwrap();
    bytes.resize(bytes.len() + 150 * 2048, 0);
    let published = sha512(&bytes);
    bytes.resize(bytes.len() + 77 * 2048, 0);
    fs::write(&iso, &bytes).unwrap();
    assert_eq!(manifest(&iso, Some(&published)).iso.sha512, published);
}

#[test]
fn s07_an_iso_that_was_changed_by_one_byte_does_not_have_its_checksum() {
    let sources = Sources::sample();
    let iso = sources.iso();
    let mut bytes = fs::read(&iso).unwrap();
    let published = sha512(&bytes);
    assert_eq!(manifest(&iso, Some(&published)).iso.sha512, published);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&iso, &bytes).unwrap();
    assert_ne!(manifest(&iso, Some(&published)).iso.sha512, published);
}

#[test]
fn s07_another_manifest_than_the_recorded_one_is_refused() {
    let sources = Sources::sample();
    let text = manifest(&sources.iso(), None).text();
    let root = sha256(text.as_bytes());
    let (read, digest) = Manifest::read(&text).unwrap();
    assert_eq!(digest, root);
    assert_eq!(Manifest::verified(&text, &root).unwrap(), read);
    sources.add(ROOTFS, b"of the release before");
    let replayed = manifest(&sources.iso(), None).text();
    let error = Manifest::verified(&replayed, &root).unwrap_err();
    assert!(matches!(error, ManifestError::Another { .. }), "{error}");
    assert!(error.to_string().contains(root.as_str()), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_served_next_to_the_image_once_it_is_made() {
    let sources = Sources::sample();
    let path = sources.iso();
    let server = Running::start(&path, Limits::REPOSITORY).await;
    let reply = server.get("/harvester-iso.manifest", "").await;
    assert_eq!(reply.status, 503, "it is not made yet");
    let text = manifest(&path, None).text();
    server.iso.note_manifest(text.clone());
    let reply = server.get("/harvester-iso.manifest", "").await;
    assert_eq!((reply.status, reply.text()), (200, text.as_str()));
    assert_eq!(server.get("/harvester-iso.manifest/", "").await.status, 200);
    assert_eq!(server.get("/harvester-iso.manifest/x", "").await.status, 404);
}
