//! What one check found, before the table adds what is the same for all that it finds.

use jiff::Timestamp;
use kube::Resource;

use crate::finding::{ObjectRef, Severity};

/// So many names are in a message; the objects of the finding are complete.
const NAMED: usize = 8;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What it is about, the most important one first.
    pub objects: Vec<ObjectRef>,
    /// How bad it is, where that differs from the table.
    pub severity: Option<Severity>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// What is wrong.
    pub message: String,
    /// What helps, as commands.
    pub commands: Vec<String>,
}

impl Found {
    /// Something is wrong.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }

    /// One object is wrong.
    #[must_use]
    pub fn of<K: Resource<DynamicType = ()>>(object: &K, message: impl Into<String>) -> Self {
        Self::new(message).about([ObjectRef::of(object)])
    }

    /// What it is about.
    #[must_use]
    pub fn about(mut self, objects: impl IntoIterator<Item = ObjectRef>) -> Self {
        self.objects.extend(objects);
        self
    }

    /// A command that helps.
    #[must_use]
    pub fn command(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }

    /// How bad it is.
    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = Some(severity);
        self
    }
}

/// All objects of a kind in one finding: `text` with their names behind it. Nothing when there are none.
pub(super) fn together<K: Resource<DynamicType = ()>>(text: &str, objects: &[&K]) -> Vec<Found> {
    if objects.is_empty() {
        return Vec::new();
    }
    let names = objects.iter().map(|object| super::full_name(*object)).collect();
    let refs = objects.iter().map(|object| ObjectRef::of(*object));
    vec![Found::new(format!("{text}: {}", listed(names))).about(refs)]
}

/// Names, the first ones of many.
pub(super) fn listed(names: Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMED);
    let mut text = names.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}
