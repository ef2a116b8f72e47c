//! The programs of a node, whole: on the embedded API, on a node that is a folder, in paused time. And what they leave
//! on a node, with the real tools where this machine has them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking and says what it left out"
)]

mod fake_node;
mod files;
mod grub;
mod guard;
#[allow(dead_code, reason = "shared with the tests of VMs")]
#[path = "../vm/harness.rs"]
mod harness;
mod kinds;
mod needed;
mod post_drain;
mod pre_drain;
mod pre_drain_again;
mod programs;
mod single_node;
