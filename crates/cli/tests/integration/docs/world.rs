//! What `docs/world.md` says of the simulated world: every fact has a source with its version, and a test that is there.

use std::{collections::BTreeSet, fs, path::Path};

use regex::Regex;

use crate::docs::page::{self, Page};

/// A row of a table.
struct Row {
    section: String,
    /// What stands between the heading and the table.
    intro: String,
    fact: String,
    source: String,
    tests: String,
}

fn rows(page: &Page) -> Vec<Row> {
    let (mut section, mut intro, mut found) = (String::new(), String::new(), Vec::new());
    for line in page.text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading.to_owned();
            intro.clear();
        } else if let Some(row) = line.strip_prefix("| ") {
            let row = row.trim_end().trim_end_matches('|').trim_end();
            let cells: Vec<&str> = row.split(" | ").map(str::trim).collect();
            let [fact, source, tests] = cells.as_slice() else {
                panic!("{section}: a row of {} cells: {line}", cells.len());
            };
            if *tests != "test" {
                found.push(Row {
                    section: section.clone(),
                    intro: intro.clone(),
                    fact: (*fact).to_owned(),
                    source: (*source).to_owned(),
                    tests: (*tests).to_owned(),
                });
            }
        } else if !line.starts_with('|') {
            intro.push_str(line);
            intro.push('\n');
        }
    }
    found
}

/// The tests of each crate, as `crate: name`: functions that come next after the attribute of a test.
fn functions() -> BTreeSet<(String, String)> {
    let function = Regex::new(r"(?s)#\[(?:test|rstest|tokio::test)\b.*?\bfn (\w+)").unwrap();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(page::root().join("crates")).unwrap() {
        let entry = entry.unwrap();
        let of = entry.file_name().into_string().unwrap();
        gather(&entry.path(), &mut |text| {
            let names = function.captures_iter(text);
            found.extend(names.map(|name| (of.clone(), name[1].to_owned())));
        });
    }
    found
}

fn gather(folder: &Path, see: &mut dyn FnMut(&str)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, see);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            see(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// What is wrong with the tests of a row, if anything.
fn fault(row: &Row, functions: &BTreeSet<(String, String)>) -> Option<String> {
    let quoted = Regex::new("`([^`]+)`").unwrap();
    let mut named = 0;
    for found in quoted.captures_iter(&row.tests) {
        let text = &found[1];
        // Cases of the contract are files.
        if text.contains('/') || text.contains('.') {
            let folders = ["crates", "crates/contract/tables"];
            if !folders
                .iter()
                .any(|folder| page::root().join(folder).join(text).exists())
            {
                return Some(format!("there is no file {text}"));
            }
            named += 1;
            continue;
        }
        let (of, name) = text
            .split_once(": ")
            .map_or((None, text), |(of, name)| (Some(of), name));
        let is_it = |known: &&(String, String)| known.1 == name && of.is_none_or(|of| known.0 == of);
        if !functions.iter().any(|known| is_it(&known)) {
            return Some(format!("there is no test {text}"));
        }
        named += 1;
    }
    let refers = row.tests.starts_with("the same") || row.tests == "–";
    (named == 0 && !refers).then(|| "no test is named".to_owned())
}

#[test]
fn every_fact_of_the_world_names_a_test_that_exists() {
    let rows = rows(&Page::read("docs/world.md"));
    assert!(rows.len() > 70, "only {} rows", rows.len());
    let functions = functions();
    let faults: Vec<String> = rows
        .iter()
        .filter_map(|row| Some(format!("{}: {}: {}", row.section, row.fact, fault(row, &functions)?)))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // What is not simulated is said, and is rare.
    let without = rows.iter().filter(|row| row.tests == "–").count();
    assert!(without <= 1, "{without} rows have no test");
}

#[test]
fn every_fact_of_the_world_has_a_source_of_a_version() {
    let page = Page::read("docs/world.md");
    // v1.35.4, 111.0.0, or a commit.
    let version = Regex::new(r"\bv?\d+\.\d+|\b[0-9a-f]{7,12}\b").unwrap();
    let rows = rows(&page);
    let is_dated = |row: &&Row| {
        let of_section = row.intro.split_once("Source, where no other is named: ");
        let of_section = of_section.is_some_and(|(_, source)| version.is_match(source));
        of_section || version.is_match(&row.source) || row.source.starts_with("the same")
    };
    let undated = rows.iter().filter(|row| !is_dated(row));
    let undated: Vec<String> = undated.map(|row| format!("{}: {}", row.section, row.fact)).collect();
    assert!(undated.is_empty(), "{}", undated.join("\n"));
    let sections: BTreeSet<&str> = rows.iter().map(|row| row.section.as_str()).collect();
    for actor in [
        "system-upgrade-controller",
        "Job controller",
        "kubelet",
        "Rancher's planner",
        "Fleet",
        "KubeVirt",
        "Longhorn",
        "CDI",
    ] {
        assert!(sections.contains(actor), "{actor} has no table");
    }
}

#[test]
fn a_row_with_a_test_that_does_not_exist_is_found() {
    let functions = BTreeSet::from([("world".to_owned(), "it_is_so".to_owned())]);
    let row = |tests: &str| Row {
        section: String::new(),
        intro: String::new(),
        fact: String::new(),
        source: String::new(),
        tests: tests.to_owned(),
    };
    for tests in ["`it_is_so`", "`world: it_is_so` (both releases)", "the same"] {
        assert_eq!(fault(&row(tests), &functions), None, "{tests}");
    }
    for tests in [
        "`it_was_so`",
        "`plan: it_is_so`",
        "somebody looked",
        "`nothing.yaml`",
        "`it_is_so`, `no`",
    ] {
        assert!(fault(&row(tests), &functions).is_some(), "{tests}");
    }
}
