//! Tests of `release` through its public surface, in one binary: linking is most of what a test costs to build.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it leaves out"
)]

mod inspect;
mod iso;
mod large_file;
mod manifest;
mod nginx;
mod repo_files;
mod repo_hostile;
mod repo_tls;
mod support;
