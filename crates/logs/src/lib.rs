//! The logs of an upgrade: which pods are read, how their lines are masked, kept and shown.
//!
//! [`collector`] decides what to read, [`store`] keeps it on a volume, [`archive`] and [`merged`] show it. Only
//! [`program`] and what it runs talk to a cluster, and only [`disk`] to a file system; nothing here decides anything about an upgrade.

pub mod archive;
pub mod collector;
pub mod disk;
pub mod key;
pub mod line;
pub mod mask;
pub mod memory;
pub mod merged;
pub mod metrics;
#[cfg(feature = "cluster")]
mod owners;
#[cfg(feature = "cluster")]
pub mod program;
#[cfg(feature = "cluster")]
pub mod selection;
#[cfg(feature = "cluster")]
pub mod shell;
pub mod store;

pub use archive::{Archive, ArchiveError};
pub use collector::{Collector, Settings};
pub use disk::{Disk, Folder};
pub use key::{Class, StreamInfo, StreamKey};
pub use line::Nanos;
pub use memory::Memory;
pub use metrics::Metrics;
#[cfg(feature = "cluster")]
pub use program::Collection;
#[cfg(feature = "cluster")]
pub use selection::Selection;
pub use store::{Limits, Store, StoreError, View};
