//! Each rule as a table: what goes in, what comes out, at both sides of every condition.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking and says what it measured"
)]

mod budgets;
mod deadlines;
mod evacuation;
mod events;
mod fleet;
mod migration;
mod progress;
mod storage;
mod versions;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads an object of any kind.
fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}
