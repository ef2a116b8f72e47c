//! How much the store may take, on the volume and in memory.

/// Bytes of a MiB.
const MIB: u64 = 1024 * 1024;
/// The volume, unless the chart says otherwise.
pub const VOLUME: u64 = 1024 * MIB;

/// Quotas and sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes on the volume, in all.
    pub total: u64,
    /// Bytes on the volume of the segments of one pod.
    pub per_pod: u64,
    /// A journal that is longer is begun again.
    pub journal: u64,
    /// Bytes of lines of one log that become a segment.
    pub segment: usize,
    /// Bytes of lines in memory, of all logs together. When there are more, the longest become segments. When they cannot
    /// be written, the store takes no more lines.
    pub memory: usize,
}

impl Limits {
    /// Limits for a volume of so many bytes. The file system takes a part of it.
    #[must_use]
    pub fn for_volume(bytes: u64) -> Self {
        let total = bytes / 100 * 85;
        Self {
            total,
            per_pod: total / 4,
            journal: (total / 64).clamp(64 * 1024, 12 * MIB),
            segment: 512 * 1024,
            memory: 6 * 1024 * 1024,
        }
    }

    /// What segments may take: a journal is written again before the old one is removed.
    #[must_use]
    pub fn for_segments(&self) -> u64 {
        self.total.saturating_sub(2 * self.journal)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::for_volume(VOLUME)
    }
}
