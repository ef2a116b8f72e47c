//! The HTTP door of a served rehearsal: whoever can reach its loopback port is the cluster's administrator.
//!
//! kubectl sends no token over plain HTTP, and the embedded API asks everybody for one as soon as it enforces roles.
//! The roles are for the manager, which goes through another door; people may do everything.

use apiserver::{ApiServer, BODY_LIMIT, Identity};
use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{
        StatusCode,
        header::{ACCEPT, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    serve::ListenerExt,
};
use serde_json::Value;
use tokio::net::TcpListener;

use super::openapi_protobuf;

/// Serves the cluster on a listener, for ever.
///
/// # Errors
/// The listener failed.
pub async fn serve(server: ApiServer, listener: TcpListener) -> std::io::Result<()> {
    let router = Router::new().fallback(answer).with_state(server);
    // Events of a watch are small and should not wait for one another.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, router).await
}

async fn answer(State(server): State<ApiServer>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, BODY_LIMIT).await else {
        return (
            StatusCode::PAYLOAD_TOO_LARGE,
            "the request is larger than 3 MiB or broke off",
        )
            .into_response();
    };
    let accept = parts.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let wants_protobuf = accept.is_some_and(|accept| accept.starts_with(openapi_protobuf::ASKED));
    if parts.uri.path() == "/openapi/v2" && wants_protobuf {
        parts.headers.remove(ACCEPT);
        let document = ask(&server, Request::from_parts(parts, bytes)).await;
        return openapi(document).await;
    }
    ask(&server, Request::from_parts(parts, bytes)).await
}

async fn ask(server: &ApiServer, request: axum::http::Request<Bytes>) -> Response {
    server.handle(&Identity::admin(), request).await.map(Body::new)
}

/// The OpenAPI document in the only form that older clients read.
async fn openapi(document: Response) -> Response {
    let body = to_bytes(document.into_body(), usize::MAX).await.unwrap_or_default();
    match serde_json::from_slice::<Value>(&body) {
        Ok(document) => {
            let headers = [(CONTENT_TYPE, openapi_protobuf::ANSWERED)];
            (headers, openapi_protobuf::encode(&document)).into_response()
        }
        Err(_) => StatusCode::NOT_ACCEPTABLE.into_response(),
    }
}
