//! Requests to kubelets, sent directly and over verified TLS. `nodes/proxy` of the API server would also work, but the right
//! to use it includes the right to run any command in any pod.
//!
//! Root of a node can read what is sent to its kubelet. So the manager sends not its own token but one of a service account that
//! may read `nodes/stats` and `nodes/configz` and nothing else, made for the purpose and valid for ten minutes.

use std::{error::Error, path::PathBuf, time::Duration};

use api::quoted::{LONGEST_NAME, plain, quoted};
use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, Config, api::PostParams, client::Body, config::AuthInfo};
use tokio::{sync::Mutex, time::Instant};

use rules::error_text::with_causes;

use super::{Kubelet, KubeletError, KubeletFile, with_port};

/// Where kubelets listen.
const PORT: u16 = 10250;
/// How long a token is valid: the shortest that Kubernetes gives.
const TOKEN_SECONDS: i64 = 600;
/// The most that a kubelet may say. Some hundred pods take less than half of it.
const LARGEST_BODY_BYTES: usize = 4 * 1024 * 1024;
/// How long a token is used.
const TOKEN_USED: Duration = Duration::from_secs(300);

/// Whose token is sent to kubelets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Our own, of whatever kind.
    Own,
    /// A token of this service account.
    Account {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// Why there is no token for kubelets.
#[derive(Debug, thiserror::Error)]
#[error(
    "no token of ServiceAccount {account}: {}; install the chart of this release, which has it, or \
     name another with --kubelet-service-account",
    with_causes(source)
)]
struct TokenError {
    /// The account, with its namespace.
    account: String,
    source: kube::Error,
}

