//! The framework of programs that run in Jobs.
//!
//! A program is a table of named [`step::Step`]s that are done in order, each safe to repeat and with a deadline. While a
//! step waits it says for what: in the log, in the termination message and in an annotation of its pod that the manager
//! shows as `waitingFor`. What a program does is not here: `node` and `cluster-upgrade` have their tables.

pub mod board;
pub mod error;
pub mod plan_events;
pub mod progress;
pub mod release_files;
pub mod report;
pub mod step;
pub mod watches;

pub use error::{Error, Result};
