//! The doors: in process as a tower service, over HTTP on a listener. Both end in `ApiServer::handle`.

use std::{future::Future, pin::pin};

use http::{Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::net::TcpListener;

use crate::{
    BODY_LIMIT,
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

    /// An in-process client of somebody: no sockets, threads or retries. Build it inside a tokio runtime.
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

    /// Serves HTTP (1.1 and 2 with prior knowledge) until `shutdown`; open watches end with it.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()> + Send + 'static) {
        let mut shutdown = pin!(shutdown);
        let graceful = GracefulShutdown::new();
        let (closing, closed) = tokio::sync::watch::channel(false);
        loop {
            let stream = tokio::select! {
                biased;
                () = &mut shutdown => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    // A connection that broke before it was accepted concerns nobody else.
                    Err(error) => { tracing::debug!(%error, "failed to accept a connection"); continue }
                },
            };
            let server = self.clone();
            let closed = closed.clone();
            let service = hyper::service::service_fn(move |request| {
                let (server, closed) = (server.clone(), closed.clone());
                async move { server.answer(request, closed).await }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(error, "connection ended");
                }
            });
        }
        // Only fails when no connection is left to tell.
        let _ = closing.send(true);
        graceful.shutdown().await;
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        mut closed: tokio::sync::watch::Receiver<bool>,
    ) -> Result<Response<Body>, ConnectionLost> {
        let who = match self.identify(request.headers()) {
            Ok(who) => who,
            Err(error) => return Ok(response::error(&error)),
        };
        let (parts, body) = request.into_parts();
        let bytes = match Limited::new(body, BODY_LIMIT).collect().await {
            Ok(whole) => whole.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Ok(response::error(&ApiError::too_large(BODY_LIMIT)));
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

    fn identify(&self, headers: &http::HeaderMap) -> Result<Identity, ApiError> {
        let header = headers
            .get(http::header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        match header {
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
