//! Images as xorriso makes them, and what is left of them when bytes change.

use std::{fs, io::Write as _, os::unix::fs::FileExt, sync::LazyLock};

use proptest::prelude::*;
use release::{
    iso::{FindError, Iso, IsoError, Kind, ReadAt},
    testing::{Sources, sample_files},
};
use rstest::rstest;

/// An image in memory.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl ReadAt for Bytes {
    fn size(&self) -> u64 {
        self.0.as_slice().size()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.0.as_slice().read_exact_at(buffer, offset)
    }
}

fn bytes_of(iso: &Iso, path: &str) -> Vec<u8> {
    let content = iso.file(path).unwrap();
    let mut all = Vec::new();
    for extent in content.extents() {
        let mut part = vec![0; extent.length as usize];
        iso.source().file().read_exact_at(&mut part, extent.offset).unwrap();
        all.append(&mut part);
    }
    all
}

#[test]
fn every_file_of_a_release_is_found_with_its_bytes() {
    let sources = Sources::sample();
    let iso = Iso::open(&sources.iso()).unwrap();
    assert_eq!(iso.volume_id(), "HARVESTER");
    for (path, content) in sample_files() {
        assert!(bytes_of(&iso, path) == content, "{path}");
    }
    let files = iso.tree().iter().filter(|(_, node)| matches!(node.kind, Kind::File(_)));
    assert_eq!(files.count(), sample_files().len());
}

#[rstest]
#[case::as_released(&["-R", "-iso-level", "3"])]
#[case::with_joliet(&["-R", "-J", "-iso-level", "3"])]
#[case::with_a_boot_record(&["-R", "-b", "boot.img", "-no-emul-boot", "-c", "boot.cat"])]
fn deep_directories_long_names_and_links(#[case] options: &[&str]) {
    let sources = Sources::new();
    let deep = (0..20).map(|n| format!("level-{n}")).collect::<Vec<_>>().join("/");
    let long = format!("{}.tar.zst", "n".repeat(240));
    let long_target = format!("../{}/{}/x", "p".repeat(250), "q".repeat(250));
    sources.add("boot.img", &[7; 2048]);
    sources.add(&format!("{deep}/Mixed Case ü.txt"), b"deep");
    sources.add(&format!("bundle/{long}"), b"long");
    sources.add("empty", b"");
    for n in 0..500 {
        sources.add(
            &format!("many/file-with-a-rather-long-name-{n}"),
            n.to_string().as_bytes(),
        );
    }
    sources.link("bundle/link", &long);
    sources.link("bundle/up", "../empty");
    sources.link("bundle/away", "../../etc/passwd");
    sources.link("bundle/absolute", "/etc/passwd");
    sources.link("bundle/long-target", &long_target);
    let iso = Iso::open(&sources.iso_with(options)).unwrap();
    assert_eq!(bytes_of(&iso, &format!("{deep}/Mixed Case ü.txt")), b"deep");
    assert_eq!(bytes_of(&iso, &format!("bundle/{long}")), b"long");
    assert_eq!(bytes_of(&iso, "bundle/link"), b"long");
    assert_eq!(bytes_of(&iso, "bundle/up"), b"");
    for n in 0..500 {
        let path = format!("many/file-with-a-rather-long-name-{n}");
        assert_eq!(bytes_of(&iso, &path), n.to_string().as_bytes());
    }
    let away = iso.tree().find("bundle/away").unwrap_err();
    assert_eq!(away, FindError::Outside);
    assert_eq!(iso.tree().find("bundle/absolute").unwrap_err(), FindError::Outside);
    let target = &iso.tree().get("bundle/long-target").unwrap().kind;
    assert_eq!(*target, Kind::Link(long_target));
}

#[test]
fn an_image_without_rock_ridge_shows_its_plain_names() {
    let sources = Sources::new();
    sources.add("folder/readme.txt", b"plain");
    let iso = Iso::open(&sources.iso_with(&["--norock", "-iso-level", "1"])).unwrap();
    assert_eq!(bytes_of(&iso, "folder/readme.txt"), b"plain");
}

#[test]
fn directories_that_were_relocated_are_shown_where_they_belong() {
    let sources = Sources::new();
    sources.add("1/2/3/4/5/6/7/8/9/10/11/12/file", b"deep");
    let iso = Iso::open(&sources.iso_with(&["-R", "-rr_reloc_dir", "moved"])).unwrap();
    assert_eq!(bytes_of(&iso, "1/2/3/4/5/6/7/8/9/10/11/12/file"), b"deep");
    // The root, twelve directories and the file; nothing is shown twice.
    assert_eq!(iso.tree().iter().count(), 14);
}

#[test]
fn the_modification_time_is_that_of_the_file() {
    let sources = Sources::new();
    sources.add("f", b"");
    let when = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_773_374_229);
    let file = fs::File::options().write(true).open(sources.tree().join("f")).unwrap();
    file.set_modified(when).unwrap();
    let iso = Iso::open(&sources.iso()).unwrap();
    let modified = iso.tree().get("f").unwrap().modified.unwrap();
    assert_eq!(modified.as_second(), 1_773_374_229);
}

