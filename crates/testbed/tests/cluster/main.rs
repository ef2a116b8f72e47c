//! What only a real Kubernetes control plane can show. Skipped with one line where there is none; `make test-cluster`
//! insists on it.

// Everything here is a test, also what is not marked as one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod access;
mod bench;
mod chart;
mod contract;
mod control_plane;
mod crash;
mod embedded;
mod harvester;
mod network;
mod process;
mod repository;
mod upgrade;
mod webhook;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One control plane at a time: several on a small machine would only take each other's time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // It guards nothing that a failed test could have left half done.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
