//! What can go wrong between an actor and the API.

/// Why an actor could not do what it wanted. Actors log it and try again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused or did not answer.
    #[error("failed to {what}")]
    Api {
        /// What was tried.
        what: String,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
    /// An object cannot be addressed: its kind is not one this crate knows, or it lacks a name.
    #[error("cannot address object: {0}")]
    Unaddressable(String),
    /// An object could not be written as JSON.
    #[error("failed to serialise")]
    Serialise(#[from] serde_json::Error),
    /// RKE2 of a real node was not restarted.
    #[error(transparent)]
    Rke2(#[from] Rke2NotRestarted),
}

/// RKE2 of a real node was not restarted.
#[derive(Debug, thiserror::Error)]
#[error("failed to restart RKE2 of node {node} as {version}: {why}")]
pub struct Rke2NotRestarted {
    /// The node.
    pub node: String,
    /// The version of its kubelet that was asked for.
    pub version: String,
    /// Why not.
    pub why: String,
}

impl Error {
    /// Wraps an answer of the API.
    pub(crate) fn api(what: impl Into<String>, source: kube::Error) -> Self {
        Self::Api {
            what: what.into(),
            source: Box::new(source),
        }
    }

    /// The HTTP code of the API's refusal.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }
}

/// What keeps an actor from the API keeps a program from it.
impl From<Error> for program::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Api { what, source } => Self::Api { what, source },
            other => Self::Permanent(other.to_string()),
        }
    }
}

/// Short for the results of this crate.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;
