//! TLS between a repository and its clients. Both ends are ours and know one certificate, so both are strict:
//! TLS 1.3, and AES-128-GCM first, which is the cheapest for processors of servers.

mod client;
mod mint;
mod server;

use std::sync::Arc;

use rustls::{
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, pem, pem::PemObject},
};

pub use client::{Connector, Trust, client_config, connector};
pub use mint::{LIFE, mint, set_dates};
pub use server::{Identity, acceptor};

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Text that is no certificate or no key.
    #[error("failed to read a certificate or its key: {0}")]
    Pem(#[from] pem::Error),
    /// There is not exactly one certificate.
    #[error("there must be one certificate, and there are {0}")]
    Count(usize),
    /// The key is not that of the certificate, or the certificate is not good.
    #[error("the certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// A certificate could not be made.
    #[error("failed to make a certificate: {0}")]
    Mint(#[from] rcgen::Error),
    /// A certificate is recorded, and a URL does not use TLS.
    #[error("a certificate of the repository is recorded, and {0} does not use TLS")]
    Plain(String),
    /// The name that the certificate is verified for is no name.
    #[error("{0:?} is no DNS name")]
    Name(String),
}

/// The cryptography of both ends.
fn provider() -> Arc<CryptoProvider> {
    let suites = vec![
        ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
        ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
        ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(CryptoProvider {
        cipher_suites: suites,
        ..ring::default_provider()
    })
}

/// The one certificate of a text.
fn only(text: &str) -> Result<CertificateDer<'static>, TlsError> {
    let all: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<_, _>>()?;
    match <[_; 1]>::try_from(all) {
        Ok([certificate]) => Ok(certificate),
        Err(all) => Err(TlsError::Count(all.len())),
    }
}
