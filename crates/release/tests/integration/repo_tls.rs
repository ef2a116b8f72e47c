//! The repository over TLS: the same answers as without, for those who trust its certificate, and for no other client.

use crate::support;
use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use crate::support::{PATIENCE, Reply, ask};
use clock::Clock;
use release::{
    iso::Iso,
    repo::{Doors, Limits, serve},
    testing::Sources,
    tls::{Identity, TlsError, Trust, acceptor, client_config, mint},
};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

const NAME: &str = "up-repo.harvester-system.svc";
const RELEASE: &str = "/harvester-iso/harvester-release.yaml";
const ROOTFS: &str = "/harvester-iso/rootfs.squashfs";

fn identity() -> Identity {
    mint(&[NAME.to_owned()], Clock::system().now()).unwrap()
}

struct Running {
    plain: SocketAddr,
    secure: SocketAddr,
    identity: Identity,
}

impl Running {
    async fn start(iso: &Path, limits: Limits) -> Self {
        let iso = Arc::new(Iso::open(iso).unwrap());
        let identity = identity();
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let secure = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let running = Self {
            plain: plain.local_addr().unwrap(),
            secure: secure.local_addr().unwrap(),
            identity: identity.clone(),
        };
        let doors = Doors::from(plain).and(secure, acceptor(&identity).unwrap());
        tokio::spawn(serve(doors, iso, limits, Clock::system(), std::future::pending()));
        running
    }

    async fn connect(&self, certificate: &str, name: &'static str) -> std::io::Result<TlsStream<TcpStream>> {
        let trust = Trust {
            certificate: certificate.to_owned(),
            server_name: name.to_owned(),
        };
        let config = client_config(Some(&trust)).unwrap();
        let stream = TcpStream::connect(self.secure).await.unwrap();
        let name = ServerName::try_from(name).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    async fn ask(&self, method: &str, target: &str, headers: &str) -> Reply {
        let mut stream = self.connect(&self.identity.certificate, NAME).await.unwrap();
        let request = format!("{method} {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let mut all = Vec::new();
        // The end is said, not only cut: what is cut off would be an error here.
        timeout(PATIENCE, stream.read_to_end(&mut all)).await.unwrap().unwrap();
        Reply::parse(&all).unwrap()
    }
}

#[tokio::test]
async fn answers_are_the_same_with_and_without_tls() {
    let sources = Sources::sample();
    let server = Running::start(&sources.iso(), Limits::REPOSITORY).await;
    for (method, target, headers) in [
        ("GET", RELEASE, ""),
        ("HEAD", RELEASE, ""),
        ("GET", ROOTFS, ""),
        ("HEAD", ROOTFS, ""),
        ("GET", ROOTFS, "Range: bytes=100000-700000\r\n"),
        ("GET", ROOTFS, "Range: bytes=-7\r\n"),
        ("GET", "/harvester-iso/", ""),
        ("GET", "/harvester-iso/nothing", ""),
        ("GET", "/harvester-iso/../x", ""),
        ("POST", RELEASE, ""),
    ] {
        let (mut plain, mut secure) = (
            ask(server.plain, method, target, headers).await,
            server.ask(method, target, headers).await,
        );
        plain.headers.remove("date");
        secure.headers.remove("date");
        assert_eq!(plain, secure, "{method} {target} {headers}");
    }
}

#[tokio::test]
async fn several_requests_share_a_connection() {
    let sources = Sources::sample();
    let server = Running::start(&sources.iso(), Limits::REPOSITORY).await;
    let mut stream = server.connect(&server.identity.certificate, NAME).await.unwrap();
    for _ in 0..3 {
        let request = format!("HEAD {RELEASE} HTTP/1.1\r\nHost: test\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap());
        }
        assert_eq!(Reply::parse(&head).unwrap().status, 200);
    }
}

#[tokio::test]
async fn s07_only_the_recorded_certificate_is_trusted_and_only_for_its_name() {
    let sources = Sources::sample();
    let server = Running::start(&sources.iso(), Limits::REPOSITORY).await;
    let own = server.identity.certificate.clone();
    assert!(server.connect(&own, NAME).await.is_ok());
    for (certificate, name) in [(identity().certificate, NAME), (own, "other-repo.harvester-system.svc")] {
        let error = server.connect(&certificate, name).await.unwrap_err();
        assert!(error.to_string().contains("invalid peer certificate"), "{error}");
    }
}

#[test]
fn s07_no_server_uses_a_certificate_without_its_key() {
    let (own, other) = (identity(), identity());
    let mixed = Identity {
        certificate: own.certificate,
        key: other.key,
    };
    assert!(matches!(acceptor(&mixed), Err(TlsError::Unusable(_))));
    let none = Identity {
        certificate: String::new(),
        ..mixed
    };
    assert!(matches!(acceptor(&none), Err(TlsError::Count(0))));
    assert!(!format!("{none:?}").contains("PRIVATE KEY"));
}

#[tokio::test]
async fn half_handshakes_end_and_block_no_client() {
    let sources = Sources::sample();
    let limits = Limits {
        connections: 4,
        per_peer: 4,
        handshake: Duration::from_millis(300),
        ..Limits::REPOSITORY
    };
    let server = Running::start(&sources.iso(), limits).await;
    let mut held = Vec::new();
    for number in 0..8 {
        let mut stream = TcpStream::connect(server.secure).await.unwrap();
        if number % 2 == 0 {
            stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00").await.unwrap();
        }
        held.push(stream);
        assert_eq!(server.ask("GET", RELEASE, "").await.status, 200);
        assert_eq!(ask(server.plain, "GET", RELEASE, "").await.status, 200);
    }
    // Each ends: within the time for a handshake, or because another connection has replaced it.
    for mut stream in held {
        let end = timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
        assert!(end.is_ok(), "a half handshake goes on");
    }
}

#[tokio::test]
async fn a_client_without_tls_gets_an_error_and_is_closed() {
    let sources = Sources::sample();
    let server = Running::start(&sources.iso(), Limits::REPOSITORY).await;
    let bytes = support::send(server.secure, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(!bytes.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&bytes));
}
