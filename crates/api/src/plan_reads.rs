//! What is read from an UpgradePlan in more than one place.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{Phase, UpgradePlan, annotations};

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

    /// A note of the manager, by a key of [`annotations::NOTES`]. Whoever may change a plan may annotate it, so an annotation
    /// of that key counts only on a plan that an older manager began.
    #[must_use]
    pub fn note(&self, key: &str) -> Option<&str> {
        match self.status.as_ref()?.notes.as_ref() {
            Some(notes) => notes.get(key).map(String::as_str),
            None => self.phase().and_then(|_| self.annotation(key)),
        }
    }

    /// Whether its user lets any version be upgraded to any other: `spec.force`, or the annotation of the existing
    /// toolkit. The only place that says so, since a plan that the manager lets pass must not fail on the nodes.
    #[must_use]
    pub fn skips_version_check(&self) -> bool {
        self.spec.force == Some(true) || self.annotation(annotations::SKIP_VERSION_CHECK) == Some("true")
    }
}
