//! Known issues of upgrade paths: a data file, checked strictly, of which those are shown that apply to the path and the
//! cluster. Pure; the caller reads files.

mod conditions;
mod file;

use std::collections::BTreeMap;

use semver::{BuildMetadata, Prerelease, Version, VersionReq};

use crate::{
    finding::{Finding, Missing, NotChecked, ObjectRef, Report, Severity},
    preflight::Question,
};

pub use conditions::CONDITIONS;
pub use file::{KnownIssuesError, parse};

/// The issues that are part of the toolkit.
pub const BUILT_IN: &str = include_str!("../../known-issues.yaml");

/// A condition of an issue: the objects that it applies to, or nothing if it does not apply.
pub type Condition = fn(&Question<'_>) -> Result<Option<Vec<ObjectRef>>, Missing>;

/// A known issue.
#[derive(Clone, Debug)]
pub struct KnownIssue {
    /// `KI-…`.
    pub id: String,
    /// What happens.
    pub title: String,
    /// The versions that it is upgraded from.
    pub from: VersionReq,
    /// The versions that it is upgraded to.
    pub to: VersionReq,
    /// What must hold of the cluster besides.
    pub condition: Option<(&'static str, Condition)>,
    /// How bad it is.
    pub severity: Severity,
    /// What to do.
    pub remedy: String,
    /// Where to read on.
    pub reference: String,
}

/// The built-in issues, with those of another file added; one with the same id replaces.
///
/// # Errors
/// The other file is malformed.
pub fn with(other: Option<&str>) -> Result<Vec<KnownIssue>, KnownIssuesError> {
    let mut all: BTreeMap<String, KnownIssue> = BTreeMap::new();
    for text in [Some(BUILT_IN), other].into_iter().flatten() {
        all.extend(parse(text)?.into_iter().map(|issue| (issue.id.clone(), issue)));
    }
    Ok(all.into_values().collect())
}

/// A version as ranges are compared with: a candidate has the issues of its release, a build of a branch those of its line.
fn comparable(version: &str) -> Option<Version> {
    let text = version.strip_prefix('v').unwrap_or(version);
    if let Ok(mut version) = Version::parse(text) {
        version.pre = Prerelease::EMPTY;
        version.build = BuildMetadata::EMPTY;
        return Some(version);
    }
    let (major, minor) = rules::version::line(version)?;
    Some(Version::new(major, minor, 0))
}

/// Adds the issues that apply to a report.
pub(crate) fn add(report: &mut Report, question: &Question<'_>, known: &[KnownIssue]) {
    if known.is_empty() {
        return;
    }
    let not_checked = |title: &str, why: String| NotChecked {
        id: "KI".to_owned(),
        title: title.to_owned(),
        why,
    };
    let from = question.running().map(comparable);
    let to = question.target().map(comparable);
    if let Err(missing) = &from {
        report
            .not_checked
            .push(not_checked("known issues", missing.to_string()));
        return;
    }
    if let Err(missing) = &to {
        report
            .not_checked
            .push(not_checked("known issues of a path", missing.to_string()));
    }
    let (from, to) = (from.ok().flatten(), to.ok().flatten());
    for issue in known.iter().filter(|issue| issue.is_on(from.as_ref(), to.as_ref())) {
        match issue
            .condition
            .map_or(Ok(Some(Vec::new())), |(_, condition)| condition(question))
        {
            Ok(Some(objects)) => report.findings.push(issue.finding(objects)),
            Ok(None) => {}
            Err(missing) => report.not_checked.push(NotChecked {
                id: issue.id.clone(),
                title: issue.title.clone(),
                why: missing.to_string(),
            }),
        }
    }
    report.checked += 1;
}

impl KnownIssue {
    /// It concerns the path. A version that is not known is on paths from or to any version only.
    fn is_on(&self, from: Option<&Version>, to: Option<&Version>) -> bool {
        let is_in = |range: &VersionReq, version: Option<&Version>| {
            version.map_or(*range == VersionReq::STAR, |version| range.matches(version))
        };
        is_in(&self.from, from) && is_in(&self.to, to)
    }

    fn finding(&self, objects: Vec<ObjectRef>) -> Finding {
        Finding {
            id: self.id.clone(),
            severity: self.severity,
            objects,
            since: None,
            message: self.title.clone(),
            remedy: self.remedy.clone(),
            commands: Vec::new(),
            link: self.reference.clone(),
            overridden_by: None,
        }
    }
}
