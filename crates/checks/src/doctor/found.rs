//! How a rule writes down what it found. The id, the link and a remedy that the rule leaves out come from its row.

use jiff::Timestamp;
use kube::Resource;

use crate::finding::{Finding, ObjectRef, Severity};

/// So many objects of the same trouble are findings of their own; a report of a thousand helps no reader.
pub(super) const MOST: usize = 50;

/// A finding of this severity about an object.
pub(super) fn found(severity: Severity, object: ObjectRef, message: impl Into<String>) -> Finding {
    Finding {
        id: String::new(),
        severity,
        objects: vec![object],
        since: None,
        message: message.into(),
        remedy: String::new(),
        commands: Vec::new(),
        link: String::new(),
        overridden_by: None,
    }
}

pub(super) fn error(object: ObjectRef, message: impl Into<String>) -> Finding {
    found(Severity::Error, object, message)
}

pub(super) fn warning(object: ObjectRef, message: impl Into<String>) -> Finding {
    found(Severity::Warning, object, message)
}

pub(super) fn info(object: ObjectRef, message: impl Into<String>) -> Finding {
    found(Severity::Info, object, message)
}

/// Adds to a finding.
pub(super) trait More: Sized {
    fn also(self, object: ObjectRef) -> Self;
    fn since(self, since: Option<Timestamp>) -> Self;
    fn remedy(self, remedy: impl Into<String>) -> Self;
    /// A command that can be pasted. Each `{}` stands for a name, which is quoted where a shell needs that.
    fn command(self, template: &str, names: &[&str]) -> Self;
}

impl More for Finding {
    fn also(mut self, object: ObjectRef) -> Self {
        self.objects.push(object);
        self
    }

    fn since(mut self, since: Option<Timestamp>) -> Self {
        self.since = since;
        self
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    fn command(mut self, template: &str, names: &[&str]) -> Self {
        let mut names = names.iter();
        let mut parts = template.split("{}");
        let mut command = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            command.push_str(&shell(names.next().copied().unwrap_or_default()));
            command.push_str(part);
        }
        self.commands.push(command);
        self
    }
}

/// A node, by name.
pub(super) fn node_ref(name: &str) -> ObjectRef {
    ObjectRef::new("Node", None, name)
}

/// The name of an object, empty when it has none.
pub(super) fn name<K: Resource>(object: &K) -> &str {
    object.meta().name.as_deref().unwrap_or_default()
}

/// The namespace of an object, empty when it has none.
pub(super) fn namespace<K: Resource>(object: &K) -> &str {
    object.meta().namespace.as_deref().unwrap_or_default()
}

/// A label of an object.
pub(super) fn label<'a, K: Resource>(object: &'a K, key: &str) -> Option<&'a str> {
    object.meta().labels.as_ref()?.get(key).map(String::as_str)
}

/// An annotation of an object.
pub(super) fn annotation<'a, K: Resource>(object: &'a K, key: &str) -> Option<&'a str> {
    object.meta().annotations.as_ref()?.get(key).map(String::as_str)
}

/// When an object was created.
pub(super) fn created<K: Resource>(object: &K) -> Option<Timestamp> {
    object.meta().creation_timestamp.as_ref().map(|time| time.0)
}

/// A name as a shell takes it literally. Names of a snapshot may be anything: a command that is pasted must not run them.
fn shell(name: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-._:/=,".contains(character);
    if !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain) {
        return name.to_owned();
    }
    let visible: String = name.chars().filter(|character| !character.is_control()).collect();
    format!("'{}'", visible.trim_start_matches('-').replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_commands_are_never_run() {
        let finding = error(node_ref("n"), "").command("kubectl -n {} delete pod {}", &["a-b.c", "x; rm -rf '/'\n"]);
        assert_eq!(finding.commands, [r"kubectl -n a-b.c delete pod 'x; rm -rf '\''/'\'''"]);
        assert_eq!(shell("--all"), "'all'");
    }
}
