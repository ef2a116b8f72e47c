//! A cluster as one plain, sorted, serialisable value: what checks look at.
//!
//! It comes from the cluster itself ([`live`]), from a file ([`file`]), a support bundle ([`bundle`]) or a folder
//! of manifests ([`folder`]). Values of
//! Secrets are never in it. A kind that could not be read says why; checks that need it then say so.

pub mod archive;
pub mod bundle;
pub mod file;
pub mod folder;
pub mod kinds;
pub mod listed;
pub mod live;
mod load;
mod mangled;
pub mod manifest;
mod place;
mod prune;
pub mod secret;

pub use archive::{ArchiveError, Limits};
pub use kinds::{Kind, Place, Snapshot, Source};
pub use listed::{Listed, ListedOnce, NoAnswer, Shared};
pub use load::{LoadError, load};
pub use secret::SecretSummary;
