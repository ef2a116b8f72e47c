//! Cases, steps, and how they are run against a [`Target`].

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use serde_json::Value;

use super::target::{Answer, Target};

/// One behaviour.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// Whether the invented Widget kind must be there.
    #[serde(default)]
    widgets: bool,
    /// Whether only the embedded server does this (documented deviations, tiny watch logs).
    #[serde(default)]
    pub embedded_only: bool,
    /// Events kept per resource.
    #[serde(default)]
    pub watch_log: Option<usize>,
    steps: Vec<Step>,
}

/// One request and its answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// `GET /path?query`.
    ask: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: Option<Value>,
    /// Bytes as they are, instead of `body`.
    #[serde(default)]
    raw: Option<String>,
    #[serde(default = "ok")]
    status: u16,
    #[serde(default)]
    expect: Option<Value>,
    #[serde(default)]
    expect_headers: BTreeMap<String, String>,
    /// Lines of a watch, bookmarks aside unless listed.
    #[serde(default)]
    events: Option<Vec<Value>>,
    #[serde(default)]
    bookmarks: bool,
    /// name: JSON pointer.
    #[serde(default)]
    save: BTreeMap<String, String>,
}

fn ok() -> u16 {
    200
}

/// What was saved so far.
#[derive(Debug, Default)]
struct Variables(BTreeMap<String, String>);

impl Variables {
    fn fill_text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        // Longest first, so that `$rv2` is not taken for `$rv`.
        let mut names: Vec<&String> = self.0.keys().collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        for name in names {
            text = text.replace(&format!("${name}"), &self.0[name]);
        }
        text
    }

    fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill_text(text)),
            Value::Array(list) => list.iter().map(|entry| self.fill(entry)).collect(),
            Value::Object(map) => Value::Object(
                map.iter()
                    .map(|(key, entry)| (self.fill_text(key), self.fill(entry)))
                    .collect(),
            ),
            other => other.clone(),
        }
    }
}

/// Differences between what was expected and what came.
fn differences(expected: &Value, found: &Value, path: &str, out: &mut Vec<String>) {
    let mut differ = || out.push(format!("{path}: expected {expected}, found {found}"));
    let contains = |part: &str| {
        let shown = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
        !found.is_null() && shown.contains(part)
    };
    match expected {
        Value::String(text) if text == "<any>" && !found.is_null() => {}
        Value::String(text) if text.strip_prefix('~').is_some_and(contains) => {}
        Value::String(text) if text.strip_prefix('!').is_some_and(|other| found != other) => {}
        Value::Object(map) if found.is_object() => {
            for (key, value) in map {
                differences(
                    value,
                    found.get(key).unwrap_or(&Value::Null),
                    &format!("{path}.{key}"),
                    out,
                );
            }
        }
        Value::Array(list) if found.as_array().is_some_and(|found| found.len() == list.len()) => {
            for (index, value) in list.iter().enumerate() {
                differences(value, &found[index], &format!("{path}[{index}]"), out);
            }
        }
        _ if expected != found => differ(),
        _ => {}
    }
}

fn is_bookmark(line: Option<&Value>) -> bool {
    line.is_some_and(|line| line["type"] == "BOOKMARK")
}

/// What a step was answered otherwise.
#[derive(Debug, thiserror::Error)]
enum StepError {
    /// The table is wrong.
    #[error("`ask` is `METHOD /path`")]
    Ask,
    /// Another status.
    #[error("status: expected {expected}, found {found}: {text}")]
    Status { expected: u16, found: u16, text: String },
    /// A watch that is no lines of JSON.
    #[error("bad line {line}: {source}")]
    Line { line: String, source: serde_json::Error },
    /// Nothing where later steps find something.
    #[error("nothing to save at {pointer} in {body}")]
    Nothing { pointer: String, body: Value },
    /// Other fields.
    #[error("{}", .0.join("\n    "))]
    Different(Vec<String>),
}

/// A step of a case that was answered otherwise.
#[derive(Debug, thiserror::Error)]
#[error("step {number} ({ask}):\n    {source}")]
pub struct CaseError {
    number: usize,
    ask: String,
    source: StepError,
}

async fn run_step(target: &dyn Target, step: &Step, variables: &mut Variables) -> Result<(), StepError> {
    let (method, path) = step.ask.split_once(' ').ok_or(StepError::Ask)?;
    let body = match (&step.raw, &step.body) {
        (Some(raw), _) => variables.fill_text(raw),
        (None, Some(body)) => variables.fill(body).to_string(),
        (None, None) => String::new(),
    };
    let answer = target
        .send(method, &variables.fill_text(path), &step.headers, body)
        .await;
    let Answer { status, headers, text } = answer;
    if status != step.status {
        return Err(StepError::Status {
            expected: step.status,
            found: status,
            text,
        });
    }
    let mut wrong = Vec::new();
    if let Some(events) = &step.events {
        let lines: Vec<Value> = text
            .lines()
            .map(|line| {
                serde_json::from_str(line).map_err(|source| StepError::Line {
                    line: line.to_owned(),
                    source,
                })
            })
            .collect::<Result<_, StepError>>()?;
        let mut seen: Vec<Value> = lines
            .into_iter()
            .filter(|line| step.bookmarks || line["type"] != "BOOKMARK")
            .collect();
        while target.bookmarks_at_will() && seen.len() > events.len() && is_bookmark(seen.last()) {
            seen.pop();
        }
        differences(
            &variables.fill(&Value::Array(events.clone())),
            &Value::Array(seen),
            "events",
            &mut wrong,
        );
    } else {
        let body: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        if let Some(expected) = &step.expect {
            differences(&variables.fill(expected), &body, "", &mut wrong);
        }
        for (name, pointer) in &step.save {
            let found = body.pointer(pointer).ok_or_else(|| StepError::Nothing {
                pointer: pointer.clone(),
                body: body.clone(),
            })?;
            let found = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
            variables.0.insert(name.clone(), found);
        }
    }
    for (name, expected) in &step.expect_headers {
        let found = headers.get(name).cloned().unwrap_or_default();
        differences(
            &Value::String(expected.clone()),
            &Value::String(found),
            name,
            &mut wrong,
        );
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(StepError::Different(wrong))
    }
}

/// Runs a case to its end, or to its first step that was answered otherwise.
///
/// # Errors
/// What was answered otherwise.
pub async fn run_case(target: &dyn Target, case: &Case) -> Result<(), CaseError> {
    let mut variables = Variables::default();
    variables.0.insert("ns".into(), target.namespace().await);
    if case.widgets {
        target.ensure_widgets().await;
    }
    for (index, step) in case.steps.iter().enumerate() {
        run_step(target, step, &mut variables)
            .await
            .map_err(|source| CaseError {
                number: index + 1,
                ask: step.ask.clone(),
                source,
            })?;
    }
    Ok(())
}

/// Where the tables are.
fn directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tables"))
}

/// The cases of a table, by the name of its file.
///
/// # Panics
/// There is no such table, or it is not one.
#[must_use]
pub fn read_cases(file: &str) -> Vec<Case> {
    let text = std::fs::read_to_string(directory().join(format!("{file}.yaml"))).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{file}.yaml: {error}"))
}

/// The names of all tables, sorted.
///
/// # Panics
/// There are none.
#[must_use]
pub fn tables() -> Vec<String> {
    let files = std::fs::read_dir(directory()).unwrap();
    let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut tables: Vec<String> = names
        .filter_map(|name| name.strip_suffix(".yaml").map(str::to_owned))
        .collect();
    tables.sort();
    tables
}
