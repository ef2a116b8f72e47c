//! Counters of a collection, as plain numbers: what publishes them gives them names.

use serde::{Deserialize, Serialize};

/// What was collected since the start of the process, and what is at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// Bytes of lines that were taken.
    pub bytes: u64,
    /// Lines that were taken.
    pub lines: u64,
    /// Lines that were removed because space was short.
    pub dropped_lines: u64,
    /// Bytes of these lines.
    pub dropped_bytes: u64,
    /// Places where lines are known to be missing.
    pub gaps: u64,
    /// Requests for logs.
    pub requests: u64,
    /// Requests that failed.
    pub failed_requests: u64,
    /// Logs that are being read.
    pub streams: u64,
    /// Logs that are followed.
    pub follows: u64,
    /// Bytes on the volume.
    pub stored_bytes: u64,
    /// Writes to the volume that failed.
    pub write_errors: u64,
}
