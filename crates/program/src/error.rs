//! What can go wrong in a program of a Job.

use std::path::PathBuf;

/// The result of anything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a program stopped, or tries again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Kubernetes API refused or was not reached.
    #[error("failed to {what}: {}", in_plain_words(source))]
    Api {
        /// What was attempted, as a verb and its object: "read Node node-1".
        what: String,
        /// The reason.
        #[source]
        source: Box<kube::Error>,
    },
    /// A file of the host or the container could not be read or written.
    #[error("failed to {what} {}: {source}", path.display())]
    File {
        /// What was attempted: "read", "write", "replace".
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// A transient error: the step is retried until its deadline.
    #[error("{0}")]
    Transient(String),
    /// A permanent error: the program ends.
    #[error("{0}")]
    Permanent(String),
    /// Content does not match the record: it is not used, and the program ends.
    #[error("{0}")]
    Refused(String),
    /// A step did not get done in time.
    #[error("step {step} did not end within {limit:?}: {waiting}")]
    Deadline {
        /// The step's name.
        step: &'static str,
        /// How long it had.
        limit: std::time::Duration,
        /// What it waited for at the end.
        waiting: String,
    },
}

impl Error {
    /// A failed request.
    #[must_use]
    pub fn api(what: impl Into<String>, source: kube::Error) -> Self {
        Self::Api {
            what: what.into(),
            source: Box::new(source),
        }
    }

    /// A failed access to a file.
    #[must_use]
    pub fn file(what: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::File {
            what,
            path: path.into(),
            source,
        }
    }

    /// Whether the API server says that this is not allowed. One that has just started says so of everything, until it
    /// has read its roles; so this is retried for a while.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(source.as_ref(), kube::Error::Api(status) if status.code == 403))
    }

    /// Whether trying again may help. While RKE2 is upgraded the API server restarts, and requests fail in many ways
    /// that say nothing about the request.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => matches!(status.code, 401 | 408 | 409 | 429 | 500..=599),
                kube::Error::BuildRequest(_) | kube::Error::SerdeError(_) => false,
                _ => true,
            },
            Self::Transient(_) => true,
            Self::File { .. } | Self::Permanent(_) | Self::Refused(_) | Self::Deadline { .. } => false,
        }
    }
}

/// The server's message, without the types around it.
fn in_plain_words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}
