//! A repository on loopback, and a client that sends exactly what a test wants.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use clock::Clock;
use release::{
    iso::Iso,
    repo::{Limits, serve},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running repository.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) iso: Arc<Iso>,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) task: JoinHandle<()>,
}

impl Running {
    /// Serves an image.
    pub(crate) async fn start(iso: &Path, limits: Limits) -> Self {
        let iso = Arc::new(Iso::open(iso).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let end = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(serve(listener, iso.clone(), limits, Clock::system(), end));
        Self {
            address,
            iso,
            stop: Some(stop),
            task,
        }
    }

    /// Asks it to end.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// GET with these further headers, each with its line end.
    pub(crate) async fn get(&self, target: &str, headers: &str) -> Reply {
        ask(self.address, "GET", target, headers).await
    }
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Reads one reply from all bytes of a connection.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers = lines.filter_map(|line| line.split_once(": "));
        Some(Self {
            status,
            headers: headers
                .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
                .collect(),
            body: bytes[end + 4..].to_vec(),
        })
    }
}

/// One request on a connection of its own.
pub(crate) async fn ask(address: SocketAddr, method: &str, target: &str, headers: &str) -> Reply {
    let request = format!("{method} {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}\r\n");
    let bytes = send(address, request.as_bytes()).await;
    Reply::parse(&bytes).unwrap_or_else(|| panic!("{request:?} got {:?}", String::from_utf8_lossy(&bytes)))
}

/// Sends bytes and reads until the server closes.
pub(crate) async fn send(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    to_end(&mut stream).await
}

/// All that comes until the server closes.
pub(crate) async fn to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut all))
        .await
        .expect("the server closes in time")
        .unwrap();
    all
}

/// Reads a reply on a connection that stays open.
pub(crate) async fn one(stream: &mut TcpStream) -> Reply {
    let read = async {
        let mut bytes = Vec::new();
        loop {
            let mut part = [0; 4096];
            let count = stream.read(&mut part).await.unwrap();
            assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&bytes));
            bytes.extend_from_slice(&part[..count]);
            if let Some(reply) = Reply::parse(&bytes) {
                let length = reply
                    .header("content-length")
                    .map_or(0, |length| length.parse().unwrap());
                if reply.body.len() >= length {
                    return reply;
                }
            }
        }
    };
    timeout(PATIENCE, read).await.expect("a reply in time")
}
