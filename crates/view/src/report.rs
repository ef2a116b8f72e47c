//! A report of checks as text, JSON or YAML. `doctor`, `preflight` and `postflight` show theirs by the same functions.

use std::fmt::Write as _;

use api::quoted::{LONGEST_MESSAGE, LONGEST_NAME, plain, printable};
use checks::finding::{Finding, NotChecked, Report, Severity};
use jiff::Timestamp;

use crate::style::{Style, ago};

/// So many objects of a finding are named in text; the rest is counted.
const OBJECTS_SHOWN: usize = 5;
/// The most characters of a remedy or a command.
const LONGEST_TEXT: usize = 2 * LONGEST_MESSAGE;
/// Commands may be as long as the names in them need; they are never cut in the middle where they could do harm.
const LONGEST_COMMAND: usize = 4 * LONGEST_MESSAGE;

/// Why a report cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// As JSON.
    #[error("failed to write JSON")]
    Json(#[from] serde_json::Error),
    /// As YAML.
    #[error("failed to write YAML")]
    Yaml(#[source] Box<serde_saphyr::SerializeError>),
}

/// A report for people: the worst first, then what could not be checked, then counts.
#[must_use]
pub fn text(report: &Report, now: Timestamp, style: Style) -> String {
    let mut out = String::new();
    for severity in [Severity::Error, Severity::Warning, Severity::Info] {
        for finding in report.findings.iter().filter(|finding| finding.severity == severity) {
            one(&mut out, finding, now, style);
        }
    }
    for not_checked in &report.not_checked {
        out.push_str(&style.dim(&line(not_checked)));
        out.push('\n');
    }
    if !report.not_checked.is_empty() {
        out.push('\n');
    }
    out.push_str(&counts(report));
    out.push('\n');
    out
}

/// How many findings there are of each severity, in a line.
#[must_use]
pub fn counts(report: &Report) -> String {
    let count = |severity, one: &str, many: &str| match report.count(severity) {
        1 => format!("1 {one}"),
        number => format!("{number} {many}"),
    };
    let mut line = format!(
        "{}, {}, {} ({} checks",
        count(Severity::Error, "error", "errors"),
        count(Severity::Warning, "warning", "warnings"),
        count(Severity::Info, "info", "infos"),
        report.checked,
    );
    if !report.not_checked.is_empty() {
        let _ = write!(line, ", {} not checked", report.not_checked.len());
    }
    line.push(')');
    line
}

pub(crate) fn one(out: &mut String, finding: &Finding, now: Timestamp, style: Style) {
    let id = plain(&finding.id, LONGEST_NAME);
    let _ = write!(out, "{} {}", style.severity(finding.severity), style.bold(&id));
    let named = finding.objects.iter().take(OBJECTS_SHOWN);
    let named: Vec<String> = named.map(|object| plain(&object.to_string(), LONGEST_NAME)).collect();
    if !named.is_empty() {
        let _ = write!(out, "  {}", named.join(", "));
    }
    if finding.objects.len() > OBJECTS_SHOWN {
        let _ = write!(out, " and {} more", finding.objects.len() - OBJECTS_SHOWN);
    }
    if let Some(since) = finding.since {
        let _ = write!(out, "  since {since} ({})", ago(since, now));
    }
    let _ = writeln!(out, "\n  {}", printable(&finding.message, LONGEST_TEXT));
    let _ = writeln!(out, "  Remedy: {}", printable(&finding.remedy, LONGEST_TEXT));
    for command in &finding.commands {
        let _ = writeln!(out, "    {}", printable(command, LONGEST_COMMAND));
    }
    if let Some(by) = &finding.overridden_by {
        let _ = writeln!(out, "  Override: {}", printable(by, LONGEST_TEXT));
    }
    let _ = writeln!(out, "  {}\n", style.dim(&plain(&finding.link, LONGEST_NAME)));
}

fn line(not_checked: &NotChecked) -> String {
    format!(
        "not checked: {} {}: {}",
        plain(&not_checked.id, LONGEST_NAME),
        plain(&not_checked.title, LONGEST_NAME),
        plain(&not_checked.why, LONGEST_MESSAGE)
    )
}

/// A report for scripts.
///
/// # Errors
/// It cannot be written as JSON.
pub fn json(report: &Report) -> Result<String, ViewError> {
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    Ok(text)
}

/// The same as YAML.
///
/// # Errors
/// It cannot be written as YAML.
pub fn yaml(report: &Report) -> Result<String, ViewError> {
    serde_saphyr::to_string(report).map_err(|error| ViewError::Yaml(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use checks::finding::ObjectRef;

    use super::*;

    fn finding(id: &str, severity: Severity) -> Finding {
        Finding {
            id: id.to_owned(),
            severity,
            objects: vec![ObjectRef::new("Volume", Some("longhorn-system"), "pvc-1")],
            since: "2026-03-13T11:00:00Z".parse().ok(),
            message: "Volume is degraded: \"no disk\u{1b}[2J\"".to_owned(),
            remedy: "Free disk space.".to_owned(),
            commands: vec!["kubectl get nodes".to_owned()],
            link: "docs/doctor.md#d05".to_owned(),
            overridden_by: None,
        }
    }

    fn report() -> Report {
        Report {
            findings: vec![finding("D04", Severity::Info), finding("D05", Severity::Error)],
            not_checked: vec![NotChecked {
                id: "D16".to_owned(),
                title: "A Helm release is pending".to_owned(),
                why: "secrets: forbidden".to_owned(),
            }],
            checked: 47,
        }
    }

    fn now() -> Timestamp {
        "2026-03-13T12:00:00Z".parse().unwrap_or_default()
    }

    #[test]
    fn the_worst_comes_first_with_remedy_commands_and_link_and_counts_come_last() {
        let shown = text(&report(), now(), Style::default());
        let expected = "\
error D05  Volume longhorn-system/pvc-1  since 2026-03-13T11:00:00Z (1h)
  Volume is degraded: \"no disk [2J\"
  Remedy: Free disk space.
    kubectl get nodes
  docs/doctor.md#d05

info D04  Volume longhorn-system/pvc-1  since 2026-03-13T11:00:00Z (1h)
  Volume is degraded: \"no disk [2J\"
  Remedy: Free disk space.
    kubectl get nodes
  docs/doctor.md#d05

not checked: D16 A Helm release is pending: secrets: forbidden

1 error, 0 warnings, 1 info (47 checks, 1 not checked)
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn nothing_that_others_wrote_steers_a_terminal() {
        assert!(!text(&report(), now(), Style::default()).contains('\u{1b}'));
    }

    #[test]
    fn only_some_of_many_objects_are_named() {
        let mut many = finding("D05", Severity::Error);
        many.objects = vec![ObjectRef::new("Node", None, "n"); 8];
        let report = Report {
            findings: vec![many],
            ..Report::default()
        };
        let shown = text(&report, now(), Style::default());
        assert!(
            shown.contains("Node n, Node n, Node n, Node n, Node n and 3 more"),
            "{shown}"
        );
    }

    #[test]
    fn json_and_yaml_read_back_as_the_same_report() {
        let from_json: Option<Report> = json(&report()).ok().and_then(|text| serde_json::from_str(&text).ok());
        assert_eq!(from_json, Some(report()));
        let from_yaml: Option<Report> = yaml(&report()).ok().and_then(|text| serde_saphyr::from_str(&text).ok());
        assert_eq!(from_yaml, Some(report()));
    }
}
