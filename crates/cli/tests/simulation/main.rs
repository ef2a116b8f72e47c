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
mod doctor;
mod estimate;
mod every_wait_is_named;
mod failing_writes;
mod failure;
mod forecast;
mod forged;
mod in_parallel;
mod invariants;
mod leftovers;
mod log;
mod many_vms;
mod matrix;
mod membership;
mod nodes;
mod older_managers;
mod other_plans_and_nodes;
mod perturbation;
mod postflight;
mod preflight;
mod rbac;
mod replaced;
mod run;
mod scale;
mod status_history;
mod steps;
mod stopping;
mod sweep;
mod timeline;
mod trust;
mod two_plans;
mod user;
mod wait_order;
mod waiting;
mod watched;
mod weaknesses;
mod workloads;
mod writes;
