//! What is kept of Secrets: names, labels, annotations, type, and those values that say how far an agent is. Never a token, a
//! key or a password.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Deserialize, Serialize};

/// Type of the Secrets that hold the plan of a node's agent.
pub const MACHINE_PLAN: &str = "rke.cattle.io/machine-plan";
/// Type of the Secrets in which Helm records releases.
pub const HELM_RELEASE: &str = "helm.sh/release.v1";

/// Values of machine-plan Secrets that are kept: the same as support bundles keep.
const KEPT: [&str; 11] = [
    "applied-checksum",
    "applied-output-checksum",
    "failed-checksum",
    "failure-count",
    "failure-threshold",
    "last-apply-time",
    "max-failures",
    "plan-checksum",
    "probe-statuses",
    "probe-status",
    "success-count",
];

/// A Secret without what is secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecretSummary {
    /// Name, namespace, labels, annotations.
    pub metadata: ObjectMeta,
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// Of a machine plan: the values that say how far the agent is.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub progress: BTreeMap<String, String>,
    /// Of a machine plan: the agent has applied it. Absent where it is not known, as in a support bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_applied: Option<bool>,
}

impl SecretSummary {
    /// An annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// A label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// It holds the plan of a node's agent.
    #[must_use]
    pub fn is_machine_plan(&self) -> bool {
        self.type_ == MACHINE_PLAN
    }
}

impl From<Secret> for SecretSummary {
    fn from(secret: Secret) -> Self {
        let type_ = secret.type_.unwrap_or_default();
        let data = secret.data.unwrap_or_default();
        let mut progress = BTreeMap::new();
        let mut is_applied = None;
        if type_ == MACHINE_PLAN {
            for key in KEPT {
                if let Some(value) = data.get(key).and_then(|bytes| std::str::from_utf8(&bytes.0).ok()) {
                    progress.insert(key.to_owned(), value.to_owned());
                }
            }
            is_applied = data.get("plan").map(|plan| data.get("appliedPlan") == Some(plan));
        }
        Self {
            metadata: secret.metadata,
            type_,
            progress,
            is_applied,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn secret(type_: &str, data: &[(&str, &str)]) -> Secret {
        Secret {
            type_: Some(type_.to_owned()),
            data: Some(
                data.iter()
                    .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())))
                    .collect(),
            ),
            ..Secret::default()
        }
    }

    #[test]
    fn of_a_machine_plan_only_its_progress_is_kept() {
        let data = [("plan", "TOKEN"), ("appliedPlan", "TOKEN"), ("failure-count", "3")];
        let summary = SecretSummary::from(secret(MACHINE_PLAN, &data));
        assert_eq!(summary.is_applied, Some(true));
        assert_eq!(summary.progress["failure-count"], "3");
        assert!(!serde_json::to_string(&summary).unwrap().contains("TOKEN"));
        let behind = SecretSummary::from(secret(MACHINE_PLAN, &[("plan", "b"), ("appliedPlan", "a")]));
        assert_eq!(behind.is_applied, Some(false));
    }

    #[test]
    fn of_any_other_secret_no_value_is_kept() {
        let summary = SecretSummary::from(secret("Opaque", &[("failure-count", "hunter2"), ("token", "hunter2")]));
        assert!(!serde_json::to_string(&summary).unwrap().contains("hunter2"));
        assert_eq!(summary.is_applied, None);
    }
}
