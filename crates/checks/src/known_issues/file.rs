//! The file of known issues: a YAML list. Everything that is not as it must be is an error that names the entry and the field.

use std::collections::BTreeSet;

use semver::VersionReq;
use serde::Deserialize;
use serde_json::Value;

use super::{CONDITIONS, Condition, KnownIssue};
use crate::finding::Severity;

/// The most entries of a file.
const MOST: usize = 2_000;

/// Why a file of known issues cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnownIssuesError {
    /// It is no YAML.
    #[error("the known issues are not a YAML list: {0}")]
    NotAList(String),
    /// It has too many entries.
    #[error("there are {0} known issues, and at most {MOST} are allowed")]
    TooMany(usize),
    /// An entry has a field too much, lacks one, or has one of another type.
    #[error("known issue {id}: {why}")]
    Entry {
        /// Which one.
        id: String,
        /// What is wrong, with the field.
        why: String,
    },
    /// A field has a value that it cannot have.
    #[error("known issue {id}: field {field}: {why}")]
    Field {
        /// Which one.
        id: String,
        /// Its field.
        field: &'static str,
        /// What is wrong.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    title: String,
    from: String,
    to: String,
    #[serde(default)]
    condition: Option<String>,
    severity: Severity,
    remedy: String,
    reference: String,
}

/// Reads a file.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn parse(text: &str) -> Result<Vec<KnownIssue>, KnownIssuesError> {
    let entries: Vec<Value> =
        serde_saphyr::from_str(text).map_err(|error| KnownIssuesError::NotAList(first_line(&error.to_string())))?;
    if entries.len() > MOST {
        return Err(KnownIssuesError::TooMany(entries.len()));
    }
    let mut ids = BTreeSet::new();
    let mut issues = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let issue = read(index, entry)?;
        if !ids.insert(issue.id.clone()) {
            return Err(wrong(&issue.id, "id", "another entry has the same one"));
        }
        issues.push(issue);
    }
    Ok(issues)
}

fn read(index: usize, entry: Value) -> Result<KnownIssue, KnownIssuesError> {
    let id = entry.get("id").and_then(Value::as_str).map_or_else(
        || format!("number {}", index + 1),
        |id| api::quoted::plain(id, api::quoted::LONGEST_NAME),
    );
    let entry: Entry = serde_json::from_value(entry).map_err(|error| KnownIssuesError::Entry {
        id: id.clone(),
        why: first_line(&error.to_string()),
    })?;
    let name = entry.id.strip_prefix("KI-").unwrap_or_default();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
        return Err(wrong(
            &id,
            "id",
            "must be KI- with letters, digits and dashes behind it",
        ));
    }
    for (field, text) in [("title", &entry.title), ("remedy", &entry.remedy)] {
        if text.trim().is_empty() {
            return Err(wrong(&id, field, "must not be empty"));
        }
    }
    if !entry.reference.starts_with("https://") {
        return Err(wrong(&id, "reference", "must be an address that begins with https://"));
    }
    Ok(KnownIssue {
        from: range(&id, "from", &entry.from)?,
        to: range(&id, "to", &entry.to)?,
        condition: entry.condition.map(|name| condition(&id, &name)).transpose()?,
        severity: entry.severity,
        id: entry.id,
        title: entry.title,
        remedy: entry.remedy,
        reference: entry.reference,
    })
}

fn range(id: &str, field: &'static str, text: &str) -> Result<VersionReq, KnownIssuesError> {
    VersionReq::parse(text).map_err(|error| {
        wrong(
            id,
            field,
            &format!("{} is no range of versions: {error}", api::quoted::quoted(text)),
        )
    })
}

fn condition(id: &str, name: &str) -> Result<(&'static str, Condition), KnownIssuesError> {
    let known = CONDITIONS.iter().find(|(known, _)| *known == name).copied();
    known.ok_or_else(|| {
        let all: Vec<&str> = CONDITIONS.iter().map(|(known, _)| *known).collect();
        let why = format!(
            "{} is no condition; there are {}",
            api::quoted::quoted(name),
            all.join(", ")
        );
        wrong(id, "condition", &why)
    })
}

fn wrong(id: &str, field: &'static str, why: &str) -> KnownIssuesError {
    KnownIssuesError::Field {
        id: id.to_owned(),
        field,
        why: why.to_owned(),
    }
}

fn first_line(text: &str) -> String {
    api::quoted::plain(text.lines().next().unwrap_or_default(), api::quoted::LONGEST_MESSAGE)
}
