//! Whole upgrades in paused time, with something going wrong: the manager is the real one, the cluster is simulated.
//!
//! Every run is deterministic for its seed; a failure prints what was perturbed, so that it can be run again alone.

mod budget;
mod clean;
mod failure;
mod run;
mod sweep;
mod together;
mod user;
mod waiting;
