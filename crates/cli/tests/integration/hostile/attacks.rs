//! One table of attacks. Each keeps its connections, so that it continues while other clients check that they are served.

use std::time::Duration;

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
};

use crate::hostile::{
    client::{AnyStream, EVIL, status},
    servers::{Server, post},
};

/// Connections of one attack on a server without encryption: more than any has places.
const MANY: usize = 600;
/// On one with it, where each costs a handshake: more than it has places.
const SOME: usize = 100;
/// Requests sent at once on one connection.
const PIPELINED: usize = 2000;
/// How many bytes an endless sender sends at most, if nothing stops it.
const ENDLESS: usize = 64 * 1024 * 1024;

/// What an attack leaves behind.
#[derive(Default)]
pub(crate) struct OpenConnections {
    /// Open connections.
    streams: Vec<Box<dyn Send>>,
    /// Those that the server must end by itself, within its limits.
    pub(crate) doomed: Vec<Box<dyn AsyncRead + Unpin + Send>>,
    /// What runs in the background.
    tasks: JoinSet<()>,
    /// Those that only keep a connection, until the attack is over.
    keepers: JoinSet<()>,
}

/// How long a server may take to end those who send without end.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);

/// One attack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attack {
    /// Says nothing, not even hello.
    Silence,
    /// Begins a handshake, or what looks like one.
    HalfHello,
    /// Sends its head a byte at a time.
    SlowHead,
    /// Sends headers without end.
    EndlessHead,
    /// Sends one header without end.
    EndlessHeader,
    /// Announces a body and sends little of it.
    SlowBody,
    /// Announces a huge body and sends it.
    HugeBody,
    /// Sends a body in chunks without end.
    EndlessChunks,
    /// Lengths that contradict each other, or make no sense.
    WrongLengths,
    /// Asks, and keeps the connection.
    KeepAlive,
    /// Asks, and hangs up half.
    HalfOpen,
    /// Asks thousands of things at once and reads no answer.
    Pipelining,
    /// Speaks HTTP/2.
    Http2,
    /// Sends deeply nested JSON.
    DeepJson,
}

pub(crate) const ATTACKS: [Attack; 14] = [
    Attack::Silence,
    Attack::HalfHello,
    Attack::SlowHead,
    Attack::EndlessHead,
    Attack::EndlessHeader,
    Attack::SlowBody,
    Attack::HugeBody,
    Attack::EndlessChunks,
    Attack::WrongLengths,
    Attack::KeepAlive,
    Attack::HalfOpen,
    Attack::Pipelining,
    Attack::Http2,
    Attack::DeepJson,
];

