//! What checks found before or after an upgrade, in short: a part of a plan's status.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Insight, upgrade_plan::DateTime};

/// What checks found, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckSummary {
    /// When the checks ran.
    #[schemars(with = "DateTime")]
    pub at: Time,
    /// How many checks found an error.
    #[schemars(range(min = 0))]
    pub errors: i32,
    /// How many other checks found something that needs attention.
    #[schemars(range(min = 0))]
    pub warnings: i32,
    /// How many checks could not be made, because they need what the manager does not read. `upgrade-toolkit` makes them with the rights
    /// of its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub not_checked: Option<i32>,
    /// What they found, the worst first, one of each check. If there are more than ten, the others are only counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub findings: Vec<Insight>,
}

/// As an event has it.
impl fmt::Display for Insight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}. {}", self.id, self.message, self.remedy)
    }
}

impl CheckSummary {
    /// The most findings that are shown.
    pub const MOST_FINDINGS: usize = 10;

    /// How many checks found something that is not shown.
    #[must_use]
    pub fn not_shown(&self) -> usize {
        let all = self.errors.saturating_add(self.warnings);
        usize::try_from(all)
            .unwrap_or_default()
            .saturating_sub(self.findings.len())
    }
}
