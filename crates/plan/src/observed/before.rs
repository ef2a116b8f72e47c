//! What was seen right before the first change of an upgrade. The record itself, which may be large, is not here.

use api::CheckSummary;
use serde::{Deserialize, Serialize};

/// What was seen right before the first change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Before {
    /// What the checks found that block nothing.
    pub preflight: CheckSummary,
    /// Why the record cannot be stored, once that is given up.
    pub not_stored: Option<String>,
}
