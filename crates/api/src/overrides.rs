//! Uses of options of a plan that need a separate permission: the value of [`crate::annotations::OVERRIDES`].

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{UpgradePlan, annotations};

/// A use of such permissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// The name that the API server knows them by.
    pub by: String,
    /// Where on the plan, and with which value.
    pub what: Vec<String>,
    /// When.
    pub at: Timestamp,
}

/// How many uses a plan remembers: the last ones.
pub const MOST_REMEMBERED: usize = 20;

/// What the annotation holds: a list, or the one use that older managers noted.
#[derive(Deserialize)]
#[serde(untagged)]
enum Noted {
    All(Vec<Override>),
    Last(Override),
}

impl Override {
    /// Those of a plan that are remembered, the oldest first.
    #[must_use]
    pub fn all(plan: &UpgradePlan) -> Vec<Self> {
        let text = plan.annotation(annotations::OVERRIDES).unwrap_or_default();
        match serde_json::from_str(text) {
            Ok(Noted::All(all)) => all,
            Ok(Noted::Last(last)) => vec![last],
            Err(_) => Vec::new(),
        }
    }

    /// The last one of a plan, if there was one.
    #[must_use]
    pub fn of(plan: &UpgradePlan) -> Option<Self> {
        Self::all(plan).pop()
    }
}
