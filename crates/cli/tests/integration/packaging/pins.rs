//! The image of a release is made of what is pinned and of nothing else, and files say how they were made.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::packaging::{hack, image::script, root};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn sum() -> String {
    "0123456789abcdef".repeat(4)
}

/// What the build of a release gets when all is well.
fn pinned() -> Vec<(&'static str, String)> {
    let image = |name: &str| format!("registry.example/{name}@sha256:{}", sum());
    vec![
        ("RELEASE", "true".to_owned()),
        ("HARVESTER_VERSION", "v1.8.2".to_owned()),
        ("ADDONS_BRANCH", "v1.8.2".to_owned()),
        ("CDI_VERSION", "v1.64.0".to_owned()),
        ("RUST_IMAGE", image("rust:1.95")),
        ("GOLANG_IMAGE", image("golang:1.25")),
        ("BASE_IMAGE", image("base:16.0")),
        ("BASE_OS_IMAGE", image("os/v1.8/main/baseos:v1.8")),
        ("ADDONS_COMMIT", COMMIT.to_owned()),
        ("ADDONS_BRANCHES_BEFORE", "v1.7 v1.8".to_owned()),
        ("ADDONS_COMMITS_BEFORE", format!("v1.7={COMMIT},v1.8={COMMIT}")),
        ("CDI_SHA256", sum()),
        ("GIT_COMMIT", COMMIT.to_owned()),
        ("GIT_TREE_STATE", "clean".to_owned()),
        ("VERSION", "v0.2.0".to_owned()),
    ]
}

fn check(arguments: &[(&str, String)]) -> (i32, String) {
    let variables: Vec<(&str, &str)> = arguments.iter().map(|(name, value)| (*name, value.as_str())).collect();
    script("release-check", &[], &variables)
}

#[test]
fn s10_the_build_of_a_release_is_refused_unless_all_is_pinned() {
    assert_eq!(check(&pinned()), (0, String::new()));
    let with = |name: &str, value: &str| {
        let mut arguments = pinned();
        arguments
            .iter_mut()
            .filter(|(other, _)| *other == name)
            .for_each(|(_, old)| value.clone_into(old));
        check(&arguments)
    };
    for (name, value) in [
        ("RUST_IMAGE", "registry.example/rust:1.95"),
        ("GOLANG_IMAGE", "registry.example/golang@sha256:0123"),
        ("BASE_IMAGE", "registry.example/base:latest"),
        ("BASE_OS_IMAGE", "registry.example/os/v1.8/main/baseos:v1.8"),
        ("ADDONS_COMMIT", ""),
        ("ADDONS_COMMIT", "v1.8.2"),
        ("ADDONS_COMMITS_BEFORE", &format!("v1.7={COMMIT}")),
        ("CDI_SHA256", ""),
        ("GIT_COMMIT", "unknown"),
        ("GIT_TREE_STATE", "dirty"),
        ("VERSION", "dev"),
    ] {
        let (code, said) = with(name, value);
        assert!(
            code == 1 && said.contains(&format!(" {name}(")),
            "{name}={value}: {said}"
        );
    }
    let (code, said) = with("RELEASE", "yes");
    assert!(code == 1 && said.contains("RELEASE is yes"), "{said}");
    // The build of a branch may go without.
    let branch: Vec<_> = pinned()
        .into_iter()
        .take(4)
        .chain([pinned()[7].clone()])
        .skip(1)
        .collect();
    assert_eq!(check(&branch), (0, String::new()));
}

