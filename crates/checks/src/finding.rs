//! What a check finds: an id, what it is about, why, and what to do. The same for `preflight`, `doctor` and `postflight`.

use std::{collections::BTreeSet, fmt};

use jiff::Timestamp;
use kube::Resource;
use serde::{Deserialize, Serialize};
use snapshot::{ListedOnce, NoAnswer};

/// Namespaces that are named one by one.
const NAMESPACES: usize = 6;

/// How bad it is. The worst is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// An upgrade cannot start or cannot continue.
    Error,
    /// It can, but an administrator should look first.
    Warning,
    /// Worth knowing.
    Info,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        })
    }
}

/// An object that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// By its parts.
    #[must_use]
    pub fn new(kind: &str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: namespace.filter(|namespace| !namespace.is_empty()).map(str::to_owned),
            name: name.to_owned(),
        }
    }

    /// Of an object.
    #[must_use]
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(
            &K::kind(&()),
            meta.namespace.as_deref(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }
}

/// `Kind namespace/name`.
impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Which check: `D01`, `P07`, or the id of a known issue.
    pub id: String,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about, the most important one first.
    pub objects: Vec<ObjectRef>,
    /// Since when, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What is wrong, and the cause in the object's own words.
    pub message: String,
    /// What helps, in a sentence.
    pub remedy: String,
    /// The same as commands that can be pasted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Where to read on.
    pub link: String,
    /// How it can be overridden, where it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overridden_by: Option<String>,
}

/// A check could not look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotChecked {
    /// Which check.
    pub id: String,
    /// What it looks for.
    pub title: String,
    /// Why it could not.
    pub why: String,
}

/// Why a check could not look: the kind that it needs, and why that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {why}")]
pub struct Missing {
    /// The plural of the kind.
    pub kind: String,
    /// Why it is not known.
    pub why: NoAnswer,
}

/// The objects of a list, or that it is missing.
///
/// # Errors
/// The list is not known.
pub fn needed<'a, K>(list: &'a ListedOnce<K>, kind: &str) -> Result<&'a [K], Missing> {
    match list {
        Ok(objects) => Ok(objects),
        Err(why) => Err(Missing {
            kind: kind.to_owned(),
            why: why.clone(),
        }),
    }
}

/// What was found; or, when nothing was and objects of some namespaces are not known, that these are missing.
///
/// # Errors
/// Nothing was found, and something may be in these namespaces.
pub fn all_known<F>(found: Vec<F>, unknown: &BTreeSet<String>, kind: &str) -> Result<Vec<F>, Missing> {
    if unknown.is_empty() || !found.is_empty() {
        return Ok(found);
    }
    let names: Vec<&str> = unknown.iter().take(NAMESPACES).map(String::as_str).collect();
    Err(Missing {
        kind: kind.to_owned(),
        why: format!("not known in namespaces {}", names.join(", ")).into(),
    })
}

/// What all checks of a table found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What they found, the worst first.
    pub findings: Vec<Finding>,
    /// Those that could not look.
    pub not_checked: Vec<NotChecked>,
    /// How many looked.
    pub checked: usize,
}

impl Report {
    /// How many findings are of this severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.severity == severity)
            .count()
    }

    /// Sorts the worst first, then by id and object.
    pub fn sort(&mut self) {
        self.findings
            .sort_by(|a, b| (a.severity, &a.id, &a.objects).cmp(&(b.severity, &b.id, &b.objects)));
        self.not_checked.sort_by(|a, b| a.id.cmp(&b.id));
    }
}
