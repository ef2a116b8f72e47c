//! What `release inspect` prints about an ISO.

use std::io::Write;

use release::{
    inspect::{Depth, InspectError, Inspection, inspect},
    iso::Iso,
    manifest::Sha512Sum,
    testing::{Sources, sample_archive, sample_system},
};
use rstest::rstest;

const SYSTEM: &str = "rootfs.squashfs";
const COMMON: &str = "bundle/harvester/images/harvester-images-v1.8.0.tar.zst";

fn look(sources: &Sources) -> Result<Inspection, InspectError> {
    inspect(&Iso::open(&sources.iso()).unwrap(), Depth::Whole, None)
}

fn look_quickly(sources: &Sources) -> Inspection {
    inspect(&Iso::open(&sources.iso()).unwrap(), Depth::Quick, None).unwrap()
}

/// Bytes that are nothing.
fn noise() -> Vec<u8> {
    (0..200_000_u32)
        .flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect()
}

#[rstest]
#[case::noise_as_the_system(SYSTEM, noise(), "rootfs.squashfs in the image: it is no squashfs")]
#[case::half_a_system(SYSTEM, sample_system()[..400_000].to_vec(), "it is cut off: it has 400000 bytes")]
#[case::nothing_as_the_system(SYSTEM, Vec::new(), "it begins with nothing")]
#[case::noise_as_an_archive(
    COMMON,
    noise(),
    "harvester-images-v1.8.0.tar.zst in the image is no archive of images, or is damaged"
)]
#[case::nothing_as_an_archive(COMMON, Vec::new(), "no archive of images, or is damaged")]
fn u12_a_file_of_other_bytes_is_a_problem_also_at_a_quick_look(
    #[case] path: &str,
    #[case] content: Vec<u8>,
    #[case] expected: &str,
) {
    let sources = Sources::sample();
    sources.add(path, &content);
    for found in [look(&sources).unwrap(), look_quickly(&sources)] {
        let problems = found.problems.join("\n");
        assert!(problems.contains(expected), "{problems}");
        assert_eq!(found.problems.len(), 1, "{problems}");
    }
}

#[rstest]
#[case::cut_off(sample_archive(&["docker.io/rancher/harvester:v1.8.0"])[..100].to_vec(), "is damaged")]
#[case::of_other_images(sample_archive(&["docker.io/rancher/harvester:v1.8.0"]), "lacks 1 of the 2 images on its list, for example docker.io/rancher/pause:3.6")]
#[case::no_images(zstd::encode_all([0; 1024].as_slice(), 3).unwrap(), "neither a manifest.json nor an index.json")]
fn u12_an_archive_is_unpacked_and_compared_with_its_list(#[case] content: Vec<u8>, #[case] expected: &str) {
    let sources = Sources::sample();
    sources.add(COMMON, &content);
    let problems = look(&sources).unwrap().problems.join("\n");
    assert!(problems.contains(expected), "{problems}");
    let quick = look_quickly(&sources);
    assert_eq!(quick.problems, [""; 0]);
    assert!(
        quick.not_checked.iter().any(|part| part.contains(COMMON)),
        "{:?}",
        quick.not_checked
    );
}

#[test]
fn u12_lists_without_images_are_problems() {
    let sources = Sources::sample();
    sources.add("bundle/harvester/images-lists/harvester-images-v1.8.0.txt", b"\n");
    sources.add("bundle/harvester/images-lists-archive/current/image_list_all.txt", b"");
    let problems = look(&sources).unwrap().problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems.iter().all(|problem| problem.ends_with("names no image")),
        "{problems:?}"
    );
}

#[test]
fn u12_the_sha512_is_that_of_the_file_and_another_one_is_a_problem() {
    let sources = Sources::sample();
    let iso = sources.iso();
    let printed = std::process::Command::new("sha512sum").arg(&iso).output().unwrap();
    let expected = String::from_utf8(printed.stdout).unwrap();
    let expected: Sha512Sum = expected.split_whitespace().next().unwrap().parse().unwrap();
    let found = inspect(&Iso::open(&iso).unwrap(), Depth::Whole, None).unwrap();
    assert_eq!(found.sha512.as_ref(), Some(&expected));
    assert!(
        found
            .not_checked
            .iter()
            .any(|part| part.contains("compare its SHA-512"))
    );
    let with = |sum: &Sha512Sum| inspect(&Iso::open(&iso).unwrap(), Depth::Whole, Some(sum)).unwrap();
    assert_eq!(with(&expected).problems, [""; 0]);
    let mut file = std::fs::OpenOptions::new().append(true).open(&iso).unwrap();
    file.write_all(&[1; 2048]).unwrap();
    drop(file);
    let problems = with(&expected).problems.join("\n");
    assert!(
        problems.contains("the file is damaged, or of another release"),
        "{problems}"
    );
}

#[test]
fn a_whole_release_has_no_problems() {
    let found = look(&Sources::sample()).unwrap();
    assert_eq!(found.problems, [] as [&str; 0]);
    assert_eq!(found.release.harvester, "v1.8.0");
    assert_eq!(found.os_size, Some(800_000));
    let archives: Vec<_> = found
        .archives
        .iter()
        .map(|a| (a.group.as_str(), a.size, a.images))
        .collect();
    let size = Some(800_000);
    let expected = [
        ("agent", size, Some(1)),
        ("common", size, Some(2)),
        ("rke2", size, Some(1)),
    ];
    assert_eq!(archives, expected);
    let lists: Vec<_> = found
        .image_lists
        .iter()
        .map(|l| (l.version.as_str(), l.images))
        .collect();
    assert_eq!(lists, [("current", 4), ("v1.7.1", 4)]);
}

#[test]
fn all_that_is_missing_is_reported_at_once() {
    let sources = Sources::sample();
    sources.remove("rootfs.squashfs");
    sources.remove("bundle/harvester/images/harvester-images-v1.8.0.tar.zst");
    sources.add(
        "bundle/rancherd/images/rancherd-bootstrap-images-v1.8.0.txt",
        b"<html>\n",
    );
    let problems = look(&sources).unwrap().problems.join("\n");
    for name in [
        "/rootfs.squashfs",
        "/harvester-images-v1.8.0.tar.zst",
        "line 1 is not the name of an image",
    ] {
        assert!(problems.contains(name), "{problems}");
    }
    assert_eq!(problems.lines().count(), 3, "{problems}");
}

#[test]
fn an_iso_of_something_else_says_so() {
    let sources = Sources::new();
    sources.add("install.exe", b"");
    let error = look(&sources).unwrap_err().to_string();
    assert!(
        error.contains("not of a Harvester release: it has no harvester-release.yaml"),
        "{error}"
    );
}

#[test]
fn an_iso_to_install_over_the_network_is_of_no_use_here() {
    let sources = Sources::sample();
    sources.add("bundle/metadata.yaml", b"images: {}\n");
    let problems = look(&sources).unwrap().problems.join("\n");
    assert!(problems.contains("net-install"), "{problems}");
}
