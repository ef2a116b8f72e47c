//! What can go wrong with a control plane.

use std::{io, path::PathBuf};

/// Why something could not be done with a control plane.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The script itself could not be run.
    #[error("failed to run {script}")]
    Script {
        /// The script.
        script: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There are no programs to start.
    #[error(
        "there is no {0}; `hack/control-plane build` builds them (needs Go), or KUBEBUILDER_ASSETS names their directory"
    )]
    Missing(String),
    /// The script ended with an error.
    #[error("{script} {arguments} failed: {message}")]
    Refused {
        /// The script.
        script: &'static str,
        /// What it was asked.
        arguments: String,
        /// What it said.
        message: String,
    },
    /// The kubeconfig that it wrote is of no use.
    #[error("failed to use the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The API server refused a request.
    #[error("failed to {what}")]
    Api {
        /// What was asked.
        what: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// The audit log could not be read.
    #[error("failed to read the audit log {path}")]
    Audit {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
