//! A report of checks as JUnit XML, as CI systems read it: each check is a test case.

use std::fmt::Write as _;

use api::quoted::{LONGEST_MESSAGE, printable};
use checks::finding::{Finding, Report, Severity};

/// The most characters of a text of a finding.
const LONGEST: usize = 2 * LONGEST_MESSAGE;

/// All checks of a table as test cases. Errors are failures, a check that could not look is skipped, and warnings are output
/// of a case that passes.
#[must_use]
pub fn junit(suite: &str, checks: &[(&str, &str)], report: &Report) -> String {
    let found = |id: &str| -> Vec<&Finding> { report.findings.iter().filter(|finding| finding.id == id).collect() };
    let known = |id: &str| checks.iter().any(|(check, _)| *check == id);
    let mut cases = String::new();
    let (mut tests, mut failures, mut skipped) = (0, 0, 0);
    // Known issues have ids that are in no table.
    let others = report.findings.iter().filter(|finding| !known(&finding.id));
    let mut ids: Vec<(&str, &str)> = checks.to_vec();
    for other in others {
        if !ids.iter().any(|(id, _)| *id == other.id) {
            ids.push((&other.id, ""));
        }
    }
    for (id, title) in ids {
        tests += 1;
        let name = if title.is_empty() {
            id.to_owned()
        } else {
            format!("{id} {title}")
        };
        let _ = write!(
            cases,
            "  <testcase classname=\"{}\" name=\"{}\">",
            escaped(suite),
            escaped(&name)
        );
        let findings = found(id);
        let (errors, others): (Vec<&Finding>, Vec<&Finding>) = findings
            .into_iter()
            .partition(|finding| finding.severity == Severity::Error);
        if let Some(first) = errors.first() {
            failures += 1;
            let _ = write!(
                cases,
                "\n    <failure message=\"{}\">{}</failure>",
                escaped(&printable(&first.message, LONGEST)),
                escaped(&details(&errors))
            );
        }
        if let Some(not_checked) = report.not_checked.iter().find(|not_checked| not_checked.id == id) {
            skipped += 1;
            let _ = write!(
                cases,
                "\n    <skipped message=\"{}\"/>",
                escaped(&printable(&not_checked.why, LONGEST))
            );
        }
        if !others.is_empty() {
            let _ = write!(cases, "\n    <system-out>{}</system-out>", escaped(&details(&others)));
        }
        cases.push_str("\n  </testcase>\n");
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{}\" tests=\"{tests}\" failures=\"{failures}\" \
         errors=\"0\" skipped=\"{skipped}\">\n{cases}</testsuite>\n",
        escaped(suite)
    )
}

fn details(findings: &[&Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let objects: Vec<String> = finding.objects.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "{}: {}: {}\n{}",
            finding.severity,
            printable(&objects.join(", "), LONGEST_MESSAGE),
            printable(&finding.message, LONGEST),
            printable(&finding.remedy, LONGEST)
        );
        for command in &finding.commands {
            let _ = writeln!(text, "  {}", printable(command, LONGEST));
        }
        let _ = writeln!(text, "{}", finding.link);
    }
    text
}

/// Text as XML 1.0 allows it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(character),
            '\u{fffe}' | '\u{ffff}' => {}
            character if character.is_control() => out.push(' '),
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use checks::finding::{NotChecked, ObjectRef};

    use super::*;

    #[test]
    fn errors_fail_what_could_not_look_is_skipped_and_warnings_pass() {
        let finding = |id: &str, severity| Finding {
            id: id.to_owned(),
            severity,
            objects: vec![ObjectRef::new("Node", None, "n<1>")],
            since: None,
            message: "a & b".to_owned(),
            remedy: "Do \"it\".".to_owned(),
            commands: Vec::new(),
            link: "docs".to_owned(),
            overridden_by: None,
        };
        let report = Report {
            findings: vec![
                finding("P01", Severity::Error),
                finding("P02", Severity::Warning),
                finding("K-7", Severity::Warning),
            ],
            not_checked: vec![NotChecked {
                id: "P03".to_owned(),
                title: String::new(),
                why: "forbidden".to_owned(),
            }],
            checked: 2,
        };
        let xml = junit(
            "preflight",
            &[("P01", "one"), ("P02", "two"), ("P03", "three")],
            &report,
        );
        assert!(
            xml.contains("tests=\"4\" failures=\"1\" errors=\"0\" skipped=\"1\""),
            "{xml}"
        );
        assert!(xml.contains("<failure message=\"a &amp; b\">"), "{xml}");
        assert!(
            xml.contains("n&lt;1&gt;") && xml.contains("Do &quot;it&quot;."),
            "{xml}"
        );
        assert!(xml.contains("<skipped message=\"forbidden\"/>"), "{xml}");
        assert!(xml.contains("name=\"K-7\""), "{xml}");
    }
}
