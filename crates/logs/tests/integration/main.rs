//! Tests of `logs` through its public surface, in one binary: linking is most of what a test costs to build.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod interleavings;
mod secrets;
mod support;
mod volume;
