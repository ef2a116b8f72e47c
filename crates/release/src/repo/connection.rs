//! One connection: reads requests one after the other, within limits, and carries out what they get.

use std::{io, sync::Arc, time::SystemTime};

use clock::Clock;
use serving::{Limits, Place};
use tokio::{net::TcpStream, sync::watch, time::timeout};
use tokio_rustls::TlsAcceptor;

use super::{
    answer::{Answer, Body, answer, reason},
    channel::Channel,
    request::{self, Head, Method, Request},
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
    /// Turns true when a shutdown was requested.
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
pub(super) async fn run(stream: TcpStream, door: Option<TlsAcceptor>, mut shared: Shared, place: &Place) {
    // Head and file are sent by two calls; the second must not wait for the first to be acknowledged.
    let _ = stream.set_nodelay(true);
    let mut channel = match door {
        None => Channel::Plain(Arc::new(stream)),
        Some(door) => match timeout(shared.limits.handshake, door.accept(stream)).await {
            Ok(Ok(stream)) => Channel::Tls(Box::new(stream)),
            Ok(Err(error)) => return tracing::debug!(%error, "a handshake failed"),
            Err(_) => return tracing::debug!("a handshake took too long"),
        },
    };
    let mut buffer = Vec::with_capacity(1024);
    let mut first = true;
    loop {
        let incoming = match next(&mut channel, &mut buffer, &mut shared, first).await {
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
                (too_many_connections(), request)
            }
            Incoming::Request(request) => (answer(&shared.iso, &request), request),
        };
        let keep_alive = request.keep_alive && !place.is_crowded() && !*shared.stopping.borrow();
        tracing::debug!(target = %request.target, status = answer.status, "answered");
        place.set_answered(true);
        let responded = respond(&mut channel, &shared, &answer, request.method, keep_alive).await;
        place.set_answered(false);
        match responded {
            Ok(()) if keep_alive => {}
            Ok(()) => return linger(&mut channel, &shared.limits).await,
            Err(error) => {
                tracing::info!(%error, target = %request.target, "a download was not finished");
                return;
            }
        }
    }
}

/// The response when there are too many connections.
fn too_many_connections() -> Answer {
    let mut answer = Answer::status(503);
    answer.headers.push(("retry-after", "5".to_owned()));
    answer
}

/// Reads the head of the next request; what follows it stays in the buffer.
async fn next(channel: &mut Channel, buffer: &mut Vec<u8>, shared: &mut Shared, first: bool) -> io::Result<Incoming> {
    let limits = shared.limits;
    if buffer.is_empty() {
        let patience = if first { limits.header_time } else { limits.idle };
        let more = tokio::select! {
            biased;
            _ = shared.stopping.wait_for(|stopping| *stopping) => return Ok(Incoming::Closed),
            more = timeout(patience, channel.read(buffer)) => more,
        };
        match more {
            Ok(Ok(0)) | Err(_) => return Ok(Incoming::Closed),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error),
        }
    }
    // From its first byte on, a request has so long and no longer, however it trickles in.
    match timeout(limits.header_time, whole(channel, buffer, limits.header_bytes)).await {
        Ok(incoming) => incoming,
        Err(_) => Ok(Incoming::Refused(408)),
    }
}

async fn whole(channel: &mut Channel, buffer: &mut Vec<u8>, most: usize) -> io::Result<Incoming> {
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
        if channel.read(buffer).await? == 0 {
            return Ok(Incoming::Closed);
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
    channel: &mut Channel,
    shared: &Shared,
    answer: &Answer,
    method: Method,
    keep_alive: bool,
) -> io::Result<()> {
    let stall = shared.limits.stall;
    let mut head = head(answer, keep_alive, Some(shared.clock.now().into()));
    if method == Method::Head {
        channel.send(head.as_bytes(), stall).await?;
        return channel.flush(stall).await;
    }
    if let Body::Text(text) = &answer.body {
        head.push_str(text);
    }
    channel.send(head.as_bytes(), stall).await?;
    if let Body::Bytes(extents) = &answer.body {
        for extent in extents {
            channel.send_extent(&shared.iso, *extent, stall).await?;
        }
    }
    channel.flush(stall).await
}

/// Closes, but reads the rest of the request for a while: closing with something unread would make the kernel drop the answer
/// on its way.
async fn linger(channel: &mut Channel, limits: &Limits) {
    if channel.shut(limits.stall).await.is_err() {
        return;
    }
    let drain = async {
        let mut heard = 0;
        let mut buffer = Vec::new();
        while let Ok(count) = channel.read(&mut buffer).await {
            heard += count;
            buffer.clear();
            if count == 0 || heard > LINGER_BYTES {
                return;
            }
        }
    };
    let _ = timeout(limits.header_time, drain).await;
}
