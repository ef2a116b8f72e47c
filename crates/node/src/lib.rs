//! What runs on a node or in a Job.
//!
//! A program is a table of named [`step::Step`]s that are done in order, each safe to repeat and with a deadline.
//! What a step decides is a pure function over what it has seen, so that a rehearsal decides the same; what it does
//! to a host or a cluster goes through a small trait. While a step waits it says for what: in the log, in the
//! termination message and in an annotation of its pod that the manager shows as `waitingFor`.

pub mod attend;
mod configure_steps;
pub mod drain_steps;
pub mod host;
pub mod images;
pub mod limits;
pub mod node_run;
pub mod os_steps;
pub mod post_drain;
pub mod pre_drain;
pub mod rke2_steps;
mod shared_steps;
pub mod single_node;
pub mod skip_manifests;
pub mod version_guard;
pub mod vm;
