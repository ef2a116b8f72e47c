//! Serves HTTP/1.1 within limits. HTTP/2 is not supported: no client needs it, and it has additional attacks.

use std::{future::Future, io, net::IpAddr, pin::pin, time::Duration};

use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::{
    body::{Body, Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tower::{Service, ServiceExt};

use crate::{Limits, Places, RequestBody, body::AnswerBody, phase::Connection, stream::Watched};

/// An error of any kind.
type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Pause after a connection could not be accepted, for example for lack of file handles.
const BREATH: Duration = Duration::from_millis(100);

/// Who sent a request; among its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// Serves until `end` is ready, or until it is dropped; open connections end with it, after [`Limits::grace`] in the
/// first case. A handshake makes a stream of what was accepted; what it refuses is forgotten.
pub async fn serve<H, HF, IO, S, B>(
    listener: &TcpListener,
    limits: Limits,
    handshake: H,
    service: S,
    end: impl Future<Output = ()>,
) where
    H: Fn(TcpStream) -> HF + Clone + Send + 'static,
    HF: Future<Output = io::Result<IO>> + Send,
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let places = Places::new(&limits);
    let (stop, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut end = pin!(end);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut end => break,
            // Finished connections are forgotten as they finish, not only when the next one comes.
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok((stream, address)) => (stream, address.ip().to_canonical()),
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                sleep(BREATH).await;
                continue;
            }
        };
        // The place is taken here, so that what is waiting never grows.
        let connection = Connection::new(places.enter(peer));
        let (handshake, service, stopping) = (handshake.clone(), service.clone(), stopping.clone());
        connections.spawn(async move {
            let served = attend(stream, peer, &limits, handshake, service, connection.clone(), stopping);
            tokio::select! {
                biased;
                () = served => {}
                why = connection.over(&limits) => tracing::debug!(%peer, why, "a connection was closed"),
            }
        });
    }
    // Only fails when no connection is left.
    let _ = stop.send(true);
    let rest = async { while connections.join_next().await.is_some() {} };
    if timeout(limits.grace, rest).await.is_err() {
        tracing::debug!("some connections were cut off: they did not end in time");
    }
}

/// Serves one connection to its end.
async fn attend<H, HF, IO, S, B>(
    stream: TcpStream,
    peer: IpAddr,
    limits: &Limits,
    handshake: H,
    service: S,
    connection: Connection,
    mut stopping: watch::Receiver<bool>,
) where
    H: Fn(TcpStream) -> HF,
    HF: Future<Output = io::Result<IO>>,
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<BoxError>,
{
    // Answers are small; they must not wait for more to come.
    let _ = stream.set_nodelay(true);
    let stream = match timeout(limits.handshake, handshake(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "a handshake failed"),
        Err(_) => return tracing::debug!(%peer, "a handshake took too long"),
    };
    let stream = Watched::new(stream, connection.clone(), limits.stall);
    let answer = service_fn(move |request| answer(request, peer, limits, service.clone(), connection.clone()));
    let serving = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(limits.header_bytes)
        .max_headers(limits.headers)
        .serve_connection(TokioIo::new(stream), answer);
    let mut serving = pin!(serving);
    let mut is_notified = false;
    let served = loop {
        tokio::select! {
            biased;
            served = &mut serving => break served,
            // An error means that the server was dropped, and this with it.
            _ = stopping.wait_for(|stopping| *stopping), if !is_notified => {
                is_notified = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    };
    if let Err(error) = served {
        tracing::debug!(%peer, %error, "a connection ended");
    }
}

/// One request, from the end of its head to the head of its answer.
async fn answer<S, B>(
    request: Request<Incoming>,
    peer: IpAddr,
    limits: &Limits,
    service: S,
    connection: Connection,
) -> Result<Response<AnswerBody<Either<B, Full<Bytes>>>>, BoxError>
where
    S: Service<Request<RequestBody>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes>,
{
    let under_way = connection.begin();
    let is_crowded = connection.is_crowded();
    let response = if is_crowded && !limits.is_probe(request.uri().path()) {
        refusal("there are too many connections; try again later\n")
    } else {
        let mut request = request.map(|body| RequestBody::new(body, limits, connection));
        request.extensions_mut().insert(Peer(peer));
        match timeout(limits.answer_time, service.oneshot(request)).await {
            Ok(Ok(response)) => response.map(Either::Left),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => refusal("there was no response in time; try again later\n"),
        }
    };
    let mut response = response.map(|body| AnswerBody {
        body: Box::pin(body),
        _under_way: under_way,
    });
    if is_crowded {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    Ok(response)
}

/// Says that now is not the time, and hangs up.
fn refusal<B>(why: &'static str) -> Response<Either<B, Full<Bytes>>> {
    let mut response = Response::new(Either::Right(Full::from(why)));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}
