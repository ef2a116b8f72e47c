//! Which values of a chart must not be shown: its output goes into the status of a plan, which many may read.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

/// Words in the name of a value that is secret.
const WORDS: [&str; 8] = [
    "password",
    "passwd",
    "secret",
    "token",
    "credential",
    "privatekey",
    "accesskey",
    "apikey",
];
/// What is put in the place of a secret.
const MASK: &str = "(masked)";
/// A secret shorter than this is only masked behind its name: as a word of its own it would mask half of any text.
const SHORTEST: usize = 4;

/// The secrets among the values of a chart.
#[derive(Default)]
pub(super) struct Secrets(BTreeSet<String>);

impl Secrets {
    /// Those whose name says so, wherever they are.
    pub(super) fn of(values: &Value) -> Self {
        let mut found = Self::default();
        found.collect(values, false);
        found
    }

    fn collect(&mut self, value: &Value, is_secret: bool) {
        match value {
            Value::Object(map) => {
                // As in a list of environment variables.
                let named = map.get("name").and_then(Value::as_str).is_some_and(is_secret_name);
                for (name, value) in map {
                    self.collect(value, is_secret || is_secret_name(name) || named && name == "value");
                }
            }
            Value::Array(list) => list.iter().for_each(|value| self.collect(value, is_secret)),
            Value::String(text) if is_secret => self.add(text),
            _ => {}
        }
    }

    fn add(&mut self, text: &str) {
        self.0.insert(STANDARD.encode(text));
        // A text of several lines may be printed one line at a time.
        for part in text.lines().chain([text]).map(str::trim) {
            if part.len() >= SHORTEST {
                self.0.insert(part.to_owned());
            }
        }
    }

    /// The text without what is secret: the secrets themselves, and what stands behind the name of one.
    pub(super) fn mask(&self, text: &str) -> String {
        let mut known: Vec<&String> = self.0.iter().collect();
        // One may be part of another.
        known.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        let masked = known
            .iter()
            .fold(text.to_owned(), |text, secret| text.replace(*secret, MASK));
        let lines: Vec<String> = masked.lines().map(mask_named).collect();
        lines.join("\n")
    }
}

fn is_secret_name(name: &str) -> bool {
    let name: String = name
        .to_lowercase()
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    WORDS.iter().any(|word| name.contains(word))
}

/// Masks what follows `name:` or `name=`, where the name is that of a secret.
fn mask_named(line: &str) -> String {
    let mut shown = String::new();
    let mut rest = line;
    while let Some(at) = rest.find([':', '=']) {
        let (before, after) = rest.split_at(at + 1);
        shown.push_str(before);
        rest = after;
        let name = before[..before.len() - 1].trim_end_matches(['"', '\'', ' ']);
        let name = name
            .rsplit(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c))
            .next();
        if !name.is_some_and(is_secret_name) {
            continue;
        }
        let value = rest.trim_start_matches([' ', '"', '\'']);
        let end = value.find([',', ' ', '"', '\'', '}', ')']).unwrap_or(value.len());
        if end > 0 {
            shown.push_str(&rest[..rest.len() - value.len()]);
            shown.push_str(MASK);
            rest = &value[end..];
        }
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_go_wherever_they_are_and_the_rest_stays() {
        let values = json!({
            "hostname": "rancher.example", "bootstrapPassword": "hunter2hunter2", "image": {"tag": "v2.14.0"},
            "extraEnv": [{"name": "DB_PASSWORD", "value": "in-the-environment"}, {"name": "LOG", "value": "debug"}],
            "registry": {"credentials": {"user": "robot", "pass": "deep-inside"}},
            "tls": {"privateKey": "-----BEGIN-----\nfirst-line\nsecond-line\n"},
        });
        let said = "Error: template: rancher.example: hunter2hunter2 in-the-environment deep-inside second-line robot \
                    aHVudGVyMmh1bnRlcjI= v2.14.0 debug";
        assert_eq!(
            Secrets::of(&values).mask(said),
            "Error: template: rancher.example: (masked) (masked) (masked) (masked) (masked) (masked) v2.14.0 debug"
        );
    }

    #[test]
    fn what_stands_behind_the_name_of_a_secret_goes_too() {
        let none = Secrets::default();
        for (said, shown) in [
            ("password: x1, user: jane", "password: (masked), user: jane"),
            (
                "{\"api-token\":\"abc\",\"a\":\"b\"}",
                "{\"api-token\":\"(masked)\",\"a\":\"b\"}",
            ),
            ("--set adminPassword=abc next", "--set adminPassword=(masked) next"),
            ("no secret was found: timed out", "no secret was found: timed out"),
            (
                "UPGRADE FAILED: context deadline exceeded",
                "UPGRADE FAILED: context deadline exceeded",
            ),
            ("a: b\nc=d", "a: b\nc=d"),
        ] {
            assert_eq!(none.mask(said), shown);
        }
    }
}
