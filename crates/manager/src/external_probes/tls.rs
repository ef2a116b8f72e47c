//! Reads when the certificate chain of a server expires. The connection verifies nothing and sends no data.

use std::sync::Arc;

use jiff::Timestamp;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use x509_parser::parse_x509_certificate;

use super::CertificateTrouble;

/// The earliest end of any certificate that the server presents.
pub(super) async fn chain_end(address: &str) -> Result<Timestamp, CertificateTrouble> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(LookOnly(provider)))
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    // The API server presents the same certificate whatever name is asked for.
    let name = ServerName::try_from("kubernetes.default.svc")?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let (_, session) = stream.get_ref();
    let chain = session.peer_certificates().unwrap_or_default();
    earliest_end(chain).ok_or(CertificateTrouble::Unreadable)
}

fn earliest_end(chain: &[CertificateDer<'_>]) -> Option<Timestamp> {
    let ends = chain.iter().filter_map(|der| {
        let (_, certificate) = parse_x509_certificate(der).ok()?;
        Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
    });
    ends.min()
}

/// Accepts any certificate: the question is when it ends, also when it has ended already.
#[derive(Debug)]
struct LookOnly(Arc<CryptoProvider>);

impl ServerCertVerifier for LookOnly {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
