//! The pure core: what to do next, given what is observed.
//!
//! [`decide`](decide::decide) is a total function of a time and an [`Observed`](observed::Observed) value. It has no
//! client, no clock, no randomness and no async, and it returns data: the next status, what to change, and for every
//! non-action a reason.

pub mod announce;
pub mod before;
pub mod chart;
pub mod decide;
pub mod decision;
pub mod draft;
pub mod image;
pub mod look_back;
pub mod node;
pub mod observed;
pub mod phase;
pub mod pipeline;
pub mod preflight;
pub mod retry;
pub mod shared;
pub mod undo;

pub use decide::decide;
pub use decision::{Action, Child, Decision, Need};
pub use observed::Observed;
