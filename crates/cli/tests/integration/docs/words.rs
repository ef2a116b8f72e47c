//! Documentation, messages, comments and names use the terms of the Kubernetes documentation: words of the tables do not occur.

use std::{fs, path::Path, sync::LazyLock};

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

/// Words that comments and names do not use, and what they use instead. These have a conventional term wherever they occur in
/// code; words of the other table may be the right ones in a comment.
const WORDS_OF_CODE: [(&str, &str); 15] = [
    ("told|tells?|telling", "report, record, notify, distinguish"),
    ("news", "status, events, changes"),
    ("wish(?:es|ed)?", "request, value"),
    ("labs?", "cluster"),
    ("shelf|shelves", "store"),
    ("last words?", "termination message"),
    (r"lets? (?:\w+ ){0,3}go", "resume, release"),
    ("held", "paused, suspended, delayed"),
    (
        "holds? (?:(?:a|the|its) )?nodes?|holds? (?:it |them )?back",
        "pause, suspend",
    ),
    ("sights?", "observation"),
    ("whoever", "the client that"),
    (
        "(?:some|any|every|no)bodys?",
        "a user, any client, all clients, no client",
    ),
    ("anew", "again"),
    ("puts? back", "restore"),
    ("mend(?:s|ed|ing)?|go(?:es)? on|going on", "fix, repair; continue"),
];

/// What comments and names may say although a word of the table is in it, and why.
const ALLOWED: [(&str, &str); 2] = [
    (
        "(?:leases?|locks?) (?:that )?(?:is|are|was) held",
        "one holds a lock or a lease",
    ),
    ("held the lease", "one holds a lease"),
];

type Table = Vec<(Regex, &'static str)>;

fn table(words: &[(&'static str, &'static str)]) -> Table {
    let words = words.iter();
    words
        .map(|(word, instead)| (Regex::new(&format!(r"(?i)\b(?:{word})\b")).unwrap(), *instead))
        .collect()
}

/// The words of a table in a text, each with what is used instead.
fn odd_by(table: &Table, text: &str) -> Vec<String> {
    let found = table
        .iter()
        .filter_map(|(word, instead)| Some(format!("{:?}: use {instead}", word.find(text)?.as_str())));
    found.collect()
}

/// The words of a page or a message that are not used.
fn odd(text: &str) -> Vec<String> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| table(&WORDS));
    odd_by(&TABLE, text)
}

/// The words of a comment or a name that are not used. What is quoted is a name of others.
fn odd_in_code(text: &str) -> Vec<String> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| table(&WORDS_OF_CODE));
    static LEFT_OUT: LazyLock<Table> = LazyLock::new(|| table(&ALLOWED));
    static QUOTED: LazyLock<Regex> = LazyLock::new(|| Regex::new("`[^`]*`").unwrap());
    let mut text = QUOTED.replace_all(text, "``").into_owned();
    for (allowed, _) in LEFT_OUT.iter() {
        text = allowed.replace_all(&text, "").into_owned();
    }
    odd_by(&TABLE, &text)
}

/// The comment of a line of code, and the names that it defines, as words.
fn comments_and_names(line: &str) -> Vec<String> {
    static COMMENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?:^|\s)//[/!]?(.*)$").unwrap());
    static NAME: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?:\b(?:fn|mod|const|static|struct|enum|trait|type)\s+|#\[case::)(\w+)").unwrap()
    });
    static HUMP: LazyLock<Regex> = LazyLock::new(|| Regex::new("([a-z0-9])([A-Z])").unwrap());
    let comment = COMMENT.captures(line);
    let code = comment
        .as_ref()
        .map_or(line, |found| &line[..found.get(0).unwrap().start()]);
    let names = NAME.captures_iter(code);
    let names = names.map(|name| HUMP.replace_all(&name[1], "$1 $2").replace('_', " "));
    let comment = comment.as_ref().map(|found| found[1].to_owned());
    names.chain(comment).collect()
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
fn comments_and_names_use_conventional_words() {
    let mut faults = Vec::new();
    let mut seen = 0;
    files(&page::root().join("crates"), &mut |path| {
        // This file has the words.
        if path.extension().is_none_or(|ending| ending != "rs") || path.ends_with("docs/words.rs") {
            return;
        }
        let name = path.strip_prefix(page::root()).unwrap().display().to_string();
        let module = path.file_stem().unwrap().to_string_lossy().replace('_', " ");
        faults.extend(odd_in_code(&module).into_iter().map(|odd| format!("{name}: {odd}")));
        for (index, line) in fs::read_to_string(path).unwrap().lines().enumerate() {
            for text in comments_and_names(line) {
                seen += 1;
                let odd = odd_in_code(&text);
                faults.extend(odd.into_iter().map(|odd| format!("{name}:{}: {odd}", index + 1)));
            }
        }
    });
    assert!(seen > 10_000, "only {seen} comments and names");
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

#[test]
fn odd_words_of_code_are_found() {
    for line in [
        "/// Nobody reads it.",
        "    let x = 1; // Rancher is told",
        "pub(crate) fn is_held(&self) -> bool {",
        "struct LastWord;",
        "#[case::let_go(true)]",
        "mod node_sights;",
        "const MOST_TOLD: usize = 1;",
        "// An administrator lets the node go.",
    ] {
        let texts = comments_and_names(line);
        let odd: Vec<String> = texts.iter().flat_map(|text| odd_in_code(text)).collect();
        assert_eq!(odd.len(), 1, "{line}: {texts:?}");
    }
    for line in [
        "// The lock is held; nginx runs as `nobody`.",
        "let news = 1;",
        "/// Labels of a node; a threshold.",
        "let url = \"https://told\";",
    ] {
        let texts = comments_and_names(line);
        let odd: Vec<String> = texts.iter().flat_map(|text| odd_in_code(text)).collect();
        assert_eq!(odd, [""; 0], "{line}: {texts:?}");
    }
}
