//! What goes into the binary: the bill of materials, no dependency that is unused or not allowed, and the
//! Rust it needs.

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;

use crate::packaging::{hack, root};

#[test]
fn the_bill_of_materials_names_what_the_binary_is_made_of_and_is_always_the_same() {
    let bill = || {
        let output = Command::new(hack("sbom")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let text = bill();
    assert_eq!(text, bill());
    let bill: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(bill["bomFormat"], "CycloneDX");
    assert_eq!(bill["metadata"]["component"]["name"], "upgrade-toolkit");
    let components = bill["components"].as_array().unwrap();
    let names: BTreeSet<&str> = components.iter().filter_map(|one| one["name"].as_str()).collect();
    for (name, is_part) in [
        ("kube", true),
        ("ring", true),
        ("plan", true),
        ("proptest", false),
        ("assert_cmd", false),
    ] {
        assert_eq!(names.contains(name), is_part, "{name}");
    }
    let known: BTreeSet<&str> = components.iter().filter_map(|one| one["bom-ref"].as_str()).collect();
    for one in bill["dependencies"].as_array().unwrap() {
        for part in one["dependsOn"].as_array().unwrap() {
            assert!(known.contains(part.as_str().unwrap()), "{part}");
        }
    }
    for one in components.iter().filter(|one| one["hashes"].is_null()) {
        let ours = root().join("crates").join(one["name"].as_str().unwrap());
        assert!(ours.exists(), "{one} is not ours, and nothing says what it is");
    }
}

#[test]
fn every_dependency_is_used_and_explained() {
    let output = Command::new(hack("unused-dependencies")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_dependency_has_a_licence_a_name_and_a_source_that_are_allowed() {
    let output = Command::new(hack("allowed-dependencies")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let rules = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let stricter = tempfile::NamedTempFile::new().unwrap();
    let text = rules.replace("\"ISC\",", "").replace("\"cel\", ", "");
    std::fs::write(stricter.path(), text).unwrap();
    let output = Command::new(hack("allowed-dependencies"))
        .arg(stricter.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        said.contains("licence that is not allowed: Apache-2.0 AND ISC"),
        "{said}"
    );
    assert!(said.contains("is banned") && said.contains("wanted by cel"), "{said}");
}

/// A database of advisories with files of a name and a text each.
fn database(advisories: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (package, facts) in advisories {
        let place = folder.path().join("crates").join(package);
        std::fs::create_dir_all(&place).unwrap();
        let number = std::fs::read_dir(&place).unwrap().count() + 1;
        let identity = format!("RUSTSEC-2026-{number:04}-{package}");
        let text = format!(
            "```toml\n[advisory]\nid = \"{identity}\"\npackage = \"{package}\"\ndate = \"2026-01-0{number}\"\n\
             {facts}\n```\n\n# What is wrong with {package}\n"
        );
        std::fs::write(place.join(format!("{identity}.md")), text).unwrap();
    }
    folder
}

/// Compares a lock file of ours with a database; returns the exit code and the output.
fn advisories(database: Option<&std::path::Path>, variables: &[(&str, &str)]) -> (i32, String) {
    let lock = tempfile::NamedTempFile::new().unwrap();
    let package = |(name, version): (&str, &str)| {
        format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = \"registry+https://here\"\n")
    };
    let packages = [
        ("leaky", "1.2.3"),
        ("mended", "2.0.1"),
        ("older", "0.3.9"),
        ("left-alone", "1.0.0"),
    ];
    std::fs::write(lock.path(), packages.map(package).concat()).unwrap();
    let mut command = Command::new(hack("advisories"));
    command
        .arg(lock.path())
        .env_remove("ADVISORY_DB")
        .env_remove("ADVISORIES");
    if let Some(database) = database {
        command.env("ADVISORY_DB", database);
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap())
}

#[test]
fn s10_a_dependency_that_an_advisory_is_about_is_named_and_a_patched_one_is_not() {
    let others = [
        ("mended", "[versions]\npatched = [\"^1.9.4\", \">= 2.0.1\"]"),
        (
            "older",
            "[versions]\npatched = [\">= 0.5.0-rc.2\"]\nunaffected = [\"< 0.4\"]",
        ),
        ("older", "withdrawn = \"2026-02-01\"\n[versions]\npatched = []"),
        ("elsewhere", "[versions]\npatched = []"),
        (
            "left-alone",
            "informational = \"unmaintained\"\n[versions]\npatched = []",
        ),
    ];
    let (code, said) = advisories(Some(database(&others).path()), &[]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("4 packages were compared with 4 advisories"), "{said}");
    assert!(
        said.contains("left-alone 1.0.0: RUSTSEC-2026-0001-left-alone (unmaintained"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 2, "{said}");

    let mut all = others.to_vec();
    all.push((
        "leaky",
        "[versions]\npatched = [\">= 1.2.4\", \"~1.1.9\"]\nunaffected = [\"< 1.0.0\"]",
    ));
    let (code, said) = advisories(Some(database(&all).path()), &[]);
    assert_eq!(code, 1, "{said}");
    let expected =
        "leaky 1.2.3: RUSTSEC-2026-0001-leaky (affected): What is wrong with leaky; patched: >= 1.2.4, ~1.1.9";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn s10_a_missing_database_is_said_aloud_and_a_wrong_one_fails() {
    let (code, said) = advisories(None, &[]);
    assert!(code == 0 && said.contains("NOT CHECKED: ADVISORY_DB"), "{said}");
    let (code, said) = advisories(None, &[("ADVISORIES", "required")]);
    assert!(code == 1 && said.contains("NOT CHECKED"), "{said}");
    let empty = tempfile::tempdir().unwrap();
    let (code, said) = advisories(Some(empty.path()), &[]);
    assert!(code == 2 && said.contains("is no database"), "{said}");
    let script = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    for check in ["hack/advisories", "hack/allowed-dependencies"] {
        assert!(script.lines().any(|line| line == check), "CI does not run {check}");
    }
}

/// The oldest Rust that is promised is the one that everything is built and tested with.
#[test]
fn the_rust_that_is_promised_is_the_one_that_is_tested() {
    let toolchain = std::fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
    let channel = toolchain.split('"').nth(1).unwrap();
    let promised = env!("CARGO_PKG_RUST_VERSION");
    assert!(
        channel == promised || channel.strip_suffix(".0") == Some(promised),
        "{channel} is not {promised}"
    );
}
