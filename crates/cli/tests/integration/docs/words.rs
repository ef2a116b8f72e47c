//! Documentation and messages use the terms of the Kubernetes documentation: words of the table do not occur.

use std::{fs, path::Path};

use regex::Regex;

use crate::docs::page::{self, Page};

/// Words that are not used, and what is used instead.
const WORDS: [(&str, &str); 21] = [
    ("somebody", "a user, an administrator, another client"),
    ("anybody", "any user, any client"),
    ("everybody", "all users, all clients"),
    ("nobody", "no user, no client, nothing"),
    ("whoever", "a user who, the server that"),
    ("reckon with", "expect"),
    ("wish", "request, value"),
    ("news", "status, events"),
    ("by chance", "random"),
    ("in passing", "also"),
    ("lets? go", "resume"),
    ("let nodes go", "resume nodes"),
    ("are held|is held", "is paused"),
    ("puts? back", "restore"),
    ("anew", "again"),
    ("beside", "in addition to, next to"),
    ("last words?", "termination message"),
    ("a moment", "briefly, a short time"),
    ("mend(?:s|ed)?", "repair, fix"),
    ("go(?:es)? on", "continue"),
    ("(?:is|are) waited for", "the plan waits for"),
];

/// The words of the table in a text, each with what is used instead.
fn odd(text: &str) -> Vec<String> {
    let found = WORDS.iter().filter_map(|(word, instead)| {
        let word = Regex::new(&format!(r"(?i)\b(?:{word})\b")).unwrap();
        Some(format!("{:?}: use {instead}", word.find(text)?.as_str()))
    });
    found.collect()
}

/// Every file below a folder.
fn files(folder: &Path, see: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, see);
        } else {
            see(&path);
        }
    }
}

#[test]
fn pages_use_conventional_words() {
    let mut pages: Vec<String> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        .map(str::to_owned)
        .into();
    for folder in ["docs", "charts"] {
        files(&page::root().join(folder), &mut |path| {
            if path.extension().is_some_and(|ending| ending == "md" || ending == "txt") {
                let name = path.strip_prefix(page::root()).unwrap();
                pages.push(name.display().to_string());
            }
        });
    }
    assert!(pages.len() > 30, "only {pages:?}");
    // Names of tests, objects and messages of other programs are quoted.
    let code = Regex::new("`[^`]*`").unwrap();
    let mut faults = Vec::new();
    for name in pages {
        for (line, text) in Page::read(&name).prose() {
            let odd = odd(&code.replace_all(&text, "``"));
            faults.extend(odd.into_iter().map(|odd| format!("{name}:{line}: {odd}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn messages_use_conventional_words() {
    // Texts with a blank, so neither names nor keys; also the first line of longer ones.
    let literal = Regex::new(r#""((?:[^"\\]|\\.)* (?:[^"\\]|\\.)*)(?:"|\\$)"#).unwrap();
    let mut faults = Vec::new();
    let mut seen = 0;
    files(&page::root().join("crates"), &mut |path| {
        let name = path.strip_prefix(page::root()).unwrap().display().to_string();
        let is_shipped = name.contains("/src/") && !name.contains("tests") && !name.starts_with("crates/testbed");
        if !is_shipped || !name.ends_with(".rs") {
            return;
        }
        let text = fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (index, line) in code.lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for message in literal.captures_iter(line) {
                seen += 1;
                let odd = odd(&message[1]);
                faults.extend(odd.into_iter().map(|odd| format!("{name}:{}: {odd}", index + 1)));
            }
        }
    });
    assert!(seen > 1000, "only {seen} messages");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn odd_words_are_found() {
    for text in [
        "Somebody paused it",
        "the upgrade goes on",
        "it is put back",
        "a node is held",
    ] {
        assert_eq!(odd(text).len(), 1, "{text}");
    }
    assert_eq!(odd("the node holds a lease; it is going to continue"), [""; 0]);
}
