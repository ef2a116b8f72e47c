//! The rules of each phase, one file each.

pub mod cluster_upgrade;
pub mod finalize;
pub mod image_cleanup;
pub mod image_preload;
pub mod initialize;
pub mod iso_download;
pub mod metadata_populate;
pub mod node_upgrade;
pub mod release_digests;
mod repo_certificate;
pub mod repo_create;

mod hooks;
mod node_progress;
mod suc_plan;
