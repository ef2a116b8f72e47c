//! Files of the node: where paths lead, and what is written.

use std::os::unix::fs::symlink;

use super::*;

fn host() -> (tempfile::TempDir, HostRoot) {
    let directory = tempfile::tempdir().unwrap();
    let root = HostRoot::new(directory.path().join("host"));
    fs::create_dir(root.mounted_at()).unwrap();
    (directory, root)
}

#[test]
fn a_link_of_the_node_leads_where_it_leads_on_the_node() {
    let (outside, root) = host();
    fs::write(outside.path().join("secret"), "of the container").unwrap();
    root.write("/data/real/file", b"x", 0o644).unwrap();
    symlink("/data/real", root.mounted_at().join("absolute")).unwrap();
    symlink("../../../../../../secret", root.mounted_at().join("data/climbs")).unwrap();
    symlink("real/../real/file", root.mounted_at().join("data/relative")).unwrap();
    assert_eq!(root.read("/absolute/file").unwrap().unwrap(), b"x");
    assert_eq!(root.read("/data/relative").unwrap().unwrap(), b"x");
    assert_eq!(root.read("/data/climbs").unwrap(), None);
    assert_eq!(root.read("/../secret").unwrap(), None);
    root.write("/data/climbs", b"y", 0o644).unwrap();
    assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"of the container");
    assert_eq!(fs::read(root.mounted_at().join("secret")).unwrap(), b"y");
}

#[test]
fn links_in_circles_are_an_error_and_not_for_ever() {
    let (_keep, root) = host();
    symlink("/b", root.mounted_at().join("a")).unwrap();
    symlink("/a", root.mounted_at().join("b")).unwrap();
    let error = root.read("/a").unwrap_err();
    assert!(error.to_string().contains("too many symbolic links"), "{error}");
}

#[test]
fn a_file_that_is_as_wanted_is_not_touched() {
    let (_keep, root) = host();
    assert_eq!(root.write("/etc/x", b"1", 0o600).unwrap(), Change::Written);
    let before = fs::metadata(root.resolve("/etc/x").unwrap()).unwrap();
    assert_eq!(root.write("/etc/x", b"1", 0o644).unwrap(), Change::None);
    let after = fs::metadata(root.resolve("/etc/x").unwrap()).unwrap();
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
}

#[test]
fn a_file_is_replaced_in_one_move_and_keeps_its_mode() {
    let (_keep, root) = host();
    root.write("/etc/x", b"1", 0o640).unwrap();
    let path = root.resolve("/etc/x").unwrap();
    let mut reader = File::open(&path).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    root.write("/etc/x", b"22", 0o777).unwrap();
    let mut seen = String::new();
    io::Read::read_to_string(&mut reader, &mut seen).unwrap();
    assert_eq!(seen, "1", "who reads meanwhile reads the old file whole");
    let now = fs::metadata(&path).unwrap();
    assert_ne!(now.ino(), inode);
    assert_eq!(now.permissions().mode() & MODE_BITS, 0o640);
    assert_eq!(root.names_in("/etc").unwrap(), ["x"], "nothing is left beside it");
}

#[test]
fn a_link_is_removed_and_not_what_it_leads_to() {
    let (_keep, root) = host();
    root.write("/data/file", b"x", 0o644).unwrap();
    symlink("/data/file", root.mounted_at().join("link")).unwrap();
    symlink("/data", root.mounted_at().join("folder")).unwrap();
    assert_eq!(root.remove("/link").unwrap(), Change::Written);
    assert_eq!(root.remove_dir("/folder").unwrap(), Change::Written);
    assert_eq!(root.read("/data/file").unwrap().unwrap(), b"x");
}

#[test]
fn what_is_not_a_name_below_the_root_is_never_removed() {
    let (_keep, root) = host();
    // Asked for only, not removed: a mistake here must not cost the machine that tests it.
    for none in ["/", "", ".", "..", "//", "/..", "/data/..", "/../etc", "a/../../b"] {
        assert!(root.entry(none).is_err(), "{none:?}");
    }
    for name in ["/etc", "etc", "//etc/", "/./etc", "/a/b/c"] {
        let entry = root.entry(name).unwrap();
        assert!(
            entry.starts_with(root.mounted_at()) && entry != root.mounted_at(),
            "{name:?}: {entry:?}"
        );
    }
}

#[test]
fn what_is_not_there_need_not_be_removed() {
    let (_keep, root) = host();
    assert_eq!(root.remove("/no/such").unwrap(), Change::None);
    root.write("/d/e/f", b"", 0o644).unwrap();
    assert_eq!(root.remove("/d/e/f").unwrap(), Change::Written);
    assert_eq!(root.remove_dir("/d").unwrap(), Change::Written);
    assert!(!root.exists("/d").unwrap());
}

#[test]
fn s13_a_link_in_the_place_of_the_draft_is_not_written_through() {
    let (directory, root) = host();
    let shadow = directory.path().join("shadow");
    fs::write(&shadow, "root:x").unwrap();
    fs::create_dir(root.mounted_at().join("tmp")).unwrap();
    // The name is known, and every user who may write to the folder can create it first.
    symlink(&shadow, root.mounted_at().join("tmp/.script.upgrade-toolkit")).unwrap();
    root.write("/tmp/script", b"of root", 0o700).unwrap();
    assert_eq!(fs::read_to_string(&shadow).unwrap(), "root:x");
    assert_eq!(root.read_text("/tmp/script").unwrap().as_deref(), Some("of root"));
    // What blocks the path and cannot be removed is reported, not used.
    fs::create_dir_all(root.mounted_at().join("tmp/.other.upgrade-toolkit/x")).unwrap();
    assert!(root.write("/tmp/other", b"of root", 0o700).is_err());
}
