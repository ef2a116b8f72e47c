//! The certificate that the webhook server presents: what it is, whether it is still good, and how handshakes get it.
//!
//! It comes from a Secret that the managers share and renew ([`managed`]) or from files ([`files`]). Either way it is
//! replaced while connections are open, without a restart.

pub mod files;
pub mod managed;
pub mod mint;

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use jiff::Timestamp;
use rustls::{
    RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};
use x509_parser::parse_x509_certificate;

use crate::metrics::Metrics;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Text that is no certificate or no key.
    #[error("failed to read a certificate or its key")]
    Pem(#[from] pem::Error),
    /// There is no certificate.
    #[error("there is no certificate")]
    Empty,
    /// A certificate that cannot be parsed.
    #[error("failed to read when the certificate ends: {0}")]
    Parse(String),
    /// The key is not that of the certificate, or the certificate is not good.
    #[error("the certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// No server can be made of it.
    #[error("the certificate cannot be verified: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// A certificate could not be made.
    #[error("failed to make a certificate")]
    Mint(#[from] rcgen::Error),
    /// The name that clients ask for is no name.
    #[error("{0:?} is no DNS name")]
    Name(String),
}

/// A certificate as text.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The certificate, followed by intermediate ones.
    pub chain: String,
    /// Its key.
    pub key: String,
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys do not belong into logs.
        f.debug_struct("Pem")
            .field("chain", &self.chain)
            .finish_non_exhaustive()
    }
}

/// A certificate that can be presented.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// With its key.
    pub key: Arc<CertifiedKey>,
    /// Valid from.
    pub begins: Timestamp,
    /// Valid until.
    pub ends: Timestamp,
}

impl Certificate {
    /// Reads a certificate and makes sure that the key is its own.
    ///
    /// # Errors
    /// It cannot be read, or the key belongs to another.
    pub fn read(pem: &Pem) -> Result<Self, TlsError> {
        let chain = certificates(&pem.chain)?;
        let first = chain.first().ok_or(TlsError::Empty)?;
        let (_, parsed) = parse_x509_certificate(first).map_err(|error| TlsError::Parse(error.to_string()))?;
        let moment = |seconds: i64| Timestamp::from_second(seconds).map_err(|error| TlsError::Parse(error.to_string()));
        let begins = moment(parsed.validity().not_before.timestamp())?;
        let ends = moment(parsed.validity().not_after.timestamp())?;
        let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes())?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        Ok(Self {
            key: Arc::new(key),
            begins,
            ends,
        })
    }

    /// Makes sure that clients that trust `authorities` and ask for `name` accept it now.
    ///
    /// # Errors
    /// Why they do not.
    pub fn verify(&self, authorities: &str, name: &str, now: Timestamp) -> Result<(), TlsError> {
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(authorities)?), provider).build()?;
        let server = ServerName::try_from(name).map_err(|_| TlsError::Name(name.to_owned()))?;
        let now = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now));
        let (first, intermediates) = self.key.cert.split_first().ok_or(TlsError::Empty)?;
        verifier.verify_server_cert(first, intermediates, &server, &[], now)?;
        Ok(())
    }

    /// When to replace it: once a third of its life is left.
    #[must_use]
    pub fn due(&self) -> Timestamp {
        let life = self.ends.as_second() - self.begins.as_second();
        Timestamp::from_second(self.ends.as_second() - life / 3).unwrap_or(self.ends)
    }
}

fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    Ok(CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<_, _>>()?)
}

fn roots(authorities: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(authorities)? {
        roots.add(authority)?;
    }
    Ok(roots)
}

/// Who may connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// All clients.
    #[default]
    Any,
    /// Clients with a certificate of one of these authorities (PEM).
    SignedBy(String),
}

/// What handshakes present currently. All clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Presented {
    key: Arc<RwLock<Option<Arc<CertifiedKey>>>>,
    /// Where its expiry is reported.
    metrics: Option<Metrics>,
}

impl Presented {
    /// Nothing yet; the expiry of what is presented is reported to `metrics`.
    #[must_use]
    pub fn reporting_to(metrics: Option<Metrics>) -> Self {
        Self {
            metrics,
            ..Self::default()
        }
    }

    /// Handshakes from now on present this; connections that are open are left alone.
    pub fn replace(&self, certificate: &Certificate) {
        if let Some(metrics) = &self.metrics {
            metrics.certificate(certificate.ends);
        }
        // No code panics with this lock; if it did, the value would still be valid.
        *self.key.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&certificate.key));
    }

    /// What is presented, if anything.
    #[must_use]
    pub fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.key.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A server that presents it, whatever name clients ask for.
    ///
    /// # Errors
    /// The cryptography at hand has no protocol version that is safe, or the authorities of clients cannot be used.
    pub fn server_config(&self, clients: &Clients) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let builder = match clients {
            Clients::Any => builder.with_no_client_auth(),
            Clients::SignedBy(authorities) => {
                let roots = Arc::new(roots(authorities)?);
                builder.with_client_cert_verifier(WebPkiClientVerifier::builder_with_provider(roots, provider).build()?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl ResolvesServerCert for Presented {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}
