//! The pure core: what to do next, given what is observed.
//!
//! [`decide`](decide::decide) is a total function of a moment and an [`Observed`](observed::Observed) value. It has no
//! client, no clock, no randomness and no async, and it returns data: the next status, what to change, and for every
//! non-action a reason.

pub mod announce;
pub mod deadlines;
pub mod decide;
pub mod decision;
pub mod draft;
pub mod event_object;
pub mod image;
pub mod node;
pub mod observed;
pub mod phase;
pub mod pipeline;
pub mod preflight;
pub mod retry;
pub mod shared;
pub mod stale_images;
pub mod tries;
pub mod undo;
pub mod version;

pub use decide::decide;
pub use decision::{Action, Child, Decision, Need, PlanEvent, Severity};
pub use observed::Observed;
