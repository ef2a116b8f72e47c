//! What people install and how it is packed: generated manifests, chart, installer, image, manual pages, completions and
//! the plugin of kubectl.

mod chart;
mod documents;
mod elsewhere;
mod hardening;
mod image;
mod installer;
mod manifests;
mod network;
mod network_rules;
mod oci_archive;
mod oci_image;
mod pins;
mod pods;
mod rights;
mod shell;
mod supply;

use std::path::{Path, PathBuf};

/// The root of the source tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A program of this tree that is called by people.
fn hack(name: &str) -> PathBuf {
    root().join("hack").join(name)
}

/// Says why a test does nothing, on standard error: what a passing test prints is captured.
fn skipped(what: &str, why: &str) {
    use std::io::Write;
    drop(writeln!(std::io::stderr(), "{what} skipped: {}", why.trim()));
}
