//! The table of troubles in docs/rehearse.md is that of the code, in both languages.

use std::collections::BTreeSet;

use checks::doctor::SITUATIONS;
use cli::rehearsal::trouble::{cells, rows};

use crate::docs::page::Page;

fn table(page: &str) -> Vec<String> {
    let text = Page::read(page).text;
    let section = text.split("\n|---|---|---|---|---|---|\n").nth(1).unwrap_or_default();
    let rows = section.lines().take_while(|line| line.starts_with('|'));
    rows.map(str::to_owned).collect()
}

#[test]
fn the_table_of_troubles_is_that_of_the_code() {
    let expected: Vec<String> = rows().map(|row| format!("| {} |", cells(row).join(" | "))).collect();
    assert_eq!(table("docs/rehearse.md").join("\n"), expected.join("\n"));
}

#[test]
fn the_chinese_table_of_troubles_has_the_same_troubles_objects_moments_and_situations() {
    let rows_in_chinese = table("docs/zh/rehearse.md");
    assert_eq!(rows_in_chinese.len(), rows().count());
    for (row, line) in rows().zip(rows_in_chinese) {
        let shown: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(shown.len(), 6, "{line}");
        assert_eq!(shown[0], cells(row)[0]);
        if !row.default.is_empty() {
            assert_eq!(shown[1], row.default, "{line}");
        }
        for id in row.ids() {
            assert!(shown[4].contains(id), "{line}: {id}");
        }
        assert!(!shown[3].is_empty() && !shown[5].is_empty(), "{line}");
    }
}

#[test]
fn each_situation_of_doctor_is_in_the_table_or_named_as_one_that_cannot_be_played() {
    let played: BTreeSet<&str> = rows().flat_map(|row| row.ids().iter().copied()).collect();
    let others: Vec<&str> = SITUATIONS
        .iter()
        .map(|situation| situation.id)
        .filter(|id| !played.contains(id))
        .collect();
    let sentence = format!("Tests write them into a snapshot of it: {}.", others.join(", "));
    assert!(Page::read("docs/rehearse.md").text.contains(&sentence), "{sentence}");
    let sentence = format!("：{}。", others.join("、"));
    assert!(Page::read("docs/zh/rehearse.md").text.contains(&sentence), "{sentence}");
}
