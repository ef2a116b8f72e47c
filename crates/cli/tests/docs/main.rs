//! The documentation is true: its commands run, its links lead somewhere, and nothing that can be set is left out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod console;
mod crates;
mod fragilities;
mod links;
mod listed;
mod page;
mod row_index;
mod rows;
mod run;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each test uses its own part of it")]
mod support;
mod world;
