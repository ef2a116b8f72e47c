//! Container images on a node: [`prepare`] brings those of a release onto it before anything is changed, [`clean`]
//! removes those of the release before.

pub mod archive;
pub mod clean;
pub mod cleanup;
pub mod crictl;
pub mod ctr;
mod download;
pub mod eligibility;
mod file;
mod pinned;
mod pipe;
mod plain_file;
pub mod prepare;
pub mod presence;
pub mod progress;
mod release_files;
pub mod repository;
pub mod store;

pub use prepare::{Prepare, Summary};
pub use repository::{Patience, Repository};
pub use store::ImageStore;
