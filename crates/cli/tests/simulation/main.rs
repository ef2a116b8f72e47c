//! Whole upgrades in paused time, with something going wrong: the manager is the real one, the cluster is simulated.
//!
//! Every run is deterministic for its seed; a failure prints what was perturbed, so that it can be run again alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it measured"
)]

mod adoption;
mod budget;
mod clean;
mod components;
mod failure;
mod invariants;
mod log;
mod matrix;
mod membership;
mod moments;
mod perturbation;
mod rbac;
mod run;
mod stations;
mod steps;
mod sweep;
mod timeline;
mod together;
mod told;
mod two_plans;
mod user;
mod waiting;
mod weaknesses;
mod workloads;
