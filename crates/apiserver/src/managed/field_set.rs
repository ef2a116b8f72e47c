//! Sets of field paths in the form of `fieldsV1`: `f:name` fields, `k:{…}` entries of list maps, `v:…` of list sets.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::shape::{ListShape, Shape};

/// A tree of path elements; `member` marks elements that are in the set themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    pub(crate) member: bool,
    pub(crate) children: BTreeMap<String, Self>,
}

impl FieldSet {
    pub(crate) fn leaf() -> Self {
        Self {
            member: true,
            children: BTreeMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.children.values().all(Self::is_empty)
    }

    pub(crate) fn from_json(json: &Value) -> Self {
        let mut set = Self::default();
        for (element, child) in json.as_object().into_iter().flatten() {
            if element == "." {
                set.member = true;
                continue;
            }
            let mut child = Self::from_json(child);
            child.member |= child.children.is_empty();
            set.children.insert(element.clone(), child);
        }
        set
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut json = Map::new();
        if self.member && !self.children.is_empty() {
            json.insert(".".into(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            if !child.is_empty() {
                json.insert(element.clone(), child.to_json());
            }
        }
        Value::Object(json)
    }

    pub(crate) fn union(&mut self, other: &Self) {
        self.member |= other.member;
        for (element, child) in &other.children {
            self.children.entry(element.clone()).or_default().union(child);
        }
    }

    /// Takes out what is in `other`, member by member.
    pub(crate) fn subtract(&mut self, other: &Self) {
        if other.member {
            self.member = false;
        }
        for (element, child) in &other.children {
            if let Some(own) = self.children.get_mut(element) {
                own.subtract(child);
            }
        }
        self.children.retain(|_, child| !child.is_empty());
    }

    /// Takes out what is in `other` with everything below it: the fields are gone.
    pub(crate) fn subtract_tree(&mut self, other: &Self) {
        for (element, child) in &other.children {
            if child.member {
                self.children.remove(element);
            } else if let Some(own) = self.children.get_mut(element) {
                own.subtract_tree(child);
            }
        }
        self.children.retain(|_, child| !child.is_empty());
    }

    /// What both have.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut both = Self {
            member: self.member && other.member,
            children: BTreeMap::new(),
        };
        for (element, child) in &self.children {
            if let Some(others) = other.children.get(element) {
                let common = child.intersection(others);
                if !common.is_empty() {
                    both.children.insert(element.clone(), common);
                }
            }
        }
        both
    }

    /// Members as paths in the notation of conflict causes (`.spec.containers[name="a"].image`).
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect_paths("", &mut out);
        out
    }

    fn collect_paths(&self, path: &str, out: &mut Vec<String>) {
        if self.member {
            out.push(path.to_owned());
        }
        for (element, child) in &self.children {
            child.collect_paths(&format!("{path}{}", readable(element)), out);
        }
    }

    /// The fields an object has.
    pub(crate) fn of(shape: &Shape<'_>, value: &Value) -> Self {
        let mut set = Self::default();
        match value {
            Value::Object(map) if !shape.is_atomic_map() && !map.is_empty() => {
                for (name, child) in map {
                    set.children
                        .insert(format!("f:{name}"), Self::of(&shape.field(name), child));
                }
            }
            Value::Array(list) if !list.is_empty() => match shape.list() {
                ListShape::Atomic => set.member = true,
                ListShape::Set => {
                    for entry in list {
                        set.children.insert(format!("v:{entry}"), Self::leaf());
                    }
                }
                ListShape::Map(keys) => {
                    for entry in list {
                        let mut child = Self::of(&shape.entry(), entry);
                        child.member = true;
                        set.children.insert(key_element(&keys, entry), child);
                    }
                }
            },
            _ => set.member = true,
        }
        set
    }
}

/// `k:{"name":"a"}` of an entry of a list map.
pub(crate) fn key_element(keys: &[String], entry: &Value) -> String {
    let mut sorted: BTreeMap<&str, Value> = BTreeMap::new();
    for key in keys {
        match entry.get(key) {
            Some(found) => sorted.insert(key, found.clone()),
            // The only key with a default among built-in lists.
            None if key == "protocol" => sorted.insert(key, Value::String("TCP".into())),
            None => None,
        };
    }
    let pairs: Map<String, Value> = sorted.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    format!("k:{}", Value::Object(pairs))
}

