//! The client: it trusts one certificate, for one name.

use std::sync::Arc;

use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName, version};

use super::{TlsError, only, provider};

/// Connects to a repository.
pub type Connector = HttpsConnector<HttpConnector>;

/// The certificate that a repository must show, and the name that it must be for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// In PEM.
    pub certificate: String,
    /// Whatever address the repository is reached at.
    pub server_name: String,
}

/// Trusts that certificate and no other; none, if there is none.
///
/// # Errors
/// The certificate is none.
pub fn client_config(trust: Option<&Trust>) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some(trust) = trust {
        roots.add(only(&trust.certificate)?)?;
    }
    let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&version::TLS13])?;
    Ok(config.with_root_certificates(Arc::new(roots)).with_no_client_auth())
}

/// Connects over `http`. With something to trust over TLS and in no other way: a URL without encryption is refused. Without it
/// plain, as repositories of older managers are reached; over TLS no server is trusted then.
///
/// # Errors
/// The certificate or the name is none.
pub fn connector(mut http: HttpConnector, trust: Option<&Trust>) -> Result<Connector, TlsError> {
    http.enforce_http(false);
    let builder = HttpsConnectorBuilder::new().with_tls_config(client_config(trust)?);
    Ok(match trust {
        None => builder.https_or_http().enable_http1().wrap_connector(http),
        Some(trust) => {
            let name = ServerName::try_from(trust.server_name.clone());
            let name = name.map_err(|_| TlsError::Name(trust.server_name.clone()))?;
            builder
                .https_only()
                .with_server_name_resolver(FixedServerNameResolver::new(name))
                .enable_http1()
                .wrap_connector(http)
        }
    })
}
