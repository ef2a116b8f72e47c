//! What the collector and its shell exchange: requests, responses, lines to keep.

use crate::{line::Nanos, store::Append};

/// A log to read, with timestamps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What its response is known by.
    pub id: u64,
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The name of the container.
    pub container: String,
    /// The log of the start before.
    pub previous: bool,
    /// `sinceTime`: whole seconds.
    pub since: Option<Nanos>,
    /// `limitBytes`.
    pub limit: Option<u64>,
    /// The response does not end while the container runs.
    pub follow: bool,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response<'a> {
    /// More bytes of the log.
    Bytes(&'a [u8]),
    /// The log has ended. Nothing says why.
    End,
    /// The API or the node cannot be reached, or the response broke off.
    Away,
    /// The API refuses: the pod or that log of it does not exist.
    Refused,
}

/// What is to be done.
#[derive(Debug, Default)]
pub struct Step {
    /// Logs to read.
    pub requests: Vec<Request>,
    /// Requests to end, by their ids. Their responses are not wanted any more.
    pub stops: Vec<u64>,
    /// Lines to keep.
    pub appends: Vec<Append>,
}

/// Counters of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of lines that were taken.
    pub bytes: u64,
    /// Lines that were taken.
    pub lines: u64,
    /// Places where lines are missing.
    pub gaps: u64,
    /// Requests.
    pub requests: u64,
    /// Requests that failed.
    pub failed_requests: u64,
}