/// Why an answer could not be read to its end: perhaps it has none. Its words are not ours, so they are cut short.
#[derive(Debug, thiserror::Error)]
#[error("{}", plain(&.0.to_string(), LONGEST_NAME))]
struct BodyError(#[source] Box<dyn Error + Send + Sync>);

/// How kubelets are asked.
pub struct Kubelets {
    client: Client,
    config: Config,
    credentials: Credentials,
    address: Option<String>,
    token: Mutex<Option<(AuthInfo, Instant)>>,
}

impl std::fmt::Debug for Kubelets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubelets")
            .field("credentials", &self.credentials)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Kubelets {
    /// Trusts the authority that the API server is trusted by, and gets tokens through a client.
    #[must_use]
    pub fn new(client: Client, mut config: Config, credentials: Credentials) -> Self {
        // Neither is for kubelets.
        config.tls_server_name = None;
        config.proxy_url = None;
        Self {
            client,
            config,
            credentials,
            address: None,
            token: Mutex::default(),
        }
    }

    /// Asks all kubelets at one address, as `host:port`.
    #[must_use]
    pub fn at(self, address: Option<String>) -> Self {
        Self { address, ..self }
    }

    /// Trusts another authority, in a file.
    #[must_use]
    pub fn trusting(mut self, authority: Option<PathBuf>) -> Self {
        if authority.is_some() {
            self.config.root_cert = None;
            self.config.root_cert_file = authority;
        }
        self
    }

    /// Reads a file.
    pub(super) async fn ask(&self, kubelet: &Kubelet, file: KubeletFile) -> Result<Vec<u8>, KubeletError> {
        let other = |what: String| KubeletError::Other(what);
        let address = match (&self.address, &kubelet.address) {
            (Some(address), _) => address.clone(),
            (None, Some(address)) => with_port(address, PORT),
            (None, None) => {
                let node = &kubelet.node;
                return Err(other(format!("Node {node} has no InternalIP in status.addresses")));
            }
        };
        let mut config = self.config.clone();
        config.cluster_url = format!("https://{address}")
            .parse()
            .map_err(|error| other(format!("{address}: {error}")))?;
        config.auth_info = self.auth_info().await.map_err(|error| other(error.to_string()))?;
        // The caller retries later.
        config.default_retry = false;
        let client = Client::try_from(config).map_err(|error| other(with_causes(&error)))?;
        let request = http::Request::get(format!("/{}", file.path()));
        let request = request.body(Vec::new()).map_err(|error| other(error.to_string()))?;
        match client.send(request.map(Body::from)).await {
            Ok(response) => {
                let (code, body) = (response.status(), response.into_body());
                let body = whole(body)
                    .await
                    .map_err(|error| other(format!("{address}: {error}")))?;
                match code {
                    StatusCode::OK => Ok(body),
                    StatusCode::FORBIDDEN => Err(KubeletError::Forbidden(format!(
                        "{address} refuses it: {}; a ClusterRole must allow {} to get nodes/stats and nodes/configz",
                        words(&body),
                        self.whom()
                    ))),
                    code => Err(other(format!(
                        "{address} answers with {}: {}",
                        code.as_u16(),
                        words(&body)
                    ))),
                }
            }
            Err(error) => Err(other(match refused_certificate(&error) {
                Some(reason) => format!(
                    "the certificate that {address} shows is not to be trusted: {reason}. It must name that address and be \
                     signed by the cluster's authority: restart RKE2 on the node, which renews it; if another authority \
                     signs the certificates of kubelets, give it with --kubelet-certificate-authority"
                ),
                None => format!("{address}: {}", with_causes(&error)),
            })),
        }
    }

    fn whom(&self) -> String {
        match &self.credentials {
            Credentials::Own => "the manager".to_owned(),
            Credentials::Account { namespace, name } => format!("ServiceAccount {namespace}/{name}"),
        }
    }

    /// What we identify ourselves with.
    async fn auth_info(&self) -> Result<AuthInfo, TokenError> {
        let Credentials::Account { namespace, name } = &self.credentials else {
            return Ok(self.config.auth_info.clone());
        };
        let mut token = self.token.lock().await;
        if let Some((known, made)) = &*token
            && made.elapsed() < TOKEN_USED
        {
            return Ok(known.clone());
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await;
        let answer = answer.map_err(|source| TokenError {
            account: format!("{namespace}/{name}"),
            source,
        })?;
        let fresh = AuthInfo {
            token: Some(answer.status.map(|status| status.token).unwrap_or_default().into()),
            ..AuthInfo::default()
        };
        *token = Some((fresh.clone(), Instant::now()));
        Ok(fresh)
    }
}

/// A body, unless it has no end: root of a node controls the response of its kubelet.
async fn whole(body: Body) -> Result<Vec<u8>, BodyError> {
    match Limited::new(body, LARGEST_BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes().to_vec()),
        Err(error) => Err(BodyError(error)),
    }
}

/// What an answer says, as it may be shown.
fn words(body: &[u8]) -> String {
    quoted(&plain(&String::from_utf8_lossy(body), LONGEST_NAME))
}

/// Why a certificate was refused, if that is what went wrong.
fn refused_certificate(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(found @ rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
        return Some(found.to_string());
    }
    // An I/O error does not name what is inside it as its source.
    let inside = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    if let Some(inside) = inside {
        return refused_certificate(inside);
    }
    error.source().and_then(refused_certificate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn s06_a_kubelet_that_speaks_without_end_or_in_control_characters_is_cut_short() {
        let endless = Body::from(vec![b'x'; LARGEST_BODY_BYTES + 1]);
        let error = whole(endless).await.unwrap_err().to_string();
        assert!(error.contains("limit"), "{error}");
        assert_eq!(whole(Body::from(b"{}".to_vec())).await.unwrap(), b"{}");
        let said = words(format!("\u{1b}[2Jall is well\n{}", "y".repeat(100_000)).as_bytes());
        assert!(said.starts_with("\"[2Jall is well y"), "text of a server: {said}");
        // With the mark of what was cut off, and those of a quotation.
        assert_eq!(said.chars().count(), LONGEST_NAME + 3);
    }

    #[test]
    fn addresses_of_ipv6_get_brackets() {
        assert_eq!(with_port("10.0.0.1", PORT), "10.0.0.1:10250");
        assert_eq!(with_port("fd00::1", PORT), "[fd00::1]:10250");
    }
}
