//! What is read from an UpgradePlan in more than one place.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{Phase, UpgradePlan, annotations};

/// How many days the certificates of the API servers must still be valid, unless a plan says otherwise.
pub const CERTIFICATE_DAYS: i64 = 7;

impl UpgradePlan {
    /// The phase, or `None` when it is absent or no phase of ours.
    #[must_use]
    pub fn phase(&self) -> Option<Phase> {
        self.status.as_ref()?.current_phase.as_deref()?.parse().ok()
    }

    /// One condition by type.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status
            .as_ref()?
            .conditions
            .iter()
            .find(|condition| condition.type_ == type_)
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// A note of the manager, by a key of [`annotations::NOTES`]. Every user who may change a plan may annotate it, so an annotation
    /// of that key counts only on a plan that an older manager began.
    #[must_use]
    pub fn note(&self, key: &str) -> Option<&str> {
        match self.status.as_ref()?.notes.as_ref() {
            Some(notes) => notes.get(key).map(String::as_str),
            None => self.phase().and_then(|_| self.annotation(key)),
        }
    }

    /// Whether its user leaves out the check that new images fit the disks; nothing when that cannot be understood. The
    /// spellings are those of the existing toolkit.
    #[must_use]
    pub fn skips_disk_space(&self) -> Option<bool> {
        match self.annotation(annotations::SKIP_GC_THRESHOLD_CHECK) {
            None | Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Some(false),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Some(true),
            Some(_) => None,
        }
    }

    /// Whether its user leaves out the checks of the webhook, but for those that guard data.
    #[must_use]
    pub fn skips_webhook(&self) -> bool {
        self.annotation(annotations::SKIP_WEBHOOK) == Some("true")
    }

    /// Whether its user leaves out the checks that guard data too. One annotation is not enough for that.
    #[must_use]
    pub fn skips_data_checks(&self) -> bool {
        self.skips_webhook() && self.annotation(annotations::SKIP_DATA_CHECKS) == Some("true")
    }

    /// How many days the certificates of the API servers must still be valid; nothing when that cannot be understood.
    #[must_use]
    pub fn certificate_days(&self) -> Option<i64> {
        match self.annotation(annotations::MIN_CERTS_EXPIRATION_IN_DAY) {
            None => Some(CERTIFICATE_DAYS),
            Some(days) => days.parse().ok(),
        }
    }

    /// Whether its user lets any version be upgraded to any other: `spec.force`, or the annotation of the existing
    /// toolkit. The only place that decides this, since a plan that the manager accepts must not fail on the nodes.
    #[must_use]
    pub fn skips_version_check(&self) -> bool {
        self.spec.force == Some(true) || self.annotation(annotations::SKIP_VERSION_CHECK) == Some("true")
    }
}
