//! Tests of `checks` through its public surface, in one binary: linking is most of what a test costs to build.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking, and says what it leaves out"
)]

mod crd;
mod create_cluster;
mod create_plan;
mod create_real;
mod create_release;
mod create_upstream;
mod doctor;
mod documented;
mod preflight;
mod small_tables;
mod support;
mod update_delete;
