//! What the manager asks outside the Kubernetes API: the upgrade repository, the API servers' certificates and kubelets.

use std::{sync::Arc, time::Duration};

use clock::Clock;
use futures::future::BoxFuture;
use jiff::Timestamp;
use release::tls::{Identity, TlsError, Trust};

pub mod absolute;
mod http;
pub mod kubelets;
mod tls;

pub use kubelets::Kubelets;

/// How long one question may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a TLS handshake may take.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a file could not be read from the repository.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The repository has no such file.
    #[error("not found")]
    NotFound,
    /// Anything else, for people.
    #[error("{0}")]
    Other(String),
}

/// Why it is not known when the certificates of an API server end.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {source}")]
pub struct CertificateError {
    /// Where it was looked for, as `host:port`.
    pub address: String,
    /// What went wrong there.
    pub source: CertificateTrouble,
}

/// What goes wrong with an API server that is to show its certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateTrouble {
    /// It cannot be connected to, or breaks off.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It does not speak TLS as we do.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// It cannot be asked for a name.
    #[error("{0}")]
    Name(#[from] rustls::pki_types::InvalidDnsNameError),
    /// It has shown nothing that we can read.
    #[error("no certificate that can be read")]
    Unreadable,
    /// It says nothing.
    #[error("no TLS handshake within {} s", .0.as_secs())]
    Silent(Duration),
    /// Nothing listens there.
    #[error("connection refused")]
    Refused,
}

/// A kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubelet {
    /// The name of its node.
    pub node: String,
    /// The node's InternalIP, if it has one.
    pub address: Option<String>,
}

/// What is read from kubelets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletFile {
    /// How full its disks are.
    Summary,
    /// Its configuration. Before Kubernetes 1.33, reading it needs full access to kubelets.
    Configz,
}

impl KubeletFile {
    /// Its path, without the slash.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Summary => "stats/summary",
            Self::Configz => "configz",
        }
    }
}

/// Why a kubelet did not answer with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeletError {
    /// The kubelet refuses access.
    #[error("{0}")]
    Forbidden(String),
    /// Anything else, for people.
    #[error("{0}")]
    Other(String),
}

/// The world outside the Kubernetes API.
pub trait ExternalProbes: Send + Sync {
    /// Reads a file from the repository. With a certificate to trust, only from the server that has it.
    fn fetch<'a>(&'a self, url: &'a str, trust: Option<&'a Trust>) -> BoxFuture<'a, Result<Vec<u8>, FetchError>>;

    /// How many bytes a file in the repository has, without reading it.
    fn size<'a>(&'a self, url: &'a str, trust: Option<&'a Trust>) -> BoxFuture<'a, Result<u64, FetchError>>;

    /// Makes a certificate for the Service of a repository, with a new key.
    fn mint<'a>(&'a self, server_name: &'a str) -> BoxFuture<'a, Result<Identity, TlsError>>;

    /// When the certificate chain of an API server ends; its address is `host:port`, IPv6 in brackets.
    fn certificate_end<'a>(&'a self, address: &'a str) -> BoxFuture<'a, Result<Timestamp, CertificateError>>;

    /// Reads a file from a kubelet.
    fn kubelet<'a>(&'a self, kubelet: &'a Kubelet, file: KubeletFile) -> BoxFuture<'a, Result<Vec<u8>, KubeletError>>;
}

/// The real outside.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Replaces the host of the repository, and its scheme if it has one: a manager outside the cluster reaches it by
    /// port-forward. Whom the manager trusts stays the same.
    pub repo_host: Option<String>,
    /// Replaces the addresses of API servers, as `host:port`: not every machine reaches the network of the nodes.
    pub api_server: Option<String>,
    /// How kubelets are asked; without it they are not.
    pub kubelets: Option<Arc<Kubelets>>,
}

