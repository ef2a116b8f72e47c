//! The picture of the crates in docs/architecture.md is what Cargo says: no edge more, none less.

use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
    process::Command,
};

use regex::Regex;
use serde_json::Value;

use crate::docs::page::root;

const ARROW: &str = "-->";
const ARROW_OF_TESTS: &str = "-.->";

/// Who depends on whom, and whether only its tests do.
type Edge = (String, String, bool);

/// The edges between crates of this workspace.
fn edges() -> BTreeSet<Edge> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut metadata = Command::new(cargo);
    metadata.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
    let output = metadata.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let ours: BTreeSet<&str> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    let mut edges = BTreeSet::new();
    for package in packages {
        let from = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = dependency["name"].as_str().unwrap();
            if ours.contains(to) && to != from {
                edges.insert((from.to_owned(), to.to_owned(), dependency["kind"] == "dev"));
            }
        }
    }
    // What a crate needs anyway its tests may have.
    let all = edges.clone();
    edges.retain(|(from, to, tests)| !tests || !all.contains(&(from.clone(), to.clone(), false)));
    edges
}

/// The edges in the picture: `plan --> api & rules`, and `plan -.-> world` for tests.
fn drawn() -> BTreeSet<Edge> {
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let picture = page.split("```mermaid").nth(1).expect("a picture of the crates");
    let picture = picture.split("```").next().unwrap();
    let mut edges = BTreeSet::new();
    for line in picture.lines() {
        let (arrow, tests) = if line.contains(ARROW_OF_TESTS) {
            (ARROW_OF_TESTS, true)
        } else {
            (ARROW, false)
        };
        let Some((from, all)) = line.split_once(arrow) else {
            continue;
        };
        let all = all.split('&');
        edges.extend(all.map(|to| (from.trim().to_owned(), to.trim().to_owned(), tests)));
    }
    edges
}

#[test]
fn crates_depend_on_each_other_as_the_picture_shows() {
    let (real, drawn) = (edges(), drawn());
    let missing: Vec<&Edge> = real.difference(&drawn).collect();
    let gone: Vec<&Edge> = drawn.difference(&real).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "not in the picture: {missing:?}\nonly in the picture: {gone:?}"
    );
}

/// Where a path leads, without following links: files that it names may be gone.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(resolved.pop()),
            Component::CurDir => {}
            _ => resolved.push(part),
        }
    }
    resolved
}

/// The lines of a file of a crate that include a file from outside the crate. An attribute within an inline module resolves in a
/// folder below, so a path that stays in the crate from here stays in it from there.
fn foreign_files(file: &Path, text: &str, crates: &Path) -> Vec<String> {
    let attribute = Regex::new(r#"(?:\bpath\s*=\s*|\binclude(?:_str|_bytes)?!\(\s*)"([^"]+\.rs)""#).unwrap();
    let name = file.strip_prefix(crates).unwrap().components().next().unwrap();
    let here = crates.join(name);
    let foreign = attribute.captures_iter(text).filter(|found| {
        let path = resolved(&file.parent().unwrap().join(&found[1]));
        !path.starts_with(&here)
    });
    foreign
        .map(|found| format!("{}: {}", file.display(), &found[0]))
        .collect()
}

#[test]
fn no_crate_includes_a_file_of_another() {
    let crates = root().join("crates");
    let mut found = Vec::new();
    let mut folders = vec![crates.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("docs/crates.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.extend(foreign_files(&path, &text, &crates));
            }
        }
    }
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_path_into_another_crate_is_found_however_deep_it_begins() {
    let crates = Path::new("/crates");
    let of = |file: &str, text: &str| foreign_files(&crates.join(file), text, crates).len();
    assert_eq!(of("plan/src/lib.rs", r#"#[path = "../../rules/src/a.rs"] mod a;"#), 1);
    assert_eq!(
        of(
            "plan/tests/deep/er/a.rs",
            r#"#[path = "../../../../rules/src/a.rs"] mod a;"#
        ),
        1
    );
    assert_eq!(
        of("plan/src/a.rs", r#"#[cfg_attr(test, path = "./../../rules/a.rs")]"#),
        1
    );
    assert_eq!(of("plan/src/a.rs", r#"include!("/elsewhere/a.rs");"#), 1);
    assert_eq!(of("plan/tests/deep/er/a.rs", r#"#[path = "../../a.rs"] mod a;"#), 0);
}
