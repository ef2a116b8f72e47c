//! The tables of docs/preflight.md, in both languages, are those of the code.

use std::{collections::BTreeSet, fs};

use checks::{
    finding::Severity,
    known_issues::{self, CONDITIONS},
    preflight::CHECKS,
};

fn page(name: &str) -> String {
    fs::read_to_string(format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn cells(line: &str) -> Vec<String> {
    line.trim()
        .trim_matches('|')
        .split(" | ")
        .map(|cell| cell.trim().to_owned())
        .collect()
}

fn severity(page: &str, severity: Severity) -> String {
    let text = severity.to_string();
    if page.starts_with("zh/") {
        return match severity {
            Severity::Error => "错误",
            Severity::Warning => "警告",
            Severity::Info => "信息",
        }
        .to_owned();
    }
    text
}

#[test]
fn every_check_has_its_row_with_group_and_severity_in_both_languages() {
    for name in ["preflight.md", "zh/preflight.md"] {
        let text = page(name);
        let rows: Vec<Vec<String>> = text
            .lines()
            .filter(|line| line.starts_with("| <a id=\"p"))
            .map(cells)
            .collect();
        assert_eq!(rows.len(), CHECKS.len(), "{name}");
        for (row, check) in rows.iter().zip(&CHECKS) {
            assert_eq!(
                row[0],
                format!("<a id=\"{}\"></a>{}", check.id.to_lowercase(), check.id),
                "{name}"
            );
            assert_eq!(row[1], check.group.to_string(), "{name} {}", check.id);
            assert_eq!(row[2], severity(name, check.severity), "{name} {}", check.id);
            assert_eq!(row.len(), 6, "{name} {}", check.id);
            assert_eq!(row[5] == "–", check.overridden_by.is_none(), "{name} {}", check.id);
            assert!(row[3].len() > 5 && row[4].len() > 5, "{name} {}", check.id);
        }
        if name == "preflight.md" {
            for (row, check) in rows.iter().zip(&CHECKS) {
                assert_eq!(
                    (row[3].as_str(), row[4].as_str()),
                    (check.title, check.remedy),
                    "{}",
                    check.id
                );
            }
        }
    }
}

#[test]
fn every_known_issue_and_every_condition_is_listed_in_both_languages() {
    for name in ["preflight.md", "zh/preflight.md"] {
        let text = page(name);
        let rows: BTreeSet<String> = text
            .lines()
            .filter(|line| line.starts_with("| KI-"))
            .map(|line| cells(line)[0].clone())
            .collect();
        let known: BTreeSet<String> = known_issues::with(None)
            .unwrap()
            .into_iter()
            .map(|issue| issue.id)
            .collect();
        assert_eq!(rows, known, "{name}");
        for (condition, _) in CONDITIONS {
            assert!(text.contains(&format!("| `{condition}` |")), "{name}: {condition}");
        }
    }
}
