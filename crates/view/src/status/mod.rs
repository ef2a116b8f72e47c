//! The state of an upgrade for people and scripts: a model that is made from a snapshot ([`model`]), as text ([`text`]) and as a
//! line per change ([`lines`]).

pub mod lines;
pub mod model;
mod nodes;
#[cfg(test)]
mod tests;
pub mod text;
mod vms;

pub use model::{Assessment, NodeView, PhaseView, StatusView, VmsView, WaitView, choose, of_plan, size_of};
