//! Who used what on a plan that needs a permission of its own: the value of [`crate::annotations::OVERRIDES`].

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{UpgradePlan, annotations};

/// A use of such permissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// The name that the API server knows them by.
    pub by: String,
    /// Where on the plan.
    pub what: Vec<String>,
    /// When.
    pub at: Timestamp,
}

impl Override {
    /// The last one of a plan, if there was one.
    #[must_use]
    pub fn of(plan: &UpgradePlan) -> Option<Self> {
        serde_json::from_str(plan.annotation(annotations::OVERRIDES)?).ok()
    }
}