fn readable(element: &str) -> String {
    if let Some(name) = element.strip_prefix("f:") {
        return format!(".{name}");
    }
    if let Some(value) = element.strip_prefix("v:") {
        return format!("[={value}]");
    }
    let keys = element.strip_prefix("k:").unwrap_or(element);
    let parsed: Value = serde_json::from_str(keys).unwrap_or_default();
    let pairs: Vec<String> = parsed
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    format!("[{}]", pairs.join(","))
}

/// Fields that differ between two objects: `changed` are there now (new or other), `removed` are not.
pub(crate) fn compare(shape: &Shape<'_>, old: &Value, new: &Value, changed: &mut FieldSet, removed: &mut FieldSet) {
    if old == new {
        return;
    }
    match (old, new) {
        (Value::Object(before), Value::Object(after)) if !shape.is_atomic_map() => {
            for (name, value) in after {
                let was = before.get(name).unwrap_or(&Value::Null);
                step(&shape.field(name), format!("f:{name}"), was, value, changed, removed);
            }
            for name in before.keys().filter(|name| !after.contains_key(*name)) {
                removed.children.insert(format!("f:{name}"), FieldSet::leaf());
            }
        }
        (Value::Array(before), Value::Array(after)) => compare_lists(shape, before, after, changed, removed),
        (Value::Null, _) => {
            let mut added = FieldSet::of(shape, new);
            mark_parents(&mut added);
            changed.union(&added);
        }
        _ => changed.union(&FieldSet::of(shape, new)),
    }
}

/// A manager that adds a whole new map owns the map too (`"."` in fieldsV1).
fn mark_parents(set: &mut FieldSet) {
    set.member = true;
    set.children
        .values_mut()
        .filter(|child| !child.children.is_empty())
        .for_each(mark_parents);
}

fn step(shape: &Shape<'_>, element: String, old: &Value, new: &Value, changed: &mut FieldSet, removed: &mut FieldSet) {
    if old == new {
        return;
    }
    let mut below = (FieldSet::default(), FieldSet::default());
    compare(shape, old, new, &mut below.0, &mut below.1);
    if !below.0.is_empty() {
        changed.children.insert(element.clone(), below.0);
    }
    if !below.1.is_empty() {
        removed.children.insert(element, below.1);
    }
}

fn compare_lists(shape: &Shape<'_>, old: &[Value], new: &[Value], changed: &mut FieldSet, removed: &mut FieldSet) {
    let name_of: Box<dyn Fn(&Value) -> String> = match shape.list() {
        ListShape::Atomic => {
            changed.member = true;
            return;
        }
        ListShape::Set => Box::new(|entry| format!("v:{entry}")),
        ListShape::Map(keys) => Box::new(move |entry| key_element(&keys, entry)),
    };
    let before: BTreeMap<String, &Value> = old.iter().map(|entry| (name_of(entry), entry)).collect();
    let after: BTreeMap<String, &Value> = new.iter().map(|entry| (name_of(entry), entry)).collect();
    for (element, value) in &after {
        let was = before.get(element).copied().unwrap_or(&Value::Null);
        step(&shape.entry(), element.clone(), was, value, changed, removed);
    }
    for element in before.keys().filter(|element| !after.contains_key(*element)) {
        removed.children.insert(element.clone(), FieldSet::leaf());
    }
}

/// No manager owns what the server sets.
pub(crate) fn drop_system_fields(set: &mut FieldSet) {
    for field in ["f:apiVersion", "f:kind"] {
        set.children.remove(field);
    }
    set.member = false;
    if let Some(metadata) = set.children.get_mut("f:metadata") {
        metadata.member = false;
        for field in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "selfLink",
        ] {
            metadata.children.remove(&format!("f:{field}"));
        }
    }
    // Top-level maps such as spec are never owned as such.
    for child in set.children.values_mut().filter(|child| !child.children.is_empty()) {
        child.member = false;
    }
    set.children.retain(|_, child| !child.is_empty());
}
