//! Every check is in the tables of its page, in both languages, with a remedy, and tests exist that find it and that do not. The
//! tables of docs/troubleshooting.md are made from the same data.

use std::{fmt::Write as _, fs, time::Duration};

use api::{ProgramWait, Wait};
use checks::{
    doctor::{Leads, SITUATIONS},
    known_issues::{self, CONDITIONS},
    postflight,
};
use rules::deadlines::{Deadlines, UNBOUNDED};

const LANGUAGES: [&str; 2] = ["", "zh/"];

fn read(path: &str) -> String {
    fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn page(name: &str) -> String {
    read(&format!("../../docs/{name}"))
}

/// The rows of a table whose first cell is an anchor that begins so, without that anchor.
fn rows(page: &str, anchor: &str) -> Vec<Vec<String>> {
    let lines = page
        .lines()
        .filter(|line| line.starts_with(&format!("| <a id=\"{anchor}")));
    let cells = |line: &str| {
        let cells = line.trim().trim_matches('|').split(" | ");
        cells.map(|cell| cell.trim().to_owned()).collect::<Vec<String>>()
    };
    lines.map(cells).collect()
}

fn first_cell(id: &str) -> String {
    format!("<a id=\"{}\"></a>{id}", id.to_lowercase())
}

#[test]
fn every_situation_of_doctor_has_its_row_in_both_languages_in_the_words_of_the_code() {
    for language in LANGUAGES {
        let name = format!("{language}doctor.md");
        let rows = rows(&page(&name), "d");
        assert_eq!(rows.len(), SITUATIONS.len(), "{name}");
        for (row, situation) in rows.iter().zip(SITUATIONS) {
            assert_eq!(row.len(), 4, "{name}: {row:?}");
            assert_eq!(row[0], first_cell(situation.id), "{name}");
            assert!(row[1..].iter().all(|cell| cell.chars().count() > 3), "{name}: {row:?}");
            if language.is_empty() {
                assert_eq!(
                    row[1..],
                    [situation.symptom, situation.cause, situation.remedy],
                    "{}",
                    situation.id
                );
            }
        }
    }
}

#[test]
fn every_check_of_postflight_has_its_row_in_both_languages_a_remedy_and_a_test() {
    let tests = read("src/postflight/tests.rs");
    for check in &postflight::CHECKS {
        assert!(check.title.len() > 5 && check.remedy.len() > 10, "{}", check.id);
        // Each case is a cluster in which this check finds something, and no other does.
        assert!(
            tests.contains(&format!("#[case(\"{}\", ", check.id)),
            "{} has no case",
            check.id
        );
    }
    for language in LANGUAGES {
        let name = format!("{language}postflight.md");
        let rows = rows(&page(&name), "f");
        let ids: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        let known: Vec<String> = postflight::CHECKS.iter().map(|check| first_cell(check.id)).collect();
        assert_eq!(ids, known, "{name}");
        assert!(
            rows.iter().all(|row| row.len() == 4 && row[3].chars().count() > 3),
            "{name}"
        );
    }
}

#[test]
fn every_condition_of_known_issues_has_a_cluster_in_which_it_holds_and_one_in_which_it_does_not() {
    let tests = read("tests/integration/preflight/known_issues.rs");
    for (condition, _) in CONDITIONS {
        assert!(tests.contains(&format!("\"{condition}\"")), "{condition} has no test");
    }
    for issue in known_issues::with(None).unwrap() {
        assert!(
            issue.remedy.ends_with('.') && issue.reference.starts_with("https://"),
            "{}",
            issue.id
        );
    }
}

/// The situations that a wait leads to, as links.
fn situations(is_led_to: impl Fn(&Leads) -> bool) -> String {
    let found = SITUATIONS.into_iter().filter(|one| one.leads.iter().any(&is_led_to));
    let links: Vec<String> = found
        .map(|one| format!("[{}](doctor.md#{})", one.id, one.id.to_lowercase()))
        .collect();
    if links.is_empty() {
        "–".to_owned()
    } else {
        links.join(", ")
    }
}

fn minutes(deadline: Duration) -> String {
    if deadline >= UNBOUNDED {
        "–".to_owned()
    } else {
        format!("{} min", deadline.as_secs() / 60)
    }
}

/// The rows of the table: the same in every language.
fn waits() -> String {
    let mut rows = String::new();
    for wait in Wait::ALL {
        let found = situations(|leads| matches!(leads, Leads::Plan(one) if one == wait));
        let _ = writeln!(
            rows,
            "| `{}` | {} | {found} |",
            wait.as_str(),
            minutes(Deadlines::default().of(*wait))
        );
    }
    for wait in ProgramWait::ALL {
        let found = situations(|leads| matches!(leads, Leads::Program(one) if one == wait));
        if found != "–" {
            let _ = writeln!(rows, "| `{}` | – | {found} |", wait.as_str());
        }
    }
    rows
}

#[test]
fn troubleshooting_starts_with_doctor_and_lists_every_wait_with_its_deadline_and_situations() {
    let expected = waits();
    for language in LANGUAGES {
        let name = format!("{language}troubleshooting.md");
        let text = page(&name);
        let first = text.split("```sh\n").nth(1).unwrap().lines().next().unwrap();
        assert_eq!(first, "upgrade-toolkit doctor", "{name}: the first command");
        assert!(text.contains(&expected), "{name} must have these rows:\n{expected}");
    }
}
