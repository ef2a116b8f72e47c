//! The table of fragilities has a row for each, and names tests that exist.

use std::{collections::BTreeSet, fs, path::Path};

use regex::Regex;

use crate::page::{self, Page};

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

#[test]
fn each_fragility_has_one_row_and_its_tests_exist() {
    let mut known = BTreeSet::new();
    functions(&page::root().join("crates"), &mut known);
    let text = Page::read("docs/differences.md").text;
    let begin = text.find("## The 25 fragilities").unwrap();
    let table = text[begin..].split("\n## ").next().unwrap();
    let name = Regex::new(r"`([a-z0-9_]+)`").unwrap();
    let mut numbers = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("| F-")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 4, "{row}");
        numbers.push(cells[0].to_owned());
        let tests: Vec<&str> = name
            .captures_iter(cells[3])
            .map(|found| found.get(1).unwrap().as_str())
            .collect();
        let missing: Vec<_> = tests.iter().filter(|test| !known.contains(**test)).collect();
        assert!(missing.is_empty(), "{}: there is no {missing:?}", cells[0]);
        assert!(!tests.is_empty() || cells[2].starts_with("out of scope"), "{row}");
    }
    let all: Vec<String> = (1..=25).map(|number| format!("F-{number:02}")).collect();
    assert_eq!(numbers, all);
}
