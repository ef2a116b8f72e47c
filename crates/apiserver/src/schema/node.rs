//! The compiled form of a schema: one node per JSON schema object.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use crate::status::FieldError;

/// What `additionalProperties` says.
#[derive(Debug, Default)]
pub(crate) enum Additional {
    /// Nothing: unknown fields are pruned.
    #[default]
    None,
    /// Anything goes.
    Any,
    /// A map with values of this schema.
    Of(Box<Node>),
}

/// How the entries of a list are distinguished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListType {
    /// The list is one value.
    Atomic,
    /// Entries are distinct scalars.
    Set,
    /// Entries are objects distinguished by these fields.
    Map(Vec<String>),
}

/// One schema node. Fields carry the names of the schema's keywords.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) nullable: bool,
    pub(crate) int_or_string: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded: bool,
    pub(crate) properties: BTreeMap<String, Self>,
    pub(crate) required: Vec<String>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Box<Self>>,
    pub(crate) list_type: Option<ListType>,
    pub(crate) atomic_map: bool,
    pub(crate) default: Option<Value>,
    pub(crate) allowed: Vec<Value>,
    pub(crate) pattern: Option<Regex>,
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) all_of: Vec<Self>,
    pub(crate) any_of: Vec<Self>,
    pub(crate) one_of: Vec<Self>,
    pub(crate) not: Option<Box<Self>>,
}

impl Node {
    pub(crate) fn compile(source: &Value, path: &str, errors: &mut Vec<FieldError>) -> Self {
        let flag = |key: &str| source[key].as_bool().unwrap_or(false);
        let count = |key: &str| source[key].as_u64();
        let text = |key: &str| source[key].as_str().unwrap_or_default().to_owned();
        let pattern = source["pattern"]
            .as_str()
            .and_then(|pattern| match Regex::new(pattern) {
                Ok(regex) => Some(regex),
                Err(error) => {
                    let field = format!("{path}.pattern");
                    let detail = format!("must be a valid regular expression, but isn't: {error}");
                    errors.push(FieldError::invalid(&field, &source["pattern"], &detail));
                    None
                }
            });
        let mut properties = BTreeMap::new();
        for (name, child) in source["properties"].as_object().into_iter().flatten() {
            let child = Self::compile(child, &format!("{path}.properties[{name}]"), errors);
            properties.insert(name.clone(), child);
        }
        let additional = match &source["additionalProperties"] {
            Value::Bool(true) => Additional::Any,
            child @ Value::Object(_) => Additional::Of(Box::new(Self::compile(
                child,
                &format!("{path}.additionalProperties"),
                errors,
            ))),
            _ => Additional::None,
        };
        let items = source["items"]
            .is_object()
            .then(|| Box::new(Self::compile(&source["items"], &format!("{path}.items"), errors)));
        let strings = |key: &str| -> Vec<String> {
            let list = source[key].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let list_type = match source["x-kubernetes-list-type"].as_str() {
            Some("atomic") => Some(ListType::Atomic),
            Some("set") => Some(ListType::Set),
            Some("map") => Some(ListType::Map(strings("x-kubernetes-list-map-keys"))),
            _ => None,
        };
        let mut branches = |key: &str| -> Vec<Self> {
            let list = source[key].as_array().into_iter().flatten();
            list.map(|child| Self::compile(child, &format!("{path}.{key}"), errors))
                .collect()
        };
        let (all_of, any_of, one_of) = (branches("allOf"), branches("anyOf"), branches("oneOf"));
        let not = source["not"]
            .is_object()
            .then(|| Box::new(Self::compile(&source["not"], path, errors)));
        Self {
            kind: text("type"),
            format: text("format"),
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            properties,
            required: strings("required"),
            additional,
            items,
            list_type,
            atomic_map: source["x-kubernetes-map-type"] == "atomic",
            default: source.get("default").cloned(),
            allowed: source["enum"].as_array().cloned().unwrap_or_default(),
            pattern,
            minimum: source["minimum"].as_f64(),
            maximum: source["maximum"].as_f64(),
            exclusive_minimum: flag("exclusiveMinimum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: source["multipleOf"].as_f64(),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            all_of,
            any_of,
            one_of,
            not,
        }
    }

    /// The schema of a field of an object of this schema.
    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(match &self.additional {
            Additional::Of(child) => Some(child),
            Additional::None | Additional::Any => None,
        })
    }
}
