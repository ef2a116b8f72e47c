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

#[test]
fn the_image_takes_the_definitions_of_cdi_and_nothing_else_from_its_release() {
    let folder = tempfile::tempdir().unwrap();
    let sieve = |input: &str| {
        let file = folder.path().join("input");
        std::fs::write(&file, input).unwrap();
        let output = Command::new(root().join("package/definitions"))
            .stdin(std::fs::File::open(&file).unwrap())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(said).unwrap())
    };
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: cdis\n";
    let operator = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: cdi-operator\nspec:\n  kind: CustomResourceDefinition\n";
    let all = format!("---\n{operator}---\n{definition}---\n{operator}---\n{definition}");
    assert_eq!(sieve(&all), (0, format!("---\n{definition}---\n{definition}")));
    let backwards = format!("kind: CustomResourceDefinition\nmetadata: {{}}\n---\n{operator}");
    assert_eq!(
        sieve(&backwards),
        (0, "---\nkind: CustomResourceDefinition\nmetadata: {}\n".to_owned())
    );
    assert_eq!(sieve(operator), (1, "definitions: there are none\n".to_owned()));
    let recipe = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    for line in [
        "ARG CDI_VERSION=v",
        "/package/definitions </cdi-operator.yaml",
        "COPY --from=cdi /cdi/ /usr/local/share/extra_manifests/cdi/",
    ] {
        assert!(recipe.contains(line), "the Dockerfile lacks {line}");
    }
}
