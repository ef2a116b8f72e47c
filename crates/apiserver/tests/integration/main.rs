//! Tests of `apiserver` through its public surface, in one binary: linking is most of what a test costs to build.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it leaves out"
)]

mod admission;
mod contract;
mod controller;
mod http;
mod kubectl;
mod logs;
mod malformed_requests;
mod python_client;
mod rbac;
mod simulation;
mod support;
