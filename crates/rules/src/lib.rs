//! Rules that several crates decide by, each in one place. Pure: no client, no clock, no randomness, no async.
//!
//! A rule is here when more than one crate needs it: the manager and a program of a Job, a check and the simulated
//! cluster. What only one of them needs stays with it.

pub mod capacity;
pub mod deadlines;
pub mod drain_taint;
pub mod eligibility;
pub mod error_text;
pub mod estimate;
pub mod evacuation;
pub mod event;
pub mod event_object;
pub mod fleet;
pub mod longhorn_health;
pub mod migration;
pub mod progress;
pub mod quantity;
pub mod room;
pub mod selector;
pub mod stale_images;
pub mod step;
pub mod suc_plan;
pub mod throttle;
pub mod tries;
pub mod version;
pub mod waiting;

pub use event::{PlanEvent, Severity};
pub use waiting::Waiting;
