//! The programs about VMs, whole, on the embedded API and in paused time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod detector;
mod harness;
mod needed;
mod restore;
