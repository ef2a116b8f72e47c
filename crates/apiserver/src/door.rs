//! The doors: in process as a tower service, over HTTP on a listener. Both end in `ApiServer::handle`.

use std::future::Future;

use http::{Request, Response};
use http_body_util::{BodyExt, LengthLimitError};
use hyper::body::Body as _;
use serving::{Limits, RequestBody, TooSlow};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    BODY_LIMIT,
    browser::Door,
    identity::Identity,
    response::{self, Body, ReplyLost},
    server::ApiServer,
    status::ApiError,
};

/// The client must not learn how its request ended.
#[derive(Debug, thiserror::Error)]
#[error("connection closed before message completed")]
struct ConnectionLost;

impl ApiServer {
    /// An in-process client of the cluster administrator.
    pub fn client(&self) -> kube::Client {
        self.client_as(Identity::admin())
    }

    /// An in-process client of a user: no sockets, threads or retries. Build it inside a tokio runtime.
    pub fn client_as(&self, who: Identity) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, who) = (server.clone(), who.clone());
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await?;
                let response = server.handle(&who, Request::from_parts(parts, bytes)).await;
                if response.extensions().get::<ReplyLost>().is_some() {
                    return Err(Box::new(ConnectionLost) as tower::BoxError);
                }
                Ok::<_, tower::BoxError>(response)
            }
        });
        kube::Client::new(service, "default")
    }

    /// Serves HTTP/1.1 within limits until `shutdown`; open watches end with it. Only programs are served, and only by the
    /// names of loopback or of the address that is listened on: not what a page in a browser sends.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()> + Send + 'static) {
        let door = Door::of(listener.local_addr().ok());
        let (closing, closed) = tokio::sync::watch::channel(false);
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            let (server, door, closed) = (self.clone(), door, closed.clone());
            async move {
                let mut response = match door.admit(request.method(), request.headers()) {
                    Ok(()) => server.answer(request, closed).await?,
                    Err(error) => response::error(&error),
                };
                if let Some(date) = server.date() {
                    response.headers_mut().insert(http::header::DATE, date);
                }
                Ok::<_, ConnectionLost>(response)
            }
        });
        let end = async {
            shutdown.await;
            // Only fails when no connection is left.
            let _ = closing.send(true);
        };
        let handshake = |stream: TcpStream| std::future::ready(Ok(stream));
        serving::http::serve(&listener, Limits::REHEARSAL, handshake, service, end).await;
    }

    async fn answer(
        &self,
        request: Request<RequestBody>,
        mut closed: tokio::sync::watch::Receiver<bool>,
    ) -> Result<Response<Body>, ConnectionLost> {
        let who = match self.identify(request.headers()) {
            Ok(who) => who,
            Err(error) => return Ok(response::error(&error)),
        };
        let (parts, body) = request.into_parts();
        let bytes = match body.collect().await {
            Ok(whole) => whole.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Ok(response::error(&ApiError::too_large(BODY_LIMIT)));
            }
            Err(error) if error.is::<TooSlow>() => {
                return Ok(response::error(&ApiError::new(408, "Timeout", error.to_string())));
            }
            Err(_) => return Err(ConnectionLost),
        };
        let response = self.handle(&who, Request::from_parts(parts, bytes)).await;
        if response.extensions().get::<ReplyLost>().is_some() {
            return Err(ConnectionLost);
        }
        if response.size_hint().exact().is_some() {
            return Ok(response);
        }
        // A watch would keep the connection, and so the shutdown, waiting for its timeout.
        Ok(response.map(|body| {
            use futures::StreamExt as _;
            let ended = async move {
                while !*closed.borrow_and_update() {
                    if closed.changed().await.is_err() {
                        break;
                    }
                }
            };
            let frames = http_body_util::BodyStream::new(body).take_until(ended);
            http_body_util::StreamBody::new(frames).boxed_unsync()
        }))
    }

    /// The time in the cluster, as every answer over HTTP has it: clients see by it how old things are.
    fn date(&self) -> Option<http::HeaderValue> {
        let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&(self.0.config.now)());
        date.ok().and_then(|date| date.parse().ok())
    }

    fn identify(&self, headers: &http::HeaderMap) -> Result<Identity, ApiError> {
        let header = headers
            .get(http::header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        match header {
            None if self.0.tokens().is_required => Err(ApiError::new(401, "Unauthorized", "Unauthorized")),
            None => match &self.0.config.without_token {
                Some(who) => Ok(who.clone()),
                None if self.0.config.enforce_rbac => Err(ApiError::new(401, "Unauthorized", "Unauthorized")),
                None => Ok(Identity::admin()),
            },
            Some(header) => {
                let token = header.strip_prefix("Bearer ").unwrap_or_default().trim();
                let known = self.0.tokens().identity(token);
                known.ok_or_else(|| ApiError::new(401, "Unauthorized", "Unauthorized"))
            }
        }
    }
}
