//! The image: its root file system assembled from this machine's programs, and what its recipe says.

use std::process::Command;

use crate::{hack, root, skipped};

#[test]
fn the_toolkit_runs_in_the_root_file_system_of_its_image() {
    let binary = assert_cmd::cargo::cargo_bin("upgrade-toolkit");
    let output = Command::new(hack("rootfs-test")).arg(binary).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(3) {
        return skipped("the test of the image's root file system is", &said);
    }
    assert!(output.status.success(), "{said}");
}

#[test]
fn the_image_is_built_with_the_toolchain_of_the_tree_and_runs_as_nobody_in_particular() {
    let recipe = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    let toolchain = std::fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
    let channel = toolchain.split('"').nth(1).unwrap();
    let minor = channel.rsplit_once('.').unwrap().0;
    assert!(
        recipe.contains(&format!("/rust:{minor}\n")),
        "the Dockerfile builds with another Rust than {channel}"
    );
    let settings: Vec<&str> = recipe
        .lines()
        .filter(|line| line.starts_with("USER ") || line.starts_with("CMD "))
        .collect();
    assert_eq!(settings, ["USER 1000:1000", "CMD [\"manager\"]"]);
    // Every image is an argument with a version, so that it can be pinned by digest from outside.
    for line in recipe.lines().filter(|line| line.starts_with("FROM ")) {
        assert!(line.starts_with("FROM ${"), "{line}");
    }
    for line in recipe
        .lines()
        .filter(|line| line.starts_with("ARG ") && line.contains("_IMAGE="))
    {
        let version = line.rsplit_once(':').unwrap().1;
        assert!(version.contains('.') && !version.contains("latest"), "{line}");
    }
}
