//! What a Harvester cluster does by itself, as actors on any Kubernetes API.
//!
//! [`Shape`] generates a cluster, [`cluster::install`] puts it onto an API, [`World`] makes it live: Jobs run, images
//! are imported, Rancher upgrades machines, nodes reboot, virtual machines move. How long things take is
//! [`Durations`], what goes wrong is [`Troubles`]: both are data. The actors know nothing of the manager and talk only
//! through the API; what the manager asks besides the API is [`Facts`].

mod actor;
pub mod cluster;
mod context;
mod durations;
mod error;
mod facts;
mod helm;
mod inbox;
mod observed_plan;
mod programs;
mod release;
mod schedule;
pub mod troubles;
mod watched;
mod world;

pub use actor::saboteur::FORGED;
pub use cluster::{Definitions, Shape, define_foreign, install, install_by};
pub use durations::Durations;
pub use error::{Error, Rke2NotRestarted};
pub use facts::{Facts, RepositoryError};
pub use programs::ProgramStep;
pub use release::{Release, image_list};
pub use troubles::Troubles;
pub use world::{Real, World};
