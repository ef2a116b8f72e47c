//! What a Harvester cluster does by itself, as actors on any Kubernetes API.
//!
//! [`Shape`] generates a cluster, [`cluster::install`] puts it onto an API, [`World`] makes it live: Jobs run, images
//! are imported, Rancher upgrades machines, nodes reboot, virtual machines migrate. Durations are
//! [`Durations`], failures are [`Troubles`]: both are data. The actors do not know the manager and communicate only
//! through the API; what the manager reads outside the API is [`Facts`].

mod actor;
pub mod cluster;
mod context;
mod durations;
mod error;
mod facts;
mod helm;
mod inbox;
mod index;
mod observed_plan;
mod programs;
mod release;
mod room;
mod schedule;
pub mod troubles;
mod watched;
mod world;

pub use actor::saboteur::FORGED;
pub use cluster::layout::{Layout, NodeLayout, PodLayout, VmLayout, VolumeLayout};
pub use cluster::{Definitions, Shape, added_copy, define_foreign, install, install_by};
pub use durations::Durations;
pub use error::{Error, Rke2NotRestarted};
pub use facts::{Facts, RepositoryError};
pub use programs::{PrintedLine, ProgramStep};
pub use release::{Release, image_list};
pub use troubles::Troubles;
pub use world::{Real, World};
