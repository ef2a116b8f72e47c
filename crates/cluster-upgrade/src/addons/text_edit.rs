//! Small edits of a YAML text that leave its comments and layout alone. Pure.
//!
//! These edits are guesses about text: the caller parses the result and compares it with the intended value.

use serde_json::{Map, Value};

/// One difference between two values.
struct Edit<'a> {
    path: Vec<&'a str>,
    old: Option<&'a Value>,
    new: &'a Value,
}

/// The text with its value changed from `old` to `new`; nothing when that takes more than small edits.
pub(super) fn edited(text: &str, old: &Value, new: &Value) -> Option<String> {
    let mut edits = Vec::new();
    differences(old, new, &mut Vec::new(), &mut edits)?;
    let mut text = text.to_owned();
    for edit in edits {
        text = match edit.old {
            Some(old) => replaced(&text, edit.path.last()?, old, edit.new)?,
            None => added(&text, &edit.path, edit.new)?,
        };
    }
    Some(text)
}

/// Collects replaced scalars and added values; nothing when something was removed or lists differ in length.
fn differences<'a>(old: &'a Value, new: &'a Value, path: &mut Vec<&'a str>, edits: &mut Vec<Edit<'a>>) -> Option<()> {
    match (old, new) {
        (old, new) if old == new => {}
        (Value::Object(before), Value::Object(after)) => {
            if before.keys().any(|key| !after.contains_key(key)) {
                return None;
            }
            for (key, new) in after {
                path.push(key);
                match before.get(key) {
                    Some(old) => differences(old, new, path, edits)?,
                    None => edits.push(Edit {
                        path: path.clone(),
                        old: None,
                        new,
                    }),
                }
                path.pop();
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (old, new) in before.iter().zip(after) {
                differences(old, new, path, edits)?;
            }
        }
        (old, new) if is_scalar(old) && is_scalar(new) => {
            edits.push(Edit {
                path: path.clone(),
                old: Some(old),
                new,
            });
        }
        _ => return None,
    }
    Some(())
}

fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Replaces the value of a key, if one line alone can be meant.
fn replaced(text: &str, key: &str, old: &Value, new: &Value) -> Option<String> {
    let old = plain(old);
    let new = serde_saphyr::to_string(new).ok()?;
    let new = new.trim_end();
    let label = format!("{key}:");
    let mut hits = 0;
    let lines: Vec<String> = text
        .split_inclusive('\n')
        .map(|line| {
            let start = line.len() - line.trim_start_matches([' ', '-']).len();
            let (head, rest) = line.split_at(start);
            match rest.strip_prefix(&label) {
                Some(value) if value.contains(&old) => {
                    hits += 1;
                    let quoted = [format!("\"{old}\""), format!("'{old}'")];
                    let found = quoted
                        .iter()
                        .find(|quoted| value.contains(quoted.as_str()))
                        .unwrap_or(&old);
                    format!("{head}{label}{}", value.replacen(found.as_str(), new, 1))
                }
                _ => line.to_owned(),
            }
        })
        .collect();
    (hits == 1).then(|| lines.concat())
}

/// Adds a value under a path whose parents are written as blocks, or at the end.
fn added(text: &str, path: &[&str], new: &Value) -> Option<String> {
    let (key, parents) = path.split_last()?;
    let block = serde_saphyr::to_string(&Value::Object(Map::from_iter([((*key).to_owned(), new.clone())]))).ok()?;
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut range = 0..lines.len();
    let mut indent = 0;
    for parent in parents {
        let label = format!("{parent}:");
        let of_parent = |line: &&str| {
            indent_of(line) == indent
                && line.trim_start().strip_prefix(&label).is_some_and(|rest| {
                    let rest = rest.trim_start();
                    rest.is_empty() || rest.starts_with('#')
                })
        };
        let at = range.start + lines[range.clone()].iter().position(of_parent)?;
        let inside = |line: &&&str| line.trim().is_empty() || indent_of(line) > indent;
        let end = at + 1 + lines[at + 1..range.end].iter().take_while(inside).count();
        range = at + 1..end;
        indent = lines[range.clone()]
            .iter()
            .find(|line| !line.trim().is_empty())
            .map(|line| indent_of(line))?;
    }
    let at = if parents.is_empty() { lines.len() } else { range.start };
    let margin = " ".repeat(indent);
    let block: String = block.lines().map(|line| format!("{margin}{line}\n")).collect();
    let gap = at == lines.len() && lines.last().is_some_and(|line| !line.ends_with('\n'));
    let block = if gap { format!("\n{block}") } else { block };
    lines.insert(at, &block);
    Some(lines.concat())
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_added_value_is_next_to_its_siblings() {
        let text = "# top\nmetrics:\n   # inner\n   a: 1\nz: 2";
        let old = json!({"metrics": {"a": 1}, "z": 2});
        let new = json!({"metrics": {"a": 1, "list": ["nodes=[*]"]}, "z": 2, "b": {"c": false}});
        let edited = edited(text, &old, &new).unwrap();
        assert!(edited.starts_with("# top\nmetrics:\n   list:"), "{edited}");
        assert!(edited.contains("   # inner\n   a: 1\nz: 2\nb:"), "{edited}");
        let read: Value = serde_saphyr::from_str(&edited).unwrap();
        assert_eq!(read, new);
    }

    #[test]
    fn a_value_that_stands_twice_is_not_guessed_at() {
        let old = json!({"a": {"tag": "v1"}, "b": {"tag": "v1"}});
        let new = json!({"a": {"tag": "v2"}, "b": {"tag": "v1"}});
        assert_eq!(edited("a:\n  tag: v1\nb:\n  tag: v1\n", &old, &new), None);
    }

    #[test]
    fn quotes_go_with_the_value_they_quote() {
        let text = "containers:\n- image: \"old:1\" # router\n  name: x\n";
        let old = json!({"containers": [{"image": "old:1", "name": "x"}]});
        let new = json!({"containers": [{"image": "new:2", "name": "x"}]});
        let edited = edited(text, &old, &new).unwrap();
        let read: Value = serde_saphyr::from_str(&edited).unwrap();
        assert_eq!(read, new);
        assert!(edited.ends_with("# router\n  name: x\n"));
    }
}