impl Attack {
    /// Begins, and keeps going.
    pub(crate) async fn begin(self, server: &Server) -> OpenConnections {
        let mut open_connections = OpenConnections::default();
        let (door, path) = (server.door, server.path);
        let many = if door.tls { SOME } else { MANY };
        let open = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n");
        match self {
            Self::Silence | Self::HalfHello => {
                for number in 0..MANY {
                    let Some(mut stream) = door.knock(EVIL).await else {
                        continue;
                    };
                    if matches!(self, Self::HalfHello) {
                        let _ = stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00").await;
                    }
                    open_connections.keep(number + 1 == MANY, Box::new(stream));
                }
            }
            Self::SlowHead => {
                for number in 0..many {
                    let Some(mut stream) = door.enter(EVIL).await else {
                        continue;
                    };
                    let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ").await;
                    if number + 1 < many {
                        open_connections.keep(false, stream);
                        continue;
                    }
                    // The last one continues, a byte at a time: each byte counts as activity.
                    let (read, mut write) = tokio::io::split(stream);
                    open_connections.tasks.spawn(async move {
                        let mut ctx = tokio::time::interval(Duration::from_millis(100));
                        while write.write_all(b"x").await.is_ok() && write.flush().await.is_ok() {
                            ctx.tick().await;
                        }
                    });
                    open_connections.doomed.push(Box::new(read));
                }
            }
            Self::EndlessHead => endless(&mut open_connections, server, &open, b"x: y\r\n").await,
            Self::EndlessHeader => {
                endless(
                    &mut open_connections,
                    server,
                    &format!("{open}x: "),
                    b"yyyyyyyyyyyyyyyy",
                )
                .await
            }
            Self::HugeBody => {
                let open = format!("{open}content-length: 1000000000\r\n\r\n");
                endless(&mut open_connections, server, &open, &[b' '; 16 * 1024]).await;
            }
            Self::EndlessChunks => {
                let open = format!("{open}transfer-encoding: chunked\r\n\r\n");
                endless(&mut open_connections, server, &open, b"10\r\n                \r\n").await;
            }
            Self::SlowBody => {
                for number in 0..many {
                    let Some(mut stream) = door.enter(EVIL).await else {
                        continue;
                    };
                    let begun = format!("{open}content-length: 2000000\r\n\r\n{{");
                    let _ = stream.write_all(begun.as_bytes()).await;
                    open_connections.keep(number + 1 == many, stream);
                }
            }
            Self::WrongLengths => {
                for lengths in [
                    "content-length: -1\r\n",
                    "content-length: 99999999999999999999999\r\n",
                    "content-length: 1\r\ncontent-length: 2\r\n",
                    "content-length: 5\r\ntransfer-encoding: chunked\r\n",
                    "transfer-encoding: identity, chunked, what\r\n",
                ] {
                    let request = format!("{open}{lengths}connection: close\r\n\r\nGET /x HTTP/1.1\r\nhost: a\r\n\r\n");
                    let answer = door.ask(EVIL, request.as_bytes()).await;
                    let answer = answer.unwrap_or_else(|| panic!("{}: {lengths}: no end", server.name));
                    assert!(
                        answer.matches("HTTP/1.1 ").count() <= 1 && status(&answer) != 200
                            || server.name == "repository",
                        "{}: {lengths}: {answer}",
                        server.name
                    );
                }
            }
            Self::KeepAlive | Self::HalfOpen => {
                let request = "HEAD /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
                for _ in 0..many {
                    let Some(mut stream) = door.enter(EVIL).await else {
                        continue;
                    };
                    let _ = stream.write_all(request.as_bytes()).await;
                    if matches!(self, Self::HalfOpen) {
                        let _ = stream.shutdown().await;
                    } else {
                        let _ = stream.read(&mut [0; 512]).await;
                    }
                    open_connections.keep(false, stream);
                }
            }
            Self::Pipelining => {
                let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(PIPELINED);
                for _ in 0..8 {
                    let Some(stream) = door.enter(EVIL).await else { continue };
                    let (read, mut write) = tokio::io::split(stream);
                    let request = request.clone();
                    open_connections.keepers.spawn(async move {
                        let _ = write.write_all(request.as_bytes()).await;
                        std::future::pending::<()>().await;
                    });
                    open_connections.streams.push(Box::new(read));
                }
            }
            Self::Http2 => {
                // A preface, and settings again and again.
                let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
                for _ in 0..1000 {
                    bytes.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
                }
                let answer = door.ask(EVIL, &bytes).await;
                assert!(answer.is_some(), "{}: HTTP/2 is not ended", server.name);
            }
            Self::DeepJson => {
                let answer = door.ask(EVIL, post(path, &"[".repeat(1024 * 1024)).as_bytes()).await;
                assert!(answer.is_some(), "{}: deep JSON has no end", server.name);
            }
        }
        open_connections
    }
}

impl OpenConnections {
    fn keep(&mut self, is_doomed: bool, stream: AnyStream) {
        if is_doomed {
            self.doomed.push(Box::new(stream));
        } else {
            self.streams.push(Box::new(stream));
        }
    }
}

/// Sends the same again and again, until the server has heard enough.
async fn endless(open_connections: &mut OpenConnections, server: &Server, open: &str, again: &[u8]) {
    for _ in 0..8 {
        let Some(mut stream) = server.door.enter(EVIL).await else {
            continue;
        };
        let (open, name) = (open.to_owned(), server.name);
        let again = again.repeat(16 * 1024 / again.len());
        open_connections.tasks.spawn(async move {
            let _ = stream.write_all(open.as_bytes()).await;
            for _ in 0..ENDLESS / again.len() {
                if stream.write_all(&again).await.is_err() {
                    return;
                }
            }
            panic!("{name} listens without end");
        });
    }
}

impl OpenConnections {
    /// Those that send in the background.
    pub(crate) fn senders(self) -> JoinSet<()> {
        self.tasks
    }
}

/// What went wrong in the background, once that has come to its end: a server that listens without end is seen only then.
pub(crate) async fn complaints(mut senders: JoinSet<()>) -> Vec<String> {
    let all = async {
        let mut found = Vec::new();
        while let Some(ended) = senders.join_next().await {
            found.extend(ended.err().map(|error| error.to_string()));
        }
        found
    };
    let ended = tokio::time::timeout(PATIENCE, all).await;
    ended.unwrap_or_else(|_| vec!["a sender is neither heard nor ended".to_owned()])
}
