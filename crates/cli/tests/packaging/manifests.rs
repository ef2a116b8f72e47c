//! The manifests in the source tree are copies of what the code generates.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it measured"
)]

use std::path::Path;

#[test]
fn the_manifests_are_those_that_the_code_generates() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    for (path, generated) in cli::manifests::files().unwrap() {
        let committed = std::fs::read_to_string(config.join(path)).unwrap_or_default();
        assert!(
            committed == generated,
            "config/{path} is not what the code generates: run `make manifests` and commit the result"
        );
    }
}

#[test]
fn nothing_else_lies_among_the_generated_crds() {
    let bases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/crd/bases");
    let mut found: Vec<String> = std::fs::read_dir(bases)
        .unwrap()
        .map(|entry| format!("crd/bases/{}", entry.unwrap().file_name().to_string_lossy()))
        .collect();
    found.sort();
    let files = cli::manifests::files().unwrap();
    let generated: Vec<&str> = files
        .iter()
        .map(|(path, _)| *path)
        .filter(|path| path.starts_with("crd/bases/"))
        .collect();
    assert_eq!(found, generated);
}
