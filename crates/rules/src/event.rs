//! An event on a plan, as data.

use serde::{Deserialize, Serialize};

/// An event on the plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanEvent {
    /// Normal or Warning.
    pub severity: Severity,
    /// In one word.
    pub reason: String,
    /// In a sentence.
    pub message: String,
    /// How often the plan had failed before: the same message in another attempt is another event.
    #[serde(default)]
    pub attempt: usize,
}

impl PlanEvent {
    /// Something that went as it should.
    #[must_use]
    pub fn normal(reason: &str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Normal,
            reason: reason.to_owned(),
            message: message.into(),
            attempt: 0,
        }
    }

    /// Something that a person should look at.
    #[must_use]
    pub fn warning(reason: &str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            reason: reason.to_owned(),
            message: message.into(),
            attempt: 0,
        }
    }

    /// The same in a try that follows so many failures.
    #[must_use]
    pub fn in_attempt(self, attempt: usize) -> Self {
        Self { attempt, ..self }
    }
}

/// How serious an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// As it should be.
    Normal,
    /// A person should look.
    Warning,
}
