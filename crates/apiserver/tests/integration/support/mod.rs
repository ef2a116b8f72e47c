//! What the tests of this crate share: a server with a clock, and an invented kind.

// Each test binary uses a part of it.
use std::sync::Arc;

use apiserver::{ApiServer, Config, Now};
use serde_json::Value;

/// A clock that stands still at a known time.
pub(crate) fn fixed_clock() -> Now {
    let now: jiff::Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
    Arc::new(move || now)
}

/// A clock that follows tokio's (and so stands still or leaps with paused time).
pub(crate) fn tokio_clock() -> Now {
    let base: jiff::Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
    let epoch = tokio::time::Instant::now();
    Arc::new(move || base + epoch.elapsed())
}

/// A server with the clock standing still.
pub(crate) fn server() -> ApiServer {
    ApiServer::new(Config::new(fixed_clock()))
}

/// A kind with everything a schema can have: CEL rules, list types, defaults, columns, status.
pub(crate) fn widget_crd() -> Value {
    serde_saphyr::from_str(contract::WIDGETS).unwrap()
}
