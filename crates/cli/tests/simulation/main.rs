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
mod charts;
mod clean;
mod components;
mod failure;
mod forged;
mod invariants;
mod log;
mod many_vms;
mod matrix;
mod membership;
mod moments;
mod nodes;
mod older;
mod perturbation;
mod rbac;
mod remains;
mod replaced;
mod run;
mod setbacks;
mod stations;
mod steps;
mod stopping;
mod sweep;
mod timeline;
mod together;
mod told;
mod trust;
mod two_plans;
mod user;
mod waiting;
mod watched;
mod weaknesses;
mod workloads;
mod writes;
