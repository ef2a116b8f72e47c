//! The image: what its recipe says, and what it is built with.

use std::process::Command;

use crate::packaging::root;

#[test]
fn the_image_is_built_with_the_toolchain_of_the_tree_and_runs_as_an_unprivileged_user() {
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
        "ARG CDI_VERSION\n",
        "/package/definitions </cdi-operator.yaml",
        "COPY --from=cdi /cdi/ /usr/local/share/extra_manifests/cdi/",
    ] {
        assert!(recipe.contains(line), "the Dockerfile lacks {line}");
    }
}

/// Runs a script of `package/` with variables; returns its exit code and its output.
pub(crate) fn script(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
    let output = Command::new(root().join("package").join(name))
        .args(arguments)
        .env_remove("RELEASE")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap())
}

/// The build arguments of a release, as they reach the Dockerfile.
fn arguments_of(release: &str) -> Vec<(String, String)> {
    let (code, printed) = script("release-args", &[release], &[]);
    assert_eq!(code, 0, "{printed}");
    let pairs = printed
        .split("--build-arg ")
        .filter_map(|pair| pair.trim().split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn check(arguments: &[(String, String)]) -> (i32, String) {
    let variables: Vec<(&str, &str)> = arguments.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    script("release-check", &[], &variables)
}

#[test]
fn r34_base_system_addons_and_cdi_are_those_of_the_release_and_have_no_default() {
    let recipe = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    for name in ["HARVESTER_VERSION", "BASE_OS_IMAGE", "ADDONS_BRANCH", "CDI_VERSION"] {
        assert!(recipe.contains(&format!("ARG {name}\n")), "{name} is no argument");
        assert!(!recipe.contains(&format!("ARG {name}=")), "{name} has a default");
    }
    let releases = std::fs::read_to_string(root().join("package/releases")).unwrap();
    let releases: Vec<&str> = releases.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(releases.len() >= 4);
    for release in releases.iter().filter_map(|line| line.split(' ').next()) {
        assert_eq!(check(&arguments_of(release)), (0, String::new()), "{release}");
    }
    // An image for v1.9 does not get what belongs to v1.8.
    let of_older = arguments_of("v1.8.2");
    for (name, value) in of_older.iter().filter(|(name, _)| name != "HARVESTER_VERSION") {
        let mut mixed = arguments_of("v1.9.0-rc6");
        mixed
            .iter_mut()
            .filter(|(other, _)| other == name)
            .for_each(|(_, other)| value.clone_into(other));
        let (code, said) = check(&mixed);
        assert!(code == 1 && said.contains(value) && said.contains(name), "{said}");
        let without: Vec<_> = of_older.iter().filter(|(other, _)| other != name).cloned().collect();
        let (code, said) = check(&without);
        assert!(code == 1 && said.contains(&format!("must be given: {name} ")), "{said}");
    }
    let (code, said) = script("release-args", &["v1.7.0"], &[]);
    assert!(code == 1 && said.contains("no line for Harvester v1.7.0"), "{said}");
    // A branch says what it is built for; a tag needs an argument.
    let (code, said) = script("release-args", &[], &[]);
    assert!(
        code == 0 && said.contains("the image is for Harvester v1.8.2"),
        "{said}"
    );
    let (code, said) = script("release-args", &["", "v0.2.0"], &[]);
    assert!(code == 1 && said.contains("HARVESTER_VERSION="), "{said}");
}

#[test]
fn r55_the_definitions_of_cdi_are_those_that_the_chart_of_the_release_has() {
    for (release, cdi) in [("v1.8.0", "v1.62.0"), ("v1.8.2", "v1.64.0"), ("v1.9.0-rc6", "v1.65.0")] {
        let arguments = arguments_of(release);
        let given = arguments.iter().find(|(name, _)| name == "CDI_VERSION").unwrap();
        assert_eq!(given.1, cdi, "{release}");
    }
}

#[test]
fn r19_the_image_has_what_programs_of_the_node_are_linked_with_and_its_build_checks_it() {
    let recipe = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    let packages = recipe.lines().find(|line| line.starts_with("RUN packages=")).unwrap();
    for package in ["e2fsprogs", "rsync"] {
        assert!(packages.contains(package), "{packages}");
    }
    let programs = std::fs::read_to_string(root().join("package/programs")).unwrap();
    for program in ["mkfs.ext4", "rsync"] {
        let listed = programs.lines().any(|line| line.split(' ').next() == Some(program));
        assert!(listed, "{program} is not checked");
    }
    // The check runs them: a program without its libraries is none.
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for program in programs.lines().filter_map(|line| line.split(' ').next()) {
        if program.is_empty() || program.starts_with('#') || ["sh", "test"].contains(&program) {
            continue;
        }
        let fails = program == "rsync";
        std::fs::write(bin.join(program), format!("#!/bin/sh\nexit {}\n", i32::from(fails))).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(bin.join(program), mode).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let (code, said) = script("check", &[], &[("PATH", &path)]);
    assert!(code == 1 && said.contains("rsync --version fails"), "{said}");
}
