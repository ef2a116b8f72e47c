//! Secrets in lines become `[masked: <kind>]`, before a line is kept anywhere.
//!
//! The table is in [`table`]. Time is linear in the length of a line: the expressions are automata, without backtracking.

pub mod table;

use std::{borrow::Cow, sync::LazyLock};

use regex::{Regex, RegexBuilder};

use table::{PATTERNS, Pattern};

/// A key that has no end after so many lines is none: the rest of the log must not vanish.
const LINES_OF_A_KEY: u16 = 300;

/// The masks, and whether the line is inside a private key of several lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Masker {
    /// Lines that are left of the key at most; 0 outside.
    #[serde(default)]
    key: u16,
}

struct Compiled {
    /// A line without any of these words has no secret: one pass decides about most lines.
    any: Regex,
    each: Vec<(&'static Pattern, Regex, Regex)>,
}

fn compiled() -> &'static Compiled {
    static COMPILED: LazyLock<Compiled> = LazyLock::new(|| {
        // An expression of the table that is wrong matches nothing; a test compiles all of them.
        let nothing = || Regex::new("[^\\s\\S]");
        let words = |words: &mut dyn Iterator<Item = &&'static str>| {
            let words: Vec<_> = words.map(|word| regex::escape(word)).collect();
            RegexBuilder::new(&words.join("|"))
                .case_insensitive(true)
                .unicode(false)
                .build()
        };
        let any = words(&mut PATTERNS.iter().flat_map(|pattern| pattern.words)).or_else(|_| nothing());
        let each = PATTERNS.iter().filter_map(|pattern| {
            let gate = words(&mut pattern.words.iter()).ok()?;
            Some((pattern, gate, Regex::new(pattern.regex).ok()?))
        });
        let each = each.collect();
        #[allow(clippy::expect_used, reason = "a constant expression; a test compiles it")]
        let any = any.expect("an expression that matches nothing");
        Compiled { any, each }
    });
    &COMPILED
}

impl Masker {
    /// The line without secrets. Lines must come in the order of the log: keys have several.
    pub fn mask<'a>(&mut self, line: &'a str) -> Cow<'a, str> {
        if self.key > 0 {
            self.key -= 1;
            if let Some(end) = line.find("-----END ") {
                self.key = 0;
                let rest = self.mask(&line[end..]);
                return Cow::Owned(format!("[masked: private-key]{rest}"));
            }
            return Cow::Borrowed("[masked: private-key]");
        }
        let compiled = compiled();
        if !compiled.any.is_match(line) {
            return Cow::Borrowed(line);
        }
        let mut masked = Cow::Borrowed(line);
        for (pattern, gate, regex) in &compiled.each {
            if gate.is_match(&masked)
                && let Cow::Owned(changed) = replace(pattern.name, regex, &masked)
            {
                masked = Cow::Owned(changed);
            }
        }
        if is_open(line) {
            self.key = LINES_OF_A_KEY;
        }
        masked
    }
}

/// A private key begins in this line and does not end in it.
fn is_open(line: &str) -> bool {
    let Some(begin) = line.rfind("-----BEGIN ") else {
        return false;
    };
    let rest = &line[begin..];
    rest.contains("PRIVATE KEY-----") && !rest.contains("-----END ")
}

/// The line with the groups `s` and `t` of each match replaced.
fn replace<'a>(name: &str, regex: &Regex, line: &'a str) -> Cow<'a, str> {
    let mut out = String::new();
    let mut copied = 0;
    for found in regex.captures_iter(line) {
        let Some(secret) = found.name("s").or_else(|| found.name("t")) else {
            continue;
        };
        if secret.is_empty() || secret.as_str().starts_with("[masked") || is_harmless(secret.as_str()) {
            continue;
        }
        out.push_str(&line[copied..secret.start()]);
        out.push_str("[masked: ");
        out.push_str(name);
        out.push(']');
        copied = secret.end();
    }
    if copied == 0 {
        return Cow::Borrowed(line);
    }
    out.push_str(&line[copied..]);
    Cow::Owned(out)
}

/// What fields of such names often have and what is no secret.
fn is_harmless(value: &str) -> bool {
    matches!(
        value,
        "true" | "false" | "null" | "nil" | "<nil>" | "none" | "None" | "masked" | "***" | "<redacted>" | "REDACTED"
    )
}
