//! What the manager asks outside the Kubernetes API: the upgrade repository and the API servers' certificates.

use std::{fmt, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;

mod http;
mod tls;

/// How long one question may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a TLS handshake may take.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a file could not be read from the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// The repository has no such file.
    NotFound,
    /// Anything else, for people.
    Other(String),
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("not found"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// The world outside the Kubernetes API.
pub trait Outside: Send + Sync {
    /// Reads a file from the repository.
    fn fetch<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Vec<u8>, FetchError>>;

    /// How many bytes a file in the repository has, without reading it.
    fn size<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<u64, FetchError>>;

    /// When the certificate chain of an API server ends; its address is `host:port`, IPv6 in brackets.
    fn certificate_end<'a>(&'a self, address: &'a str) -> BoxFuture<'a, Result<Timestamp, String>>;
}

/// The real outside.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Replaces scheme and host of the repository: a manager outside the cluster reaches it by port-forward.
    pub repo_host: Option<String>,
    /// Replaces the addresses of API servers, as `host:port`: not every machine reaches the network of the nodes.
    pub api_server: Option<String>,
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

impl Outside for Network {
    fn fetch<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Vec<u8>, FetchError>> {
        let url = self.reachable(url);
        Box::pin(async move { in_time(&url, http::get(&url)).await })
    }

    fn size<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<u64, FetchError>> {
        let url = self.reachable(url);
        Box::pin(async move { in_time(&url, http::size(&url)).await })
    }

    fn certificate_end<'a>(&'a self, address: &'a str) -> BoxFuture<'a, Result<Timestamp, String>> {
        let address = self.api_server.as_deref().unwrap_or(address);
        Box::pin(async move {
            match tokio::time::timeout(DIAL_TIMEOUT, tls::chain_end(address)).await {
                Ok(result) => result,
                Err(_) => Err(format!(
                    "{address}: no TLS handshake within {} s",
                    DIAL_TIMEOUT.as_secs()
                )),
            }
        })
    }
}

impl Network {
    fn reachable(&self, url: &str) -> String {
        let path = url
            .split_once("://")
            .and_then(|(_, rest)| rest.split_once('/'))
            .map(|(_, path)| path);
        match (&self.repo_host, path) {
            (Some(host), Some(path)) => format!("{host}/{path}"),
            _ => url.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_outside_the_cluster_asks_another_host_for_the_same_path() {
        let inside = "http://up-repo.harvester-system/harvester-iso/harvester-release.yaml";
        assert_eq!(Network::default().reachable(inside), inside);
        let forwarded = Network {
            repo_host: Some("http://localhost".to_owned()),
            ..Network::default()
        };
        assert_eq!(
            forwarded.reachable(inside),
            "http://localhost/harvester-iso/harvester-release.yaml"
        );
    }
}
