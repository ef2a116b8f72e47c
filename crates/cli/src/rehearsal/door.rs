//! The HTTP door of a served rehearsal: whoever can reach its loopback port is the cluster's administrator.
//!
//! kubectl sends no token over plain HTTP, and the embedded API asks everybody for one as soon as it enforces roles.
//! The roles are for the manager, which goes through another door; people may do everything.

use apiserver::{ApiServer, BODY_LIMIT, Identity};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    serve::ListenerExt,
};
use tokio::net::TcpListener;

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
    let (parts, body) = request.into_parts();
    match to_bytes(body, BODY_LIMIT).await {
        Ok(bytes) => {
            let request = Request::from_parts(parts, bytes);
            server.handle(&Identity::admin(), request).await.map(Body::new)
        }
        Err(_) => (
            StatusCode::PAYLOAD_TOO_LARGE,
            "the request is larger than 3 MiB or broke off",
        )
            .into_response(),
    }
}
