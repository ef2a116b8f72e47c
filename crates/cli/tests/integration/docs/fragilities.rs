//! The table of fragilities has a row for each, and the page of evidence names tests that exist.

use std::{collections::BTreeSet, fs, path::Path};

use regex::Regex;

use crate::docs::page::{self, Page};

/// The most characters of a row of differences.
const LONGEST_ROW: usize = 240;

/// The names of all functions below a folder.
fn functions(folder: &Path, names: &mut BTreeSet<String>) {
    let function = Regex::new(r"(?m)^\s*(?:async )?fn (\w+)\(").unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            functions(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).unwrap();
            names.extend(function.captures_iter(&text).map(|found| found[1].to_owned()));
        }
    }
}

/// The rows of the tables of a page, as cells.
fn rows(text: &str) -> Vec<Vec<String>> {
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| |"));
    rows.map(|row| {
        row.trim_matches('|')
            .split(" | ")
            .map(|cell| cell.trim().to_owned())
            .collect()
    })
    .collect()
}

fn fragilities() -> Vec<String> {
    (1..=25).map(|number| format!("F-{number:02}")).collect()
}

#[test]
fn each_fragility_has_one_row() {
    let text = Page::read("docs/differences.md").text;
    let begin = text.find("## The 25 fragilities").unwrap();
    let table = rows(text[begin..].split("\n## ").next().unwrap());
    let numbers: Vec<String> = table.iter().map(|row| row[0].clone()).collect();
    assert_eq!(numbers, fragilities());
}

#[test]
fn the_rows_of_differences_are_short() {
    for row in rows(&Page::read("docs/differences.md").text) {
        let length = row.iter().map(String::len).sum::<usize>();
        assert!(length <= LONGEST_ROW, "{length} characters: {row:?}");
    }
}

#[test]
fn the_tests_that_the_page_of_evidence_names_exist() {
    let mut known = BTreeSet::new();
    functions(&page::root().join("crates"), &mut known);
    let text = Page::read("docs/evidence.md").text;
    let name = Regex::new(r"`([a-z0-9_]+)`").unwrap();
    let mut numbers = Vec::new();
    for row in rows(&text) {
        let (what, tests) = (&row[0], &row[1]);
        if what == "row" || what == "what" {
            continue;
        }
        if what.starts_with("F-") {
            numbers.push(what.clone());
        }
        let tests: Vec<String> = name.captures_iter(tests).map(|found| found[1].to_owned()).collect();
        let missing: Vec<_> = tests.iter().filter(|test| !known.contains(*test)).collect();
        assert!(missing.is_empty(), "{what}: there is no {missing:?}");
        // There is no log subsystem yet.
        assert!(!tests.is_empty() || what == "F-23", "{what} has no test");
    }
    assert_eq!(numbers, fragilities());
}
