//! A repository that misbehaves as it is told.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// What it does with one GET.
#[derive(Clone, Debug)]
pub(crate) enum ServerFault {
    /// Promises everything and hangs up after so many bytes.
    CutAfter(usize),
    /// Answers with this status.
    Status(u16),
    /// Changes a byte in the middle of what it sends.
    Damage,
    /// Has other content from here on.
    Becomes(Vec<u8>),
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Vec<u8>>,
    faults: BTreeMap<String, VecDeque<ServerFault>>,
    always: BTreeMap<String, ServerFault>,
    ignores_ranges: bool,
    has_no_tags: bool,
    requests: Vec<String>,
    sent: u64,
}

/// A running one. Ends with the test's runtime.
#[derive(Clone)]
pub(crate) struct Hostile {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

impl Hostile {
    /// Serves these files under `/harvester-iso/`.
    pub(crate) async fn start(files: BTreeMap<String, Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/harvester-iso", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State {
            files,
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(stream, Arc::clone(&shared)));
            }
        });
        Self { url, state }
    }

    /// The next GETs of a file go like this; then as they should.
    pub(crate) fn faults(&self, path: &str, faults: impl IntoIterator<Item = ServerFault>) -> &Self {
        let mut state = self.state.lock().unwrap();
        state.faults.entry(path.to_owned()).or_default().extend(faults);
        drop(state);
        self
    }

    /// All GETs of a file go like this.
    pub(crate) fn always(&self, path: &str, fault: ServerFault) -> &Self {
        self.state.lock().unwrap().always.insert(path.to_owned(), fault);
        self
    }

    /// Behaves again.
    pub(crate) fn behave(&self) {
        let mut state = self.state.lock().unwrap();
        state.always.clear();
        state.faults.clear();
    }

    pub(crate) fn ignore_ranges(&self) {
        self.state.lock().unwrap().ignores_ranges = true;
    }

    pub(crate) fn have_no_tags(&self) {
        self.state.lock().unwrap().has_no_tags = true;
    }

    pub(crate) fn put(&self, path: &str, content: Vec<u8>) {
        self.state.lock().unwrap().files.insert(path.to_owned(), content);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.state.lock().unwrap().files.remove(path);
    }

    /// Requests so far, each as `METHOD path range if-range`; forgets them.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    /// Bytes of bodies sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.state.lock().unwrap().sent
    }
}

async fn answer(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut buffer = [0; 1024];
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => head.extend_from_slice(&buffer[..length]),
        }
    }
    let (reply, body) = decide(&String::from_utf8_lossy(&head), &state);
    let _ = stream.write_all(reply.as_bytes()).await;
    let _ = stream.write_all(&body).await;
    state.lock().unwrap().sent += body.len() as u64;
    let _ = stream.shutdown().await;
}

fn decide(head: &str, state: &Mutex<State>) -> (String, Vec<u8>) {
    let mut words = head.split_whitespace();
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    // What is beside the root of the image has its whole name.
    let path = target
        .strip_prefix("/harvester-iso/")
        .or_else(|| target.strip_prefix('/'));
    let path = path.unwrap_or_default();
    let header = |name: &str| {
        let line = head
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")));
        line.and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim().to_owned())
    };
    let (range, if_range) = (header("range"), header("if-range"));
    let mut state = state.lock().unwrap();
    let state = &mut *state;
    let note = [Some(method), Some(path), range.as_deref(), if_range.as_deref()];
    state
        .requests
        .push(note.into_iter().flatten().collect::<Vec<_>>().join(" "));
    let queued = state
        .faults
        .get_mut(path)
        .filter(|_| method == "GET")
        .and_then(VecDeque::pop_front);
    let fault = queued.or_else(|| state.always.get(path).filter(|_| method == "GET").cloned());
    if let Some(ServerFault::Status(status)) = fault {
        return (
            format!("HTTP/1.1 {status} Trouble\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
            Vec::new(),
        );
    }
    if let Some(ServerFault::Becomes(content)) = &fault {
        state.files.insert(path.to_owned(), content.clone());
    }
    let Some(content) = state.files.get(path) else {
        return (
            "HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\nconnection: close\r\n\r\n".to_owned(),
            b"not here\n".to_vec(),
        );
    };
    let tag = format!("\"{}\"", &super::archive::hex(content)[..16]);
    let begin = range
        .as_deref()
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let same = if_range.is_none_or(|condition| condition == tag);
    let begin = begin.filter(|_| same && !state.ignores_ranges);
    let mut body = content[begin.unwrap_or(0)..].to_vec();
    let mut reply = match begin {
        Some(begin) => format!(
            "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes {begin}-{}/{}\r\n",
            content.len() - 1,
            content.len()
        ),
        None => "HTTP/1.1 200 OK\r\n".to_owned(),
    };
    if !state.has_no_tags {
        reply.push_str(&format!("etag: {tag}\r\n"));
    }
    reply.push_str(&format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len()));
    match fault {
        Some(ServerFault::CutAfter(length)) => body.truncate(length),
        Some(ServerFault::Damage) => {
            let middle = body.len() / 2;
            body[middle] ^= 0xff;
        }
        _ => {}
    }
    if method == "HEAD" {
        body.clear();
    }
    (reply, body)
}
