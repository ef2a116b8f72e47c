//! What only a real Kubernetes control plane can show. Skipped with one line where there is none; `make test-cluster`
//! insists on it.

// Everything here is a test, also what is not marked as one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod access;
mod bench;
mod builtin;
mod chart;
mod charts;
mod contract;
mod control_plane;
mod crash;
mod embedded;
mod harvester;
mod kubelets;
mod network;
mod nodes;
mod pods;
mod process;
mod repository;
mod upgrade;
mod webhook;

use std::sync::{Condvar, Mutex, PoisonError};

/// So many control planes at a time. A test waits more than it works, but on a small machine more of them would only take
/// each other's time.
const AT_ONCE: usize = 2;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// The right to start a control plane, until it is dropped.
struct Turn;

/// Waits for a turn.
fn turn() -> Turn {
    // A failed test leaves a number behind that is right: its turn is dropped with it.
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut running = ENDED
        .wait_while(running, |running| *running >= AT_ONCE)
        .unwrap_or_else(PoisonError::into_inner);
    *running += 1;
    Turn
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}
