//! What goes into the binary: the bill of materials, no dependency that nobody uses or that is not allowed, and the
//! Rust it needs.

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;

use crate::{hack, root};

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
