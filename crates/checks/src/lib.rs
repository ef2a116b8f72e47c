//! Checks as pure functions: what may not be, given what is.
//!
//! No client, no clock, no randomness, no async: the caller passes a [`Cluster`], a plain value, and gets back what
//! is wrong. A new check is one function and one line in a table.

pub mod admission;
pub mod cluster;
pub mod doctor;
pub mod field_error;
pub mod finding;
pub mod known_issues;
pub mod postflight;
pub mod preflight;
pub mod refusal;

pub use cluster::Cluster;
pub use field_error::FieldError;
pub use snapshot::{Listed, ListedOnce, NoAnswer, Shared};
