//! The repository: serves the files of an image over HTTP, straight from the image.
//!
//! Unprivileged and read-only: no mount, no loop device. What a request gets is decided by pure functions
//! (`request`, `path`, `range`, `answer`, `listing`); `connection` and `send` only carry it out. Bytes of files go
//! from the page cache to the socket in the kernel, so a connection needs the same few kilobytes whatever it serves.

use std::time::Duration;

mod answer;
mod connection;
mod listing;
mod path;
mod range;
mod request;
mod send;
mod server;

pub use server::serve;

/// Where the files of the image are, as upgrades expect them.
pub const PREFIX: &str = "harvester-iso";

/// Connections served at once. Every node of a cluster needs one or two; more than this get 503.
pub const CONNECTIONS: usize = 512;
/// Connections that are being told 503 at once; more than this are closed without a word.
pub const REFUSALS: usize = 128;
/// Bytes of the head of a request; a longer one gets 431.
pub const HEADER_BYTES: usize = 16 * 1024;
/// Headers of a request; more get 431.
pub const HEADERS: usize = 64;
/// How long the head of a request may take to come; then it gets 408.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may rest between two requests.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may take nothing of what it asked for.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long requests may go on after the end was asked for. Kubernetes kills after 30 s.
pub const GRACE: Duration = Duration::from_secs(25);
/// Names shown of one folder.
pub const LISTED_NAMES: usize = 10_000;

/// What clients may take. The default is made of the constants of this module; tests are less patient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the constants of the same names say it")]
pub struct Limits {
    pub connections: usize,
    pub header_timeout: Duration,
    pub idle_timeout: Duration,
    pub stall_timeout: Duration,
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS,
            header_timeout: HEADER_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            stall_timeout: STALL_TIMEOUT,
            grace: GRACE,
        }
    }
}