/// `host:port`, with brackets around IPv6 addresses.
pub(crate) fn with_port(address: &str, port: u16) -> String {
    if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

/// An answer of the repository, if it comes soon enough.
async fn in_time<T>(url: &str, answer: impl Future<Output = Result<T, FetchError>>) -> Result<T, FetchError> {
    match tokio::time::timeout(TIMEOUT, answer).await {
        Ok(result) => result,
        Err(_) => Err(FetchError::Other(format!(
            "{url}: no answer within {} s",
            TIMEOUT.as_secs()
        ))),
    }
}

impl ExternalProbes for Network {
    fn fetch<'a>(&'a self, url: &'a str, trust: Option<&'a Trust>) -> BoxFuture<'a, Result<Vec<u8>, FetchError>> {
        let url = self.reachable(url);
        Box::pin(async move { in_time(&url, http::get(&url, trust)).await })
    }

    fn size<'a>(&'a self, url: &'a str, trust: Option<&'a Trust>) -> BoxFuture<'a, Result<u64, FetchError>> {
        let url = self.reachable(url);
        Box::pin(async move { in_time(&url, http::size(&url, trust)).await })
    }

    fn mint<'a>(&'a self, server_name: &'a str) -> BoxFuture<'a, Result<Identity, TlsError>> {
        let made = release::tls::mint(&absolute::names_of(server_name), Clock::system().now());
        Box::pin(std::future::ready(made))
    }

    fn certificate_end<'a>(&'a self, address: &'a str) -> BoxFuture<'a, Result<Timestamp, CertificateError>> {
        let address = self.api_server.as_deref().unwrap_or(address);
        Box::pin(async move {
            let silent = |_| Err(CertificateTrouble::Silent(DIAL_TIMEOUT));
            let shown = tokio::time::timeout(DIAL_TIMEOUT, tls::chain_end(address)).await;
            shown.unwrap_or_else(silent).map_err(|source| CertificateError {
                address: address.to_owned(),
                source,
            })
        })
    }

    fn kubelet<'a>(&'a self, kubelet: &'a Kubelet, file: KubeletFile) -> BoxFuture<'a, Result<Vec<u8>, KubeletError>> {
        Box::pin(self.ask_kubelet(kubelet, file))
    }
}

impl Network {
    async fn ask_kubelet(&self, kubelet: &Kubelet, file: KubeletFile) -> Result<Vec<u8>, KubeletError> {
        let Some(kubelets) = &self.kubelets else {
            return Err(KubeletError::Other("this manager does not query kubelets".to_owned()));
        };
        match tokio::time::timeout(TIMEOUT, kubelets.ask(kubelet, file)).await {
            Ok(result) => result,
            Err(_) => Err(KubeletError::Other(format!("no answer within {} s", TIMEOUT.as_secs()))),
        }
    }

    fn reachable(&self, url: &str) -> String {
        let parts = url
            .split_once("://")
            .and_then(|(scheme, rest)| Some((scheme, rest.split_once('/')?.1)));
        match (&self.repo_host, parts) {
            (Some(host), Some((_, path))) if host.contains("://") => format!("{host}/{path}"),
            (Some(host), Some((scheme, path))) => format!("{scheme}://{host}/{path}"),
            _ => absolute::here(url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_outside_the_cluster_asks_another_host_for_the_same_path() {
        let inside = "http://up-repo.harvester-system/harvester-iso/harvester-release.yaml";
        assert_eq!(Network::default().reachable(inside), absolute::here(inside));
        let forwarded = Network {
            repo_host: Some("http://localhost".to_owned()),
            ..Network::default()
        };
        assert_eq!(
            forwarded.reachable(inside),
            "http://localhost/harvester-iso/harvester-release.yaml"
        );
        let by_either = Network {
            repo_host: Some("localhost".to_owned()),
            ..Network::default()
        };
        assert_eq!(by_either.reachable(inside), forwarded.reachable(inside));
        let secure = inside.replace("http:", "https:");
        assert!(by_either.reachable(&secure).starts_with("https://localhost/"));
    }
}
