//! `/healthz` and `/readyz`.

use axum::{Router, http::StatusCode, routing::get};
use serving::Limits;
use tokio::net::TcpListener;

use crate::{https, watched::Watched};

/// Serves both until it is dropped.
pub async fn serve(listener: TcpListener, watched: Watched) {
    let ready = move || {
        let watched = watched.clone();
        async move {
            if watched.is_synced() {
                (StatusCode::OK, "ok")
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, "caches are not filled yet")
            }
        }
    };
    let router = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(ready));
    https::serve_plain(&listener, router, Limits::HEALTH).await;
}
