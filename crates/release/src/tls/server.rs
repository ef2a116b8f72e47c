//! The server: it presents one certificate to all clients.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, pem::PemObject},
    server::NoServerSessionStorage,
    version,
};
use tokio_rustls::TlsAcceptor;

use super::{TlsError, only, provider};

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys do not belong into logs.
        f.debug_struct("Identity")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// A file of an identity cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("failed to read {}: {source}", path.display())]
pub struct IdentityFileError {
    path: PathBuf,
    source: io::Error,
}

impl Identity {
    /// Reads both from files.
    ///
    /// # Errors
    /// One of them cannot be read; the message names it.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, IdentityFileError> {
        let text = |path: &Path| {
            std::fs::read_to_string(path).map_err(|source| IdentityFileError {
                path: path.to_owned(),
                source,
            })
        };
        Ok(Self {
            certificate: text(certificate)?,
            key: text(key)?,
        })
    }
}

/// Makes TLS connections of those that were accepted.
///
/// # Errors
/// There is not one certificate, or the key is not its own.
pub fn acceptor(identity: &Identity) -> Result<TlsAcceptor, TlsError> {
    let certificate = only(&identity.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.ignore_client_order = true;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A client reads gigabytes over one connection: nothing is kept to save it a handshake.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(TlsAcceptor::from(Arc::new(config)))
}
