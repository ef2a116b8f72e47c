//! The index of rows is complete: whatever row a test or a page names, docs/rows.md says what it is, once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use regex::Regex;

use crate::docs::page::{Page, root};

/// The rows that files below a folder name: in the names of tests, and as such in texts.
fn named(folder: &Path, rows: &mut BTreeSet<String>) {
    let test = Regex::new(r"\bfn ([rswfu])([0-9]{2})_[a-z0-9]+_").unwrap();
    let text = Regex::new(r"\b([RSWFU])-([0-9]{2})\b").unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            named(&path, rows);
        } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "md") && !path.ends_with("rows.md")
        {
            let content = fs::read_to_string(path).unwrap();
            let found = test.captures_iter(&content).chain(text.captures_iter(&content));
            rows.extend(found.map(|row| format!("{}-{}", row[1].to_uppercase(), &row[2])));
        }
    }
}

#[test]
fn every_row_of_the_real_systems_has_a_test_that_is_named_after_it() {
    fn tests(folder: &Path, found: &mut BTreeSet<String>) {
        let test = Regex::new(r"(?s)#\[(?:test|rstest|tokio::test)\b.*?\bfn (\w+)").unwrap();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                tests(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let content = fs::read_to_string(path).unwrap();
                found.extend(test.captures_iter(&content).map(|name| name[1].to_owned()));
            }
        }
    }
    let mut known = BTreeSet::new();
    tests(&root().join("crates"), &mut known);
    let row = Regex::new(r"(?m)^\| R-([0-9]{2}) \|").unwrap();
    let index = Page::read("docs/rows.md").text;
    let rows: Vec<&str> = row
        .captures_iter(&index)
        .filter_map(|row| row.get(1))
        .map(|row| row.as_str())
        .collect();
    assert!(rows.len() > 60, "{} rows", rows.len());
    let has = |row: &&&str| known.iter().any(|name| name.starts_with(&format!("r{row}_")));
    let without: Vec<&&str> = rows.iter().filter(|row| !has(row)).collect();
    assert!(without.is_empty(), "no test is named after these: {without:?}");
}

#[test]
fn every_row_that_is_named_somewhere_is_explained_once() {
    let mut rows = BTreeSet::new();
    for folder in ["crates", "docs"] {
        named(&root().join(folder), &mut rows);
    }
    let index = Page::read("docs/rows.md").text;
    let mut listed: BTreeMap<String, usize> = BTreeMap::new();
    for line in index.lines().filter(|line| line.starts_with("| ")) {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        let (row, words) = (cells.next().unwrap(), cells.next().unwrap_or_default());
        if row.as_bytes().get(1) == Some(&b'-') && row.len() == 4 {
            assert!(!words.is_empty(), "{row} is not explained");
            *listed.entry(row.to_owned()).or_default() += 1;
        }
    }
    let twice: Vec<&String> = listed
        .iter()
        .filter(|(_, count)| **count > 1)
        .map(|(row, _)| row)
        .collect();
    assert!(twice.is_empty(), "listed twice: {twice:?}");
    let missing: Vec<&String> = rows.iter().filter(|row| !listed.contains_key(*row)).collect();
    assert!(missing.is_empty(), "not explained: {missing:?}");
}
