//! `/healthz` and `/readyz`.

use axum::{Router, http::StatusCode, routing::get};
use tokio::net::TcpListener;

use crate::watched::Watched;

/// Serves both until the manager ends.
///
/// # Errors
/// The listener broke.
pub async fn serve(listener: TcpListener, watched: Watched) -> std::io::Result<()> {
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
    axum::serve(listener, router).await
}
