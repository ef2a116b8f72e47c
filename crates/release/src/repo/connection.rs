//! One connection: reads requests one after the other, within limits, and carries out what they get.

use std::{io, sync::Arc, time::SystemTime};

use clock::Clock;
use rustix::net::Shutdown;
use serving::{Limits, Place};
use tokio::{net::TcpStream, sync::watch, time::timeout};

use super::{
    answer::{Answer, Body, answer, reason},
    request::{self, Head, Method, Request},
    send,
};
use crate::iso::Iso;

/// What a closing connection may still send until it is cut off.
const LINGER_BYTES: usize = 256 * 1024;

/// What all connections share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) iso: Arc<Iso>,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
    /// Turns true when the end was asked for.
    pub(super) stopping: watch::Receiver<bool>,
}

/// What came in.
enum Incoming {
    Request(Request),
    Refused(u16),
    /// The client went away, or stayed away too long.
    Closed,
}

/// Serves a connection to its end. One that came into a crowd has one request answered, if that is a probe.
pub(super) async fn run(stream: TcpStream, mut shared: Shared, place: &Place) {
    // Head and file are sent by two calls; the second must not wait for the first to be acknowledged.
    let _ = stream.set_nodelay(true);
    let stream = Arc::new(stream);
    let mut buffer = Vec::with_capacity(1024);
    let mut first = true;
    loop {
        let incoming = match next(&stream, &mut buffer, &mut shared, first).await {
            Ok(incoming) => incoming,
            Err(error) => {
                tracing::debug!(%error, "a connection failed");
                return;
            }
        };
        first = false;
        let (answer, request) = match incoming {
            Incoming::Closed => return,
            Incoming::Refused(status) => (Answer::status(status), Request::default()),
            Incoming::Request(request) if place.is_crowded() && !shared.limits.is_probe(&request.target) => {
                (full_house(), request)
            }
            Incoming::Request(request) => (answer(&shared.iso, &request), request),
        };
        let keep_alive = request.keep_alive && !place.is_crowded() && !*shared.stopping.borrow();
        tracing::debug!(target = %request.target, status = answer.status, "answered");
        place.set_answered(true);
        let responded = respond(&stream, &shared, &answer, request.method, keep_alive).await;
        place.set_answered(false);
        match responded {
            Ok(()) if keep_alive => {}
            Ok(()) => return linger(&stream, &shared.limits).await,
            Err(error) => {
                tracing::info!(%error, target = %request.target, "a download was not finished");
                return;
            }
        }
    }
}

/// Tells a client that there are too many.
fn full_house() -> Answer {
    let mut answer = Answer::status(503);
    answer.headers.push(("retry-after", "5".to_owned()));
    answer
}

/// Reads the head of the next request; what follows it stays in the buffer.
async fn next(stream: &TcpStream, buffer: &mut Vec<u8>, shared: &mut Shared, first: bool) -> io::Result<Incoming> {
    let limits = shared.limits;
    if buffer.is_empty() {
        let patience = if first { limits.header_time } else { limits.idle };
        let more = tokio::select! {
            biased;
            _ = shared.stopping.wait_for(|stopping| *stopping) => return Ok(Incoming::Closed),
            more = timeout(patience, read(stream, buffer)) => more,
        };
        match more {
            Ok(Ok(0)) | Err(_) => return Ok(Incoming::Closed),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error),
        }
    }
    // From its first byte on, a request has so long and no longer, however it trickles in.
    match timeout(limits.header_time, whole(stream, buffer, limits.header_bytes)).await {
        Ok(incoming) => incoming,
        Err(_) => Ok(Incoming::Refused(408)),
    }
}

async fn whole(stream: &TcpStream, buffer: &mut Vec<u8>, most: usize) -> io::Result<Incoming> {
    loop {
        match request::parse(buffer) {
            Head::Complete(request, length) if length <= most => {
                buffer.drain(..length);
                return Ok(Incoming::Request(request));
            }
            Head::Refused(status) => return Ok(Incoming::Refused(status)),
            Head::Complete(..) => return Ok(Incoming::Refused(431)),
            Head::Incomplete if buffer.len() >= most => return Ok(Incoming::Refused(431)),
            Head::Incomplete => {}
        }
        if read(stream, buffer).await? == 0 {
            return Ok(Incoming::Closed);
        }
    }
}

/// Reads what is there, at most so much that the buffer stays bounded.
async fn read(stream: &TcpStream, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let mut part = [0; 4096];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut part) {
            Ok(count) => {
                buffer.extend_from_slice(part.get(..count).unwrap_or_default());
                return Ok(count);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// The head of an answer.
fn head(answer: &Answer, keep_alive: bool, now: Option<SystemTime>) -> String {
    let mut head = format!("HTTP/1.1 {} {}\r\n", answer.status, reason(answer.status));
    let mut add = |name: &str, value: &str| {
        for part in [name, ": ", value, "\r\n"] {
            head.push_str(part);
        }
    };
    if let Some(now) = now {
        add("date", &httpdate::fmt_http_date(now));
    }
    for (name, value) in &answer.headers {
        add(name, value);
    }
    if let Some(length) = answer.body.length() {
        add("content-length", &length.to_string());
    }
    add("x-content-type-options", "nosniff");
    add("connection", if keep_alive { "keep-alive" } else { "close" });
    head.push_str("\r\n");
    head
}

async fn respond(
    stream: &Arc<TcpStream>,
    shared: &Shared,
    answer: &Answer,
    method: Method,
    keep_alive: bool,
) -> io::Result<()> {
    let stall = shared.limits.stall;
    let mut head = head(answer, keep_alive, Some(shared.clock.now().into()));
    if method == Method::Head {
        return send::bytes(stream, head.as_bytes(), stall).await;
    }
    if let Body::Text(text) = &answer.body {
        head.push_str(text);
    }
    send::bytes(stream, head.as_bytes(), stall).await?;
    if let Body::Bytes(extents) = &answer.body {
        for extent in extents {
            send::extent(stream, &shared.iso, *extent, stall).await?;
        }
    }
    Ok(())
}

/// Closes, but hears the client out for a while: closing with something unread would make the kernel drop the answer
/// on its way.
async fn linger(stream: &TcpStream, limits: &Limits) {
    if rustix::net::shutdown(stream, Shutdown::Write).is_err() {
        return;
    }
    let drain = async {
        let mut heard = 0;
        let mut buffer = Vec::new();
        while let Ok(count) = read(stream, &mut buffer).await {
            heard += count;
            buffer.clear();
            if count == 0 || heard > LINGER_BYTES {
                return;
            }
        }
    };
    let _ = timeout(limits.header_time, drain).await;
}
