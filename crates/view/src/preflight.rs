//! A report of preflight as text: by group, the group with the worst finding first.

use std::{collections::BTreeMap, fmt::Write as _};

use api::quoted::{LONGEST_MESSAGE, LONGEST_NAME, plain};
use checks::{
    finding::{Finding, Report, Severity},
    preflight,
};
use jiff::Timestamp;

use crate::{
    report::{counts, one},
    style::Style,
};

const KNOWN_ISSUES: &str = "known issues";

/// A report for people.
#[must_use]
pub fn text(report: &Report, now: Timestamp, style: Style) -> String {
    let mut groups: BTreeMap<String, Vec<&Finding>> = BTreeMap::new();
    for finding in &report.findings {
        let group = preflight::row(&finding.id).map_or_else(|| KNOWN_ISSUES.to_owned(), |row| row.group.to_string());
        groups.entry(group).or_default().push(finding);
    }
    let mut groups: Vec<(String, Vec<&Finding>)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, findings)| findings.iter().map(|finding| finding.severity).min());
    let mut out = String::new();
    for (group, findings) in groups {
        let heading = format!("== {group}: {} ==", sums(&findings));
        let _ = writeln!(out, "{}\n", style.bold(&heading));
        for finding in findings {
            one(&mut out, finding, now, style);
        }
    }
    // Many checks need the same list.
    let mut missing: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for not_checked in &report.not_checked {
        let name = format!("{} {}", not_checked.id, not_checked.title);
        missing
            .entry(&not_checked.why)
            .or_default()
            .push(plain(&name, LONGEST_NAME));
    }
    for (why, checks) in &missing {
        let line = format!("not checked ({}): {}", plain(why, LONGEST_MESSAGE), checks.join(", "));
        let _ = writeln!(out, "{}", style.dim(&line));
    }
    if !missing.is_empty() {
        out.push('\n');
    }
    out.push_str(&counts(report));
    out.push('\n');
    out
}

/// How many findings there are of each severity that occurs.
fn sums(findings: &[&Finding]) -> String {
    let words = [
        (Severity::Error, "error", "errors"),
        (Severity::Warning, "warning", "warnings"),
        (Severity::Info, "info", "infos"),
    ];
    let sums = words.into_iter().filter_map(|(severity, single, several)| {
        let count = findings.iter().filter(|finding| finding.severity == severity).count();
        match count {
            0 => None,
            1 => Some(format!("1 {single}")),
            count => Some(format!("{count} {several}")),
        }
    });
    sums.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use checks::finding::NotChecked;

    use super::*;

    fn finding(id: &str, severity: Severity) -> Finding {
        Finding {
            id: id.to_owned(),
            severity,
            objects: Vec::new(),
            since: None,
            message: format!("message of {id}"),
            remedy: "Fix it.".to_owned(),
            commands: Vec::new(),
            link: "docs/preflight.md".to_owned(),
            overridden_by: None,
        }
    }

    #[test]
    fn groups_come_with_counts_the_worst_first_and_what_misses_one_list_is_one_line() {
        let missed = |id: &str| NotChecked {
            id: id.to_owned(),
            title: "title".to_owned(),
            why: "pods: forbidden".to_owned(),
        };
        let report = Report {
            findings: vec![
                finding("P50", Severity::Error),
                finding("P51", Severity::Error),
                finding("KI-1", Severity::Info),
                finding("P41", Severity::Warning),
                finding("P52", Severity::Warning),
            ],
            not_checked: vec![missed("P85"), missed("P86")],
            checked: 80,
        };
        let shown = text(&report, Timestamp::default(), Style::default());
        let headings: Vec<&str> = shown.lines().filter(|line| line.starts_with("==")).collect();
        assert_eq!(
            headings,
            [
                "== storage: 2 errors, 1 warning ==",
                "== nodes: 1 warning ==",
                "== known issues: 1 info =="
            ]
        );
        assert!(
            shown.contains("not checked (pods: forbidden): P85 title, P86 title\n"),
            "{shown}"
        );
        assert!(
            shown.ends_with("2 errors, 2 warnings, 1 info (80 checks, 2 not checked)\n"),
            "{shown}"
        );
    }
}
