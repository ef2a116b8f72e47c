//! What tests of several crates share: a real Kubernetes control plane (a wrapper of `hack/control-plane`), the real
//! definitions of foreign kinds, a real containerd, archives of images.
//!
//! Tests of this tier run where its programs are at hand and say why when they are not; `make test-cluster` insists on
//! them. Everything is on loopback, and everything that was started ends with the process that started it.

pub mod archive;
mod audit;
pub mod containerd;
mod control_plane;
mod definitions;
mod error;
mod nodes;
pub mod rights;
mod tier;
mod writes;

pub use audit::{Request, Tally, tally};
pub use control_plane::{ControlPlane, Part, Program};
pub use definitions::{real_definitions, real_definitions_by_release};
pub use error::Error;
pub use nodes::Nodes;
pub use tier::is_wanted;
pub use writes::Writes;
