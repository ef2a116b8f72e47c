//! Tests of `world` through its public surface, in one binary: linking is most of what a test costs to build.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it leaves out"
)]

mod definitions;
mod evacuation;
mod jobs;
mod logs;
mod nodes;
mod planner;
mod platform;
mod storage;
mod support;
mod system_upgrade;
mod vms;
mod whole_upgrade;
