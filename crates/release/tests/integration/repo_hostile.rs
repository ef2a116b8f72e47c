//! Clients that mean harm, or have bad luck: the repository stays bounded and stays up.

use std::{fs, path::PathBuf, time::Duration};

use crate::support::{PATIENCE, Reply, Running, ask, one, send, to_end};
use release::{repo::Limits, testing::Sources};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

const RELEASE: &str = "/harvester-iso/harvester-release.yaml";
/// A file that is no probe: in a crowd it is refused.
const FILE: &str = "/harvester-iso/bundle/metadata.yaml";
/// More than what fits into the buffers of a connection.
const BIG: u64 = 64 * 1024 * 1024;

fn big() -> (Sources, PathBuf) {
    let sources = Sources::sample();
    sources.add("big", b"");
    let file = fs::File::options().write(true).open(sources.tree().join("big"));
    file.unwrap().set_len(BIG).unwrap();
    let iso = sources.iso();
    (sources, iso)
}

fn impatient() -> Limits {
    Limits {
        header_time: Duration::from_millis(500),
        idle: Duration::from_millis(500),
        stall: Duration::from_millis(500),
        ..Limits::REPOSITORY
    }
}

/// Waits until the server serves again.
async fn serves_again(server: &Running) {
    let again = async {
        loop {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            let request = format!("GET {RELEASE} HTTP/1.0\r\n\r\n");
            let mut all = Vec::new();
            let asked = stream.write_all(request.as_bytes()).await.is_ok();
            let read = asked && stream.read_to_end(&mut all).await.is_ok();
            if read && Reply::parse(&all).is_some_and(|reply| reply.status == 200) {
                return;
            }
        }
    };
    timeout(PATIENCE, again).await.expect("the server serves again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_path_leads_out_of_the_image() {
    let sources = Sources::sample();
    let server = Running::start(&sources.iso(), Limits::REPOSITORY).await;
    for target in [
        "/../etc/passwd",
        "/harvester-iso/../../etc/passwd",
        "/harvester-iso/..",
        "/harvester-iso/%2e%2e/%2e%2e/etc/passwd",
        "/harvester-iso/.%2e/x",
        "/harvester-iso/..%2f..%2fetc/passwd",
        "/harvester-iso//../etc/passwd",
        "/harvester-iso/a%00/../b",
        "/harvester-iso/harvester-release.yaml%00.txt",
        "/harvester-iso/%",
        "/harvester-iso/%4",
        "/harvester-iso/%u002e",
        "*",
    ] {
        let reply = server.get(target, "").await;
        assert_eq!(reply.status, 400, "{target}");
    }
    for target in [
        "/harvester-iso/%252e%252e/%252e%252e/etc/passwd",
        "/harvester-iso/%c0%ae%c0%ae/etc/passwd",
        "/harvester-iso/..%5c..%5cetc/passwd",
        "/harvester-iso/etc/passwd",
        "//etc/passwd",
        "/harvester-iso/HARVESTER-RELEASE.YAML",
        "/harvester-iso/%ff%fe",
    ] {
        let reply = server.get(target, "").await;
        assert_eq!(reply.status, 404, "{target}");
    }
    assert_eq!(server.get(RELEASE, "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_http_is_refused() {
    let sources = Sources::sample();
    let server = Running::start(&sources.iso(), Limits::REPOSITORY).await;
    for (bytes, status) in [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc".as_slice(), 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n", 400),
        (b"GET /\xff\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ] {
        let reply = Reply::parse(&send(server.address, bytes).await).unwrap();
        assert_eq!(reply.status, status, "{}", String::from_utf8_lossy(bytes));
    }
    assert_eq!(server.get(RELEASE, "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_is_never_taken_for_the_next_request() {
    let sources = Sources::sample();
    let server = Running::start(&sources.iso(), Limits::REPOSITORY).await;
    let inner = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    for header in [
        format!("Content-Length: {}", inner.len()),
        "Transfer-Encoding: chunked".to_owned(),
    ] {
        let request = format!("GET {RELEASE} HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n{inner}");
        let all = String::from_utf8(send(server.address, request.as_bytes()).await).unwrap();
        assert_eq!(all.matches("HTTP/1.1 ").count(), 1, "{all}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_head_is_refused_and_the_refusal_arrives() {
    let sources = Sources::sample();
    let server = Running::start(&sources.iso(), Limits::REPOSITORY).await;
    let large = format!("X: {}\r\n", "x".repeat(Limits::REPOSITORY.header_bytes * 4));
    assert_eq!(server.get(RELEASE, &large).await.status, 431);
    let many = "X: y\r\n".repeat(Limits::REPOSITORY.headers + 1);
    assert_eq!(server.get(RELEASE, &many).await.status, 431);
    let long = format!("/harvester-iso/{}", "x".repeat(Limits::REPOSITORY.header_bytes));
    assert_eq!(server.get(&long, "").await.status, 431);
    let fits = format!("X: {}\r\n", "x".repeat(Limits::REPOSITORY.header_bytes / 2));
    assert_eq!(server.get(RELEASE, &fits).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_trickles_in_is_ended() {
    let sources = Sources::sample();
    let server = Running::start(&sources.iso(), impatient()).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let trickle = tokio::spawn(async move {
        let mut ctx = tokio::time::interval(Duration::from_millis(50));
        write.write_all(b"GET / HTTP/1.1\r\nX: ").await.unwrap();
        // Each byte shows life, but the whole has a deadline.
        while write.write_all(b"x").await.is_ok() {
            ctx.tick().await;
        }
    });
    let mut all = Vec::new();
    let closed = timeout(PATIENCE, read.read_to_end(&mut all)).await;
    closed.expect("the server closes").unwrap();
    assert_eq!(Reply::parse(&all).unwrap().status, 408);
    trickle.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_says_nothing_is_closed() {
    let sources = Sources::sample();
    let server = Running::start(&sources.iso(), impatient()).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(to_end(&mut silent).await, b"");
    let mut resting = TcpStream::connect(server.address).await.unwrap();
    resting
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(one(&mut resting).await.status, 200);
    assert_eq!(to_end(&mut resting).await, b"");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_without_a_reader_gives_its_place_back() {
    let (_sources, iso) = big();
    let limits = Limits {
        connections: 1,
        ..impatient()
    };
    let server = Running::start(&iso, limits).await;
    let mut stalled = TcpStream::connect(server.address).await.unwrap();
    stalled
        .write_all(b"GET /harvester-iso/big HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    // It is being served: its first byte is there. From here on it takes nothing.
    stalled.peek(&mut [0]).await.unwrap();
    assert_eq!(ask(server.address, "GET", "/harvester-iso/", "").await.status, 503);
    serves_again(&server).await;
}

/// A connection from an address of loopback of one's own, that was answered and is kept.
async fn kept(server: &Running, from: [u8; 4], request: &str) -> Option<(u16, TcpStream)> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut stream = socket.connect(server.address).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut bytes = Vec::new();
    loop {
        let mut part = [0; 4096];
        match timeout(PATIENCE, stream.read(&mut part)).await.unwrap() {
            Ok(count) if count > 0 => bytes.extend_from_slice(&part[..count]),
            _ => return None,
        }
        if let Some(reply) = Reply::parse(&bytes) {
            return Some((reply.status, stream));
        }
    }
}

/// Whether the server has not closed a connection.
fn is_open(stream: &TcpStream) -> bool {
    match stream.try_read(&mut [0; 4096]) {
        Ok(count) => count > 0,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s08_connections_that_only_rest_block_no_client() {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
    let sources = Sources::sample();
    let server = Running::start(&sources.iso(), Limits::REPOSITORY).await;
    let limits = Limits::REPOSITORY;
    let head = format!("HEAD {FILE} HTTP/1.1\r\nHost: x\r\n\r\n");
    // As many as there are places, and more, from one address and from many.
    let mut hogs = Vec::new();
    for number in 0..limits.connections + 100 {
        let from = if number < limits.connections {
            [127, 0, 1, 1]
        } else {
            [127, 0, 2, u8::try_from(number % 200).unwrap()]
        };
        hogs.push(kept(&server, from, &head).await.expect("whoever comes is answered"));
    }
    assert!(hogs.iter().all(|(status, _)| *status == 200));
    let get = format!("GET {FILE} HTTP/1.1\r\nHost: x\r\n\r\n");
    let (status, mut node) = kept(&server, [127, 0, 0, 1], &get).await.expect("a node is served");
    assert_eq!(status, 200);
    for probe in ["/healthz", RELEASE] {
        assert_eq!(server.get(probe, "").await.status, 200, "{probe}");
    }
    // Who was there first of the one with too many has gone; who has few stays.
    let of_one = hogs[..limits.connections]
        .iter()
        .filter(|(_, stream)| is_open(stream))
        .count();
    assert!(
        of_one <= limits.per_peer,
        "{of_one} connections of one address are open"
    );
    node.write_all(get.as_bytes()).await.unwrap();
    assert_eq!(one(&mut node).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s08_a_server_full_of_downloads_refuses_downloads_and_answers_probes() {
    let (_sources, iso) = big();
    let limits = Limits {
        connections: 8,
        per_peer: 4,
        refusals: 4,
        ..Limits::REPOSITORY
    };
    let server = Running::start(&iso, limits).await;
    let get = "GET /harvester-iso/big HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut downloads = Vec::new();
    for number in 0..8 {
        let from = [127, 0, 0, 2 + number / 4];
        downloads.push(kept(&server, from, get).await.expect("there is room"));
    }
    let (status, _) = kept(&server, [127, 0, 0, 2], get).await.expect("an answer");
    assert_eq!(status, 503, "that address has its share");
    let refused = server.get("/harvester-iso/big", "").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    // Half requests in the crowd are no hindrance either.
    let mut halves = Vec::new();
    for _ in 0..10 {
        let mut half = TcpStream::connect(server.address).await.unwrap();
        half.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n").await.unwrap();
        halves.push(half);
    }
    for probe in ["/healthz", RELEASE] {
        assert_eq!(server.get(probe, "").await.status, 200, "{probe}");
    }
    assert!(downloads.iter().all(|(status, _)| *status == 200));
    drop(downloads);
    serves_again(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_end_downloads_finish_and_no_new_client_is_served() {
    let (_sources, iso) = big();
    let mut server = Running::start(&iso, Limits::REPOSITORY).await;
    let mut resting = TcpStream::connect(server.address).await.unwrap();
    resting
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    one(&mut resting).await;
    let mut download = TcpStream::connect(server.address).await.unwrap();
    let request = b"GET /harvester-iso/big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    download.write_all(request).await.unwrap();
    download.peek(&mut [0]).await.unwrap();
    server.stop();
    assert_eq!(to_end(&mut resting).await, b"", "a connection at rest is closed");
    let refused = async { while TcpStream::connect(server.address).await.is_ok() {} };
    timeout(PATIENCE, refused).await.expect("no new connection is taken");
    let reply = Reply::parse(&to_end(&mut download).await).unwrap();
    assert_eq!(reply.body.len() as u64, BIG);
    drop(download);
    timeout(PATIENCE, &mut server.task)
        .await
        .expect("the server ends")
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_without_end_does_not_keep_the_server_from_ending() {
    let (_sources, iso) = big();
    let limits = Limits {
        grace: Duration::from_millis(200),
        ..Limits::REPOSITORY
    };
    let mut server = Running::start(&iso, limits).await;
    let mut stalled = TcpStream::connect(server.address).await.unwrap();
    stalled
        .write_all(b"GET /harvester-iso/big HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    stalled.peek(&mut [0]).await.unwrap();
    server.stop();
    timeout(Duration::from_secs(10), &mut server.task)
        .await
        .expect("the server ends")
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_shrinks_under_a_download_breaks_it_off() {
    let (_sources, iso) = big();
    let server = Running::start(&iso, Limits::REPOSITORY).await;
    fs::File::options()
        .write(true)
        .open(&iso)
        .unwrap()
        .set_len(4 << 20)
        .unwrap();
    let reply = server.get("/harvester-iso/big", "").await;
    assert!((reply.body.len() as u64) < BIG, "the client sees that it is not whole");
    assert_eq!(reply.header("content-length"), Some(BIG.to_string().as_str()));
}
