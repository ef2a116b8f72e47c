//! The repository: serves the files of an image over HTTP, straight from the image.
//!
//! Unprivileged and read-only: no mount, no loop device. What a request gets is decided by pure functions
//! (`request`, `path`, `range`, `answer`, `listing`); `connection` and `send` only carry it out. Bytes of files go
//! from the page cache to the socket in the kernel, so a connection needs the same few kilobytes whatever it serves. Over TLS
//! they pass through a buffer of each connection, of one size whatever it serves.

mod answer;
mod channel;
mod connection;
mod listing;
mod path;
mod range;
mod request;
mod sealed;
mod send;
mod server;

pub use server::{Doors, runtime, serve};
pub use serving::Limits;

/// Where the files of the image are, as upgrades expect them.
pub const PREFIX: &str = "harvester-iso";

/// Headers of a request; more get 431.
const HEADERS: usize = Limits::REPOSITORY.headers;
/// Names shown of one folder.
pub const LISTED_NAMES: usize = 10_000;
