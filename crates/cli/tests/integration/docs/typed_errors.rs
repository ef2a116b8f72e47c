//! Errors have types: no `Result` of the code that ships has a text for its error.

use std::path::{Path, PathBuf};

use crate::docs::page::root;

/// All Rust files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// Whether a file is of tests alone: `tests.rs`, or anything in a folder of that name.
fn is_of_tests(path: &Path) -> bool {
    let inside = path.components().any(|part| part.as_os_str() == "tests");
    inside || path.file_stem().is_some_and(|stem| stem == "tests")
}

/// What ships of a file: without comments, and without the module of its tests, which comes last.
fn shipped(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Each `Result<…>` in a text whose error is a text.
fn texts_for_errors(code: &str) -> Vec<String> {
    let starts = code.match_indices("Result<").map(|(at, word)| at + word.len());
    let arguments = starts.filter_map(|start| arguments(&code[start..]));
    arguments
        .filter(|arguments| arguments.len() == 2 && matches!(last(arguments), "String" | "&str" | "&'static str"))
        .map(|arguments| format!("Result<{}>", arguments.join(", ")))
        .collect()
}

fn last(arguments: &[String]) -> &str {
    arguments.last().map(String::as_str).unwrap_or_default()
}

/// The type arguments up to the bracket that closes them, on one line each.
fn arguments(rest: &str) -> Option<Vec<String>> {
    let (mut depth, mut before, mut found) = (0_u32, ' ', vec![String::new()]);
    for letter in rest.chars() {
        match letter {
            '>' if before == '-' => {}
            '<' | '(' | '[' => depth += 1,
            '>' if depth == 0 => {
                let all = found
                    .iter()
                    .map(|one| one.split_whitespace().collect::<Vec<_>>().join(" "));
                return Some(all.filter(|one| !one.is_empty()).collect());
            }
            '>' | ')' | ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                found.push(String::new());
                before = letter;
                continue;
            }
            _ => {}
        }
        before = letter;
        found.last_mut()?.push(letter);
    }
    None
}

#[test]
fn no_error_of_what_ships_is_a_text() {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        for path in files(&entry.unwrap().path().join("src")) {
            if is_of_tests(&path) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            let here = texts_for_errors(&shipped(&text)).into_iter();
            found.extend(here.map(|result| format!("{name}: {result}")));
        }
    }
    assert!(found.is_empty(), "use an error type:\n{}", found.join("\n"));
}

#[test]
fn a_text_for_an_error_is_found_however_it_is_written() {
    let code = "fn a() -> Result<(), String>; fn b() -> Result<\n    Vec<(u8, String)>,\n    String,\n>; type C = Result<u8, &'static str>;";
    let found = [
        "Result<(), String>",
        "Result<Vec<(u8, String)>, String>",
        "Result<u8, &'static str>",
    ];
    assert_eq!(texts_for_errors(code), found);
    let fine =
        "fn a() -> Result<String>; fn b() -> Result<Box<dyn Fn() -> String>, Error>; fn c() -> Result<String, Error>;";
    assert_eq!(texts_for_errors(fine), [""; 0]);
    let test = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() -> Result<(), String> {}\n}\n";
    assert_eq!(texts_for_errors(&shipped(test)), [""; 0]);
}
