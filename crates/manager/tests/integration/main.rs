//! Tests of `manager` through its public surface, in one binary: linking is most of what a test costs to build.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking, and says what it leaves out"
)]

mod capi_version;
mod certificates;
mod facts;
mod field_validation;
mod metrics;
mod objects;
mod own_image;
mod repo_secret;
mod s07_tls;
mod support;
mod webhook_admission;
mod webhook_certificate;
mod webhook_facts;
mod webhook_fuzz;
mod webhook_https;
mod webhook_powers;
