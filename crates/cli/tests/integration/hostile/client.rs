//! Clients that send exactly what an attack wants, from an address of their own, plain or over TLS.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// How long anything may take before a test gives up. Only a test that fails waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Who means well.
pub(crate) const GOOD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
/// Who does not.
pub(crate) const EVIL: Ipv4Addr = Ipv4Addr::new(127, 6, 6, 6);

/// A stream of either kind.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}
pub(crate) type AnyStream = Box<dyn Stream>;

/// Where a server listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    pub(crate) tls: bool,
}

impl Door {
    /// A connection on which nothing was said yet, not even hello.
    pub(crate) async fn knock(self, from: Ipv4Addr) -> Option<TcpStream> {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        timeout(PATIENCE, socket.connect(self.address)).await.ok()?.ok()
    }

    /// A connection that requests can be sent on.
    pub(crate) async fn enter(self, from: Ipv4Addr) -> Option<AnyStream> {
        let stream = self.knock(from).await?;
        if !self.tls {
            return Some(Box::new(stream));
        }
        let name = ServerName::try_from("localhost").unwrap();
        let stream = timeout(PATIENCE, connector().connect(name, stream)).await.ok()?.ok()?;
        Some(Box::new(stream))
    }

    /// Sends bytes and reads to the end: what came back, if anything.
    pub(crate) async fn ask(self, from: Ipv4Addr, bytes: &[u8]) -> Option<String> {
        let mut stream = self.enter(from).await?;
        let talk = async {
            // A server that has heard enough may hang up before all is sent, and still have answered.
            let _ = stream.write_all(bytes).await;
            let mut all = Vec::new();
            let _ = stream.read_to_end(&mut all).await;
            all
        };
        let all = timeout(PATIENCE, talk).await.ok()?;
        Some(String::from_utf8_lossy(&all).into_owned())
    }
}

/// The status of an answer; 0 when there is none.
pub(crate) fn status(answer: &str) -> u16 {
    let line = answer.lines().next().unwrap_or_default();
    line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

/// Returns once the server has hung up.
pub(crate) async fn hung_up(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let read = async {
        let mut part = [0; 4096];
        while stream.read(&mut part).await.is_ok_and(|count| count > 0) {}
    };
    timeout(PATIENCE, read).await.is_ok()
}

fn connector() -> TlsConnector {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate))
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// Believes any certificate: who attacks does not care.
#[derive(Debug)]
struct AcceptAnyCertificate;

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
