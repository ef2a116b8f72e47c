//! The JSONPath subset of printer columns: fields, indices, `[*]`, and `[?(@.a=="b")]`.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    /// Entries whose field (a path) is or is not this value.
    Where {
        path: Vec<String>,
        equal: bool,
        value: String,
    },
    /// Entries that have this field.
    With {
        path: Vec<String>,
    },
}

/// A parsed path. What cannot be parsed finds nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonPath {
    steps: Option<Vec<Step>>,
}

impl JsonPath {
    pub(crate) fn parse(text: &str) -> Self {
        let text = text
            .trim()
            .trim_start_matches('{')
            .trim_end_matches('}')
            .trim_start_matches('$');
        Self { steps: parse(text) }
    }

    /// The first value the path leads to.
    pub(crate) fn first(&self, object: &Value) -> Option<Value> {
        let mut found = vec![object];
        for step in self.steps.as_ref()? {
            found = found.into_iter().flat_map(|value| step.follow(value)).collect();
        }
        found.first().map(|value| (*value).clone())
    }
}

impl Step {
    fn follow<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let entries = || -> Vec<&'v Value> {
            match value {
                Value::Array(list) => list.iter().collect(),
                Value::Object(map) => map.values().collect(),
                _ => Vec::new(),
            }
        };
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                let Some(list) = value.as_array() else {
                    return Vec::new();
                };
                let index = if *index < 0 { *index + list.len() as i64 } else { *index };
                usize::try_from(index)
                    .ok()
                    .and_then(|index| list.get(index))
                    .into_iter()
                    .collect()
            }
            Self::All => entries(),
            Self::Where { path, equal, value } => entries()
                .into_iter()
                .filter(|entry| {
                    let found = path.iter().try_fold(*entry, |entry, step| entry.get(step));
                    let Some(found) = found else { return false };
                    let text = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
                    (text == *value) == *equal
                })
                .collect(),
            Self::With { path } => entries()
                .into_iter()
                .filter(|entry| path.iter().try_fold(*entry, |entry, step| entry.get(step)).is_some())
                .collect(),
        }
    }
}

/// The end of a bracket: the first `]` outside quotes.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (index, letter) in text.char_indices() {
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (letter, Some(open)) if letter == open => quote = None,
            (']', None) => return Some(index),
            _ => {}
        }
    }
    None
}

fn parse(mut text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    while !text.is_empty() {
        if let Some(rest) = text.strip_prefix('[') {
            let end = closing(rest)?;
            steps.push(bracket(rest[..end].trim())?);
            text = &rest[end + 1..];
            continue;
        }
        let rest = text.strip_prefix('.').unwrap_or(text);
        let (mut name, mut end, mut escaped) = (String::new(), rest.len(), false);
        for (index, letter) in rest.char_indices() {
            match letter {
                '\\' if !escaped => escaped = true,
                '.' | '[' if !escaped => {
                    end = index;
                    break;
                }
                letter => {
                    name.push(letter);
                    escaped = false;
                }
            }
        }
        if name == "*" {
            steps.push(Step::All);
        } else if !name.is_empty() {
            steps.push(Step::Field(name));
        } else if end == rest.len() {
            break;
        }
        text = &rest[end..];
    }
    Some(steps)
}

fn unquoted(text: &str) -> Option<&str> {
    let text = text.trim();
    ['\'', '"']
        .iter()
        .find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

fn bracket(inner: &str) -> Option<Step> {
    if inner == "*" {
        return Some(Step::All);
    }
    if let Ok(index) = inner.parse() {
        return Some(Step::Index(index));
    }
    if let Some(name) = unquoted(inner) {
        return Some(Step::Field(name.to_owned()));
    }
    let condition = inner.strip_prefix("?(")?.strip_suffix(')')?.trim();
    let path_of = |text: &str| -> Option<Vec<String>> {
        let path = text.trim().strip_prefix("@")?;
        Some(
            path.split('.')
                .filter(|step| !step.is_empty())
                .map(str::to_owned)
                .collect(),
        )
    };
    for (sign, equal) in [("==", true), ("!=", false)] {
        if let Some((left, right)) = condition.split_once(sign) {
            let value = unquoted(right).unwrap_or(right.trim()).to_owned();
            return Some(Step::Where {
                path: path_of(left)?,
                equal,
                value,
            });
        }
    }
    Some(Step::With {
        path: path_of(condition)?,
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::JsonPath;

    #[rstest]
    #[case(".spec.version", json!("v1"))]
    #[case("{.spec.version}", json!("v1"))]
    #[case(".status.conditions[?(@.type==\"Ready\")].status", json!("True"))]
    #[case(".status.conditions[?(@.type=='Ready')].status", json!("True"))]
    #[case(".status.conditions[?(@.type!=\"Ready\")].status", json!("False"))]
    #[case(".status.conditions[-1:]", Value::Null)]
    #[case(".status.conditions[1].type", json!("Ready"))]
    #[case(".status.conditions[*].type", json!("Other"))]
    #[case(".metadata.labels.a\\.b/c", json!("x"))]
    #[case(".metadata.labels['a.b/c']", json!("x"))]
    #[case(".spec.missing", Value::Null)]
    #[case("[broken", Value::Null)]
    fn a_path_finds_its_value(#[case] path: &str, #[case] expected: Value) {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "x"}},
            "spec": {"version": "v1"},
            "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
        });
        assert_eq!(JsonPath::parse(path).first(&object).unwrap_or_default(), expected);
    }
}