#[test]
fn s10_the_recipe_asks_for_all_pins_and_loads_nothing_by_a_name_that_moves() {
    let recipe = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    let stage = recipe
        .split("AS release\n")
        .nth(1)
        .unwrap()
        .split("\nFROM ")
        .next()
        .unwrap();
    for (name, _) in pinned() {
        assert!(
            stage.contains(&format!("ARG {name}\n")),
            "{name} does not reach release-check"
        );
    }
    let list = std::fs::read_to_string(root().join("package/pinned")).unwrap();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split_whitespace().next().unwrap();
        assert!(pinned().iter().any(|(known, _)| *known == name), "{name} is not tested");
    }
    let commands: Vec<&str> = recipe
        .lines()
        .filter(|line| !line.starts_with("# ") || line.starts_with("# syntax="))
        .collect();
    for moving in [
        "git clone",
        "go run",
        "# syntax=",
        "curl",
        "ADD https://github.com/harvester",
    ] {
        assert!(
            !commands.iter().any(|line| line.contains(moving)),
            "the Dockerfile has {moving}"
        );
    }
    let make = Command::new("make")
        .args(["-n", "docker-buildx", "IMG=registry.example/toolkit:v0"])
        .current_dir(root())
        .output()
        .unwrap();
    let said = String::from_utf8(make.stdout).unwrap();
    assert!(said.contains("--provenance=mode=max --sbom=true"), "{said}");
}

/// A folder of programs that stand for real ones.
fn programs(scripts: &[(&str, &str)]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in scripts {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
    }
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    (folder, path)
}

#[test]
fn s10_pins_are_looked_up_once_and_then_passed_to_every_build_of_the_release() {
    let sum = sum();
    let (_docker, path) = programs(&[
        ("docker", &format!("echo sha256:{sum}")),
        // An annotated tag is an object of its own; the commit is the second line.
        (
            "git",
            &format!("printf '%s\\t%s\\n' {} \"$4\" {COMMIT} \"$3\"", "f".repeat(40)),
        ),
        (
            "curl",
            "while [ \"$1\" != --output ]; do shift; done; echo definitions >\"$2\"",
        ),
    ]);
    let pins = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        pins.path(),
        "# kept\nv1.8.1 CDI_SHA256 other\nv1.8.2 CDI_SHA256 stale\n",
    )
    .unwrap();
    let place = pins.path().to_str().unwrap();
    let variables = [("PATH", path.as_str()), ("PINS", place)];

    let (code, said) = script("release-args", &["v1.8.2", "v0.2.0"], &[("PINS", place)]);
    let lacks = "lacks for Harvester v1.8.2: RUST_IMAGE GOLANG_IMAGE BASE_IMAGE BASE_OS_IMAGE ADDONS_COMMIT ADDONS_COMMITS_BEFORE (package/pin v1.8.2";
    assert!(code == 1 && said.contains(lacks), "{said}");

    let (code, said) = script("pin", &["v1.8.2"], &variables);
    assert_eq!(code, 0, "{said}");
    let written = std::fs::read_to_string(pins.path()).unwrap();
    assert!(
        written.starts_with("# kept\nv1.8.1 CDI_SHA256 other\n") && !written.contains("stale"),
        "{written}"
    );
    assert!(written.contains(&format!(
        "v1.8.2 BASE_IMAGE registry.suse.com/bci/bci-base:16.0@sha256:{sum}\n"
    )));

    let (code, printed) = script("release-args", &["v1.8.2", "v0.2.0"], &[("PINS", place)]);
    assert_eq!(code, 0, "{printed}");
    let given = printed
        .split("--build-arg ")
        .filter_map(|pair| pair.trim().split_once('='));
    let mut given: Vec<(&str, String)> = given.map(|(name, value)| (name, value.to_owned())).collect();
    assert!(given.contains(&("RELEASE", "true".to_owned())), "{printed}");
    assert!(
        given.contains(&("ADDONS_COMMITS_BEFORE", format!("v1.7={COMMIT},v1.8={COMMIT}"))),
        "{printed}"
    );
    // What make adds, and the Dockerfile's own default.
    given.extend(
        pinned()
            .into_iter()
            .filter(|(name, _)| ["GIT_COMMIT", "GIT_TREE_STATE", "VERSION", "ADDONS_BRANCHES_BEFORE"].contains(name)),
    );
    assert_eq!(check(&given), (0, String::new()));
}

/// A repository of addons with a tag; gives its place and the commit of the tag.
fn addons(folder: &Path) -> (PathBuf, String) {
    let repository = folder.join("addons");
    std::fs::create_dir(&repository).unwrap();
    git(&repository, &["init", "--quiet", "--initial-branch=main"]);
    let commit = commit(&repository, "first");
    git(&repository, &["tag", "v1.8.2"]);
    git(&repository, &["branch", "v1.7"]);
    (repository, commit)
}

