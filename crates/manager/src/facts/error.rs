//! Why a question could not be answered. What is shown to people is the text; it is kept with the plan's facts.

use api::quoted::quoted;
use release::{bundle::BundleError, image_list::ImageListError, manifest::ManifestError, tls::TlsError};

use super::kubelets::KubeletFault;
use crate::external_probes::{CertificateError, FetchError};

/// Why a question could not be answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    /// There is no certificate for the repository.
    #[error("no certificate for the repository could be made: {0}")]
    Mint(#[from] TlsError),
    /// The API server has not listed something.
    #[error("failed to list {what}: {source}")]
    List { what: String, source: Box<kube::Error> },
    /// None of the API servers has shown its certificate.
    #[error("no certificates found for kubernetes API server: {}", joined(.0))]
    Certificates(Vec<CertificateError>),
    /// Some kubelets have not said what they were asked.
    #[error("{}", joined(.0))]
    Kubelets(Vec<KubeletFault>),
    /// The repository has not given a file.
    #[error("failed to read {url}: {source}")]
    Fetch { url: String, source: FetchError },
    /// The repository has not said how large a file is.
    #[error("failed to ask for the size of {url}: {source}")]
    Size { url: String, source: FetchError },
    /// A file is not text.
    #[error("{url} is not text")]
    NotText { url: String },
    /// A file is no manifest.
    #[error("failed to read {url}: {source}")]
    Manifest { url: String, source: ManifestError },
    /// A file does not describe a release.
    #[error("{url} is not release metadata: {}", quoted(&source.to_string()))]
    Metadata {
        url: String,
        source: Box<serde_saphyr::Error>,
    },
    /// A file is no list of images.
    #[error("{url} is not a list of images: {}", quoted(&source.to_string()))]
    ImageList { url: String, source: ImageListError },
    /// A file does not say which archives there are.
    #[error("{url} cannot be used: {}", quoted(&source.to_string()))]
    Bundle { url: String, source: BundleError },
}

impl Unanswered {
    pub(super) fn list(what: impl Into<String>, source: kube::Error) -> Self {
        Self::List {
            what: what.into(),
            source: Box::new(source),
        }
    }
}

fn joined<E: ToString>(errors: &[E]) -> String {
    errors.iter().map(E::to_string).collect::<Vec<_>>().join("; ")
}
