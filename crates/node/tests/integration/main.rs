//! Tests of `node` through its public surface, in one binary: linking is most of what a test costs to build.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it leaves out"
)]

mod containerd;
mod fetch;
mod host;
mod os_image;
mod prepare;
mod s07_repository;
mod s07_tls;
mod support;
mod vm;
