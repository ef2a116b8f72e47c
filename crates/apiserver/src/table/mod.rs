//! Tables and metadata-only objects: the forms in which kubectl and controllers ask for objects. Pure.

mod age;
mod builtin;
mod json_path;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use age::age;
pub(crate) use builtin::builtin_columns;
use json_path::JsonPath;

use crate::kind::Kind;

/// How a cell is found.
#[derive(Debug, Clone)]
enum Cell {
    Path(JsonPath),
    Computed(fn(&Value, Timestamp) -> Value),
}

/// One column of a Table.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    cell: Cell,
}

impl Column {
    fn value(&self, object: &Value, now: Timestamp) -> Value {
        let path = match &self.cell {
            Cell::Computed(compute) => return compute(object, now),
            Cell::Path(path) => path,
        };
        let Some(found) = path.first(object) else {
            return Value::Null;
        };
        match self.kind.as_str() {
            "date" => json!(age(&found, now)),
            "string" => match found {
                Value::String(_) | Value::Null => found,
                other => json!(other.to_string()),
            },
            "integer" => found
                .as_f64()
                .map_or(Value::Null, |number| json!(number.trunc() as i64)),
            "number" => {
                if found.is_number() {
                    found
                } else {
                    Value::Null
                }
            }
            "boolean" => {
                if found.is_boolean() {
                    found
                } else {
                    Value::Null
                }
            }
            _ => Value::Null,
        }
    }
}

fn created(object: &Value, now: Timestamp) -> Value {
    json!(age(&object["metadata"]["creationTimestamp"], now))
}

fn age_column() -> Column {
    Column {
        name: "Age".into(),
        kind: "date".into(),
        format: String::new(),
        description: "CreationTimestamp is a timestamp representing the server time when this object was created."
            .into(),
        priority: 0,
        cell: Cell::Computed(created),
    }
}

fn name_column() -> Column {
    Column {
        name: "Name".into(),
        kind: "string".into(),
        format: "name".into(),
        description: "Name must be unique within a namespace.".into(),
        priority: 0,
        cell: Cell::Computed(|object, _| object["metadata"]["name"].clone()),
    }
}

/// Columns from `additionalPrinterColumns`.
pub(crate) fn crd_columns(definitions: &Value) -> Vec<Column> {
    let definitions = definitions.as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    definitions
        .map(|definition| Column {
            name: text(&definition["name"]),
            kind: text(&definition["type"]),
            format: text(&definition["format"]),
            description: match text(&definition["description"]) {
                empty if empty.is_empty() => {
                    "Custom resource definition column (in JSONPath format): ".to_owned()
                        + &text(&definition["jsonPath"])
                }
                given => given,
            },
            priority: definition["priority"].as_i64().unwrap_or_default(),
            cell: Cell::Path(JsonPath::parse(definition["jsonPath"].as_str().unwrap_or_default())),
        })
        .collect()
}

/// What rows carry besides cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Include {
    Nothing,
    Metadata,
    Object,
}

/// The columns of one answer.
pub(crate) struct Columns<'a> {
    kind: &'a Kind,
    include: Include,
    now: Timestamp,
    /// Whether column definitions are sent along.
    pub(crate) headings: bool,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(kind: &'a Kind, include: Option<&str>, now: Timestamp) -> Self {
        let include = match include {
            Some("None") => Include::Nothing,
            Some("Object") => Include::Object,
            _ => Include::Metadata,
        };
        Self {
            kind,
            include,
            now,
            headings: true,
        }
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = vec![name_column()];
        if self.kind.columns.is_empty() {
            columns.push(age_column());
        } else {
            columns.extend(self.kind.columns.iter().cloned());
        }
        columns
    }

    pub(crate) fn table(&self, objects: &[Arc<Value>], metadata: &Value) -> Value {
        let columns = self.columns();
        let rows: Vec<Value> = objects
            .iter()
            .map(|object| {
                let cells: Vec<Value> = columns.iter().map(|column| column.value(object, self.now)).collect();
                let mut row = json!({"cells": cells});
                match self.include {
                    Include::Nothing => {}
                    Include::Metadata => row["object"] = metadata_only(object),
                    Include::Object => row["object"] = (**object).clone(),
                }
                row
            })
            .collect();
        let definitions: Vec<Value> = columns
            .iter()
            .map(|column| {
                json!({"name": column.name, "type": column.kind, "format": column.format,
                    "description": column.description, "priority": column.priority})
            })
            .collect();
        let metadata = match metadata {
            Value::Null => match objects.first() {
                Some(object) => json!({"resourceVersion": object["metadata"]["resourceVersion"]}),
                None => json!({}),
            },
            given => given.clone(),
        };
        let definitions = if self.headings { definitions } else { Vec::new() };
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": if definitions.is_empty() { Value::Null } else { Value::Array(definitions) },
            "rows": rows,
        })
    }
}

/// An object reduced to its metadata.
pub(crate) fn metadata_only(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