/// Takes up to a minute and 4 GiB of disk: xorriso writes the holes of a sparse file.
#[test]
#[ignore = "builds an image of more than 4 GiB"]
fn a_file_of_more_than_4_gib_is_read_to_its_last_byte() {
    let sources = Sources::new();
    let size = (4 << 30) + 123_457_u64;
    sources.add("harvester-release.yaml", b"harvester: v1\n");
    sources.add("bundle/huge.tar.zst", b"first");
    let huge = sources.tree().join("bundle/huge.tar.zst");
    let file = fs::File::options().write(true).open(huge).unwrap();
    file.set_len(size).unwrap();
    file.write_all_at(b"edge", (4 << 30) - 2).unwrap();
    file.write_all_at(b"last", size - 4).unwrap();
    let iso = Iso::open(&sources.iso()).unwrap();
    let content = iso.file("bundle/huge.tar.zst").unwrap();
    assert_eq!(content.size(), size);
    let read = |begin, length: u64| {
        let mut all = Vec::new();
        for extent in content.part(begin, length) {
            let mut part = vec![0; extent.length as usize];
            iso.source().file().read_exact_at(&mut part, extent.offset).unwrap();
            all.append(&mut part);
        }
        all
    };
    assert_eq!(read(0, 5), b"first");
    assert_eq!(read((4 << 30) - 2, 4), b"edge");
    assert_eq!(read(size - 4, 100), b"last");
}

#[test]
fn a_download_that_was_cut_off_says_so() {
    let path = Sources::sample();
    let iso = path.iso();
    let size = fs::metadata(&iso).unwrap().len();
    fs::File::options()
        .write(true)
        .open(&iso)
        .unwrap()
        .set_len(size / 2)
        .unwrap();
    let error = Iso::open(&iso).unwrap_err();
    assert!(matches!(error, IsoError::Truncated { actual, .. } if actual == size / 2));
    assert!(error.to_string().contains("download it again"), "{error}");
}

#[rstest]
#[case::empty("", "it ends before its volume descriptor")]
#[case::text(&"not an image ".repeat(9999), "it has no volume descriptor")]
fn a_foreign_file_says_so(#[case] content: &str, #[case] why: &str) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    let error = Iso::open(file.path()).unwrap_err();
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Iso::open("/does/not/exist.iso".as_ref()).unwrap_err();
    assert_eq!(error.to_string(), "failed to open /does/not/exist.iso");
    let error = Iso::open("/".as_ref()).unwrap_err();
    assert!(error.to_string().starts_with("failed to"), "{error}");
}

/// Where the root directory's records are, and the place of the first record with that name in it.
fn record_of(image: &[u8], name: &[u8]) -> usize {
    let root = u32::from_le_bytes(image[16 * 2048 + 158..][..4].try_into().unwrap()) as usize * 2048;
    let mut at = root;
    while image[at] != 0 {
        if &image[at + 33..][..name.len()] == name {
            return at;
        }
        at += usize::from(image[at]);
    }
    panic!("no such record");
}

#[test]
fn a_directory_that_contains_itself_is_an_error_not_a_loop() {
    let mut image = IMAGE.clone();
    let root = image[16 * 2048 + 158..][..4].to_vec();
    let at = record_of(&image, b"BUNDLE");
    image[at + 2..at + 6].copy_from_slice(&root);
    let error = Iso::read(Bytes(image)).unwrap_err();
    assert!(
        error.to_string().contains("/bundle: the directory contains itself"),
        "{error}"
    );
}

#[test]
fn data_outside_of_the_image_is_an_error() {
    let mut image = IMAGE.clone();
    let at = record_of(&image, b"ROOTFS");
    image[at + 2..at + 6].copy_from_slice(&[0xff; 4]);
    let error = Iso::read(Bytes(image)).unwrap_err();
    assert!(
        error.to_string().contains("a file in it ends after the image"),
        "{error}"
    );
    let mut image = IMAGE.clone();
    let at = record_of(&image, b"BUNDLE");
    image[at + 10..at + 14].copy_from_slice(&[0xff; 4]);
    let error = Iso::read(Bytes(image)).unwrap_err();
    assert!(
        error.to_string().contains("the directory ends after the image"),
        "{error}"
    );
}

static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let sources = Sources::sample();
    sources.link("a-link", "bundle/metadata.yaml");
    fs::read(sources.iso()).unwrap()
});

/// Reads all that can be read, as a client that trusts the image would.
fn read_everything(image: Vec<u8>) -> Result<usize, IsoError> {
    let iso = Iso::read(Bytes(image))?;
    let mut read = 0;
    for (path, node) in iso.tree().iter() {
        let _ = iso.tree().find(path);
        if let Kind::File(_) = node.kind {
            // Texts are short; the rest is only looked at.
            read += iso.text(path, 100_000).map_or(0, |text| text.len());
        }
    }
    Ok(read)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_bytes_change_reading_ends_in_a_value_or_an_error(
        // Most of the image is file data; descriptors and directories are in front.
        changes in prop::collection::vec((prop_oneof![16 * 2048..70 * 2048_usize, 0..1_000_000_usize], any::<u8>()), 1..40),
    ) {
        let mut image = IMAGE.clone();
        for (at, value) in changes {
            if let Some(byte) = image.get_mut(at) {
                *byte = value;
            }
        }
        let _ = read_everything(image);
    }

    #[test]
    fn wherever_it_is_cut_off_an_image_is_refused(end in 0_usize..3_000_000) {
        let mut image = IMAGE.clone();
        prop_assume!(end < image.len());
        image.truncate(end);
        prop_assert!(read_everything(image).is_err());
    }

    #[test]
    fn noise_after_a_volume_descriptor_is_read_without_harm(noise in prop::collection::vec(any::<u8>(), 0..20_000), root in 16_u8..30) {
        let mut image = IMAGE[..18 * 2048].to_vec();
        image.extend(noise);
        // The volume shall have the size that is there, so that reading continues to the root.
        let blocks = u32::try_from(image.len() / 2048).unwrap().to_le_bytes();
        image[16 * 2048 + 80..][..4].copy_from_slice(&blocks);
        image[16 * 2048 + 158] = root;
        let _ = read_everything(image);
    }
}
