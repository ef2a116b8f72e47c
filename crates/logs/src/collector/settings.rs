//! How often and how much is read.

use crate::line::{Nanos, SECOND};

/// Numbers of the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Logs that are read at the same time.
    pub reads: usize,
    /// Logs that are followed at the same time. Each costs one of the 128 inotify instances of root on its node.
    pub follows: usize,
    /// The interval for pods of the upgrade that are young or write, and for pods that are about to go.
    pub quick: Nanos,
    /// The interval for other pods of the upgrade.
    pub own: Nanos,
    /// The shortest interval for components of the cluster.
    pub system_min: Nanos,
    /// The longest one.
    pub system_max: Nanos,
    /// A pod is young for so long.
    pub young: Nanos,
    /// Bytes of a response. It grows where one second has more.
    pub limit: u64,
    /// A longer file is not followed: the kubelet rotates it at 10 MiB, and a follow loses lines there.
    pub follow_limit: u64,
    /// A follow that is silent for so long is checked.
    pub follow_silence: Nanos,
    /// Lines of components of the cluster that are older than this moment are not collected.
    pub system_since: Option<Nanos>,
    /// Tries to read the log of a container that has ended.
    pub tries: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            reads: 4,
            follows: 8,
            quick: SECOND / 2,
            own: SECOND * 9 / 10,
            system_min: SECOND,
            system_max: 10 * SECOND,
            young: 60 * SECOND,
            limit: 256 * 1024,
            follow_limit: 8 * 1024 * 1024,
            follow_silence: 10 * SECOND,
            system_since: None,
            tries: 10,
        }
    }
}
