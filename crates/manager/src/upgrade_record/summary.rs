//! A report of checks, in short: what the status of a plan has of it. Pure.

use std::collections::BTreeMap;

use api::CheckSummary;
use checks::finding::{Finding, Report, Severity};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::observe::insights::insight;

/// Errors and warnings, one of each check, the worst first.
pub(super) fn of(report: &Report, at: Timestamp) -> CheckSummary {
    let mut counts = BTreeMap::<&str, usize>::new();
    let mut first: Vec<&Finding> = Vec::new();
    let bad = |finding: &&Finding| finding.severity != Severity::Info;
    for finding in report.findings.iter().filter(bad) {
        let count = counts.entry(&finding.id).or_default();
        *count += 1;
        if *count == 1 {
            first.push(finding);
        }
    }
    let count = |severity: Severity| {
        let checks = first.iter().filter(|finding| finding.severity == severity).count();
        i32::try_from(checks).unwrap_or(i32::MAX)
    };
    let shown = first.iter().take(CheckSummary::MOST_FINDINGS).map(|finding| {
        let mut shown = insight(finding);
        if let Some(others) = counts
            .get(finding.id.as_str())
            .map(|count| count - 1)
            .filter(|more| *more > 0)
        {
            shown.message.push_str(&format!(" (and {others} more)"));
        }
        shown
    });
    CheckSummary {
        at: Time(at),
        errors: count(Severity::Error),
        warnings: count(Severity::Warning),
        not_checked: i32::try_from(report.not_checked.len()).ok().filter(|count| *count > 0),
        findings: shown.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(id: &str, severity: Severity, message: &str) -> Finding {
        Finding {
            id: id.to_owned(),
            severity,
            objects: Vec::new(),
            since: None,
            message: message.to_owned(),
            remedy: "Mend it.".to_owned(),
            commands: Vec::new(),
            link: String::new(),
            overridden_by: None,
        }
    }

    #[test]
    fn each_check_is_shown_once_the_others_are_counted_and_what_is_only_worth_knowing_is_not() {
        let mut report = Report::default();
        for index in 0..12 {
            report
                .findings
                .push(finding(&format!("P{index:02}"), Severity::Warning, "a"));
        }
        report.findings.push(finding("P00", Severity::Error, "worst"));
        report.findings.push(finding("P99", Severity::Info, "b"));
        report.sort();
        let found = of(&report, Timestamp::UNIX_EPOCH);
        assert_eq!((found.errors, found.warnings, found.findings.len()), (1, 11, 10));
        assert_eq!(found.findings[0].to_string(), "P00: worst (and 1 more). Mend it.");
        assert_eq!(found.not_shown(), 2);
    }
}
