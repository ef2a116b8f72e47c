//! What an upgrade of a real cluster would be like: a value, and text, Markdown, JSON or YAML made from it.
//!
//! Pure. The rehearsal fills the value in.

mod markdown;
mod model;
mod text;

pub use markdown::markdown;
pub use model::{
    Blocker, BlockerKind, Change, ClusterSize, Forecast, NodeTime, PhaseTime, Verdict, VmMove, VmOff, changes,
};
pub use text::text;

use crate::report::ViewError;

/// A forecast for scripts.
///
/// # Errors
/// It cannot be written as JSON.
pub fn json(forecast: &Forecast) -> Result<String, ViewError> {
    let mut text = serde_json::to_string_pretty(forecast)?;
    text.push('\n');
    Ok(text)
}

/// The same as YAML.
///
/// # Errors
/// It cannot be written as YAML.
pub fn yaml(forecast: &Forecast) -> Result<String, ViewError> {
    serde_saphyr::to_string(forecast).map_err(|error| ViewError::Yaml(Box::new(error)))
}

/// A duration as `4:44` or `1:03:12`.
fn duration(seconds: i64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests;