fn git(repository: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.test"])
        .args(arguments)
        .current_dir(repository)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn commit(repository: &Path, content: &str) -> String {
    std::fs::write(repository.join("addon.yaml"), content).unwrap();
    git(repository, &["add", "--all"]);
    git(repository, &["commit", "--quiet", "--message", content]);
    git(repository, &["rev-parse", "HEAD"])
}

#[test]
fn s10_addons_are_those_of_the_commit_wherever_its_tag_has_moved() {
    let folder = tempfile::tempdir().unwrap();
    let (repository, first) = addons(folder.path());
    let second = commit(&repository, "second");
    git(&repository, &["tag", "--force", "v1.8.2"]);
    // What it would generate: what it was given, and how it was called.
    let (_go, path) = programs(&[("go", "cp addon.yaml \"$5\"; echo \"$GOFLAGS $GOPROXY\" >\"$5/how\"")]);
    let source = format!("file://{}", repository.display());
    let generate = |to: &str, commit: &str, before: &str| {
        let to = folder.path().join(to);
        let said = script(
            "addons",
            &[to.to_str().unwrap()],
            &[
                ("PATH", &path),
                ("ADDONS_SOURCE", &source),
                ("ADDONS_BRANCH", "v1.8.2"),
                ("ADDONS_COMMIT", commit),
                ("ADDONS_BRANCHES_BEFORE", "v1.7"),
                ("ADDONS_COMMITS_BEFORE", before),
            ],
        );
        let read = |name: &str| std::fs::read_to_string(to.join(name)).unwrap_or_default();
        (said.0, said.1, read("addon.yaml"), read("v1.7/addon.yaml"), read("how"))
    };
    let (code, said, addon, before, how) = generate("pinned", &first, &format!("v1.7={second}"));
    assert_eq!(
        (code, addon.as_str(), before.as_str()),
        (0, "first", "second"),
        "{said}"
    );
    assert_eq!(how, "-mod=vendor off\n");
    let (code, said, addon, before, _) = generate("moving", "", "");
    assert_eq!(
        (code, addon.as_str(), before.as_str()),
        (0, "second", "first"),
        "{said}"
    );
    assert!(said.contains(&format!("v1.8.2 is commit {second}")), "{said}");
    let (code, said, ..) = generate("none", COMMIT, "");
    assert_ne!(code, 0, "{said}");
}

#[test]
fn a_statement_names_what_was_built_and_from_which_commit() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("hack")).unwrap();
    std::fs::copy(hack("provenance"), folder.path().join("hack/provenance")).unwrap();
    for file in ["Cargo.lock", "rust-toolchain.toml"] {
        std::fs::copy(root().join(file), folder.path().join(file)).unwrap();
    }
    std::fs::write(folder.path().join(".gitignore"), "dist\n").unwrap();
    git(folder.path(), &["init", "--quiet"]);
    let source = commit(folder.path(), "all");
    let dist = folder.path().join("dist");
    std::fs::create_dir(&dist).unwrap();
    std::fs::write(dist.join("installer.yaml"), "abc").unwrap();
    let speak = || {
        let mut command = Command::new(folder.path().join("hack/provenance"));
        command.arg(dist.join("installer.yaml")).arg(&dist);
        command
            .env("SOURCE_URI", "https://example.test/toolkit")
            .output()
            .unwrap()
    };
    let statement: Value = serde_json::from_slice(&speak().stdout).unwrap();
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(statement["subject"].as_array().unwrap().len(), 1);
    assert_eq!(statement["subject"][0]["name"], "installer.yaml");
    assert_eq!(statement["subject"][0]["digest"]["sha256"], abc);
    assert_eq!(statement["predicateType"], "https://slsa.dev/provenance/v1");
    let built = &statement["predicate"]["buildDefinition"]["resolvedDependencies"];
    assert_eq!(built[0]["digest"]["gitCommit"], source.as_str());
    assert_eq!(built[0]["uri"], "git+https://example.test/toolkit");
    // What no commit has cannot be named.
    std::fs::write(folder.path().join("addon.yaml"), "changed").unwrap();
    let refused = speak();
    assert!(!refused.status.success() && refused.stdout.is_empty());
}
