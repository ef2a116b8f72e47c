//! What `release inspect` prints about an ISO.

use release::{
    inspect::{InspectError, Inspection, inspect},
    iso::Iso,
    testing::Sources,
};

fn look(sources: &Sources) -> Result<Inspection, InspectError> {
    inspect(&Iso::open(&sources.iso()).unwrap())
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
