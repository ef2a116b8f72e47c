//! How far an upgrade is, and when it is expected to end: `status.progress`. How that is found out is not decided here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::upgrade_plan::DateTime;

/// How far the upgrade is, and when it is expected to end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeProgress {
    /// How much of the upgrade is done, weighted by how long its parts take. It never decreases, and is 100 only when the
    /// upgrade has succeeded.
    #[schemars(range(min = 0, max = 100))]
    pub percent: i32,
    /// What is being done, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// When the upgrade is expected to end, if nothing blocks it. Absent when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<DateTime>")]
    pub estimated_end: Option<Time>,
    /// The earliest end that is likely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<DateTime>")]
    pub estimated_end_earliest: Option<Time>,
    /// The latest end that is likely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<DateTime>")]
    pub estimated_end_latest: Option<Time>,
}
