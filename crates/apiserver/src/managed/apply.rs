//! Server-side apply: merging what a manager wants into what is, with conflicts and removals.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    FieldSet, Manager, Shape, Writer,
    field_set::{compare, drop_system_fields, key_element},
    shape::ListShape,
};

/// The outcome of an apply.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) object: Value,
    pub(crate) managers: Vec<Manager>,
    /// Fields of others that would change: manager, operation, paths. Empty when forced.
    pub(crate) conflicts: Vec<(Manager, Vec<String>)>,
}

/// Merges `config` of `writer` into `live`. With `force`, fields of others are taken over.
pub(crate) fn apply(
    shape: &Shape<'_>,
    live: &Value,
    config: &Value,
    before: Vec<Manager>,
    writer: &Writer,
    force: bool,
) -> Applied {
    let mut wanted = FieldSet::of(shape, config);
    drop_system_fields(&mut wanted);
    let mut merged = merge(shape, live, config);
    let mut mine = writer.entry("Apply", wanted.clone());
    let mut others = Vec::new();
    let mut last = FieldSet::default();
    let mut last_time = String::new();
    for manager in before {
        // An apply takes over what the same manager had applied through another version.
        if manager.name == mine.name && manager.operation == "Apply" && manager.subresource == mine.subresource {
            last = manager.fields;
            last_time = manager.time;
        } else {
            others.push(manager);
        }
    }
    let (mut changed, mut gone) = (FieldSet::default(), FieldSet::default());
    compare(shape, live, &merged, &mut changed, &mut gone);
    let mut conflicts = Vec::new();
    for manager in &mut others {
        let disputed = manager.fields.intersection(&wanted).intersection(&changed);
        if disputed.is_empty() {
            continue;
        }
        if force {
            manager.fields.subtract(&disputed);
        } else {
            conflicts.push((manager.clone(), disputed.paths()));
        }
    }
    // What this manager applied before and does not any more goes, unless another manager owns it too.
    let mut abandoned = last;
    abandoned.subtract(&wanted);
    for manager in &others {
        abandoned.subtract(&manager.fields);
    }
    let mut kept = wanted;
    for manager in &others {
        kept.union(&manager.fields);
    }
    remove(shape, &mut merged, &abandoned, &kept);
    // The time is that of the last change of the object, not of the ledger.
    if merged == *live {
        mine.time = last_time;
    }
    others.push(mine);
    others.retain(|manager| !manager.fields.is_empty());
    Applied {
        object: merged,
        managers: others,
        conflicts,
    }
}

fn merge(shape: &Shape<'_>, live: &Value, config: &Value) -> Value {
    match (live, config) {
        (Value::Object(live), Value::Object(config)) if !shape.is_atomic_map() => {
            let mut out = live.clone();
            for (name, value) in config {
                let merged = match live.get(name) {
                    Some(found) => merge(&shape.field(name), found, value),
                    None => value.clone(),
                };
                out.insert(name.clone(), merged);
            }
            Value::Object(out)
        }
        (Value::Array(live), Value::Array(config)) => match shape.list() {
            ListShape::Atomic => Value::Array(config.clone()),
            ListShape::Set => {
                let mut out = live.clone();
                out.extend(config.iter().filter(|entry| !live.contains(entry)).cloned());
                Value::Array(out)
            }
            ListShape::Map(keys) => merge_entries(shape, &keys, live, config),
        },
        _ => config.clone(),
    }
}

/// Entries of a list map: those that are there stay where they are, new ones follow in the order given.
fn merge_entries(shape: &Shape<'_>, keys: &[String], live: &[Value], config: &[Value]) -> Value {
    let mut wanted: BTreeMap<String, &Value> = config.iter().map(|entry| (key_element(keys, entry), entry)).collect();
    let mut out: Vec<Value> = live
        .iter()
        .map(|entry| match wanted.remove(&key_element(keys, entry)) {
            Some(value) => merge(&shape.entry(), entry, value),
            None => entry.clone(),
        })
        .collect();
    out.extend(
        config
            .iter()
            .filter(|entry| wanted.contains_key(&key_element(keys, entry)))
            .cloned(),
    );
    Value::Array(out)
}

/// Takes abandoned fields out of the object; containers that others still need stay.
fn remove(shape: &Shape<'_>, value: &mut Value, abandoned: &FieldSet, kept: &FieldSet) {
    let nothing = FieldSet::default();
    match value {
        Value::Object(map) => remove_fields(shape, map, abandoned, kept, &nothing),
        Value::Array(list) => match shape.list() {
            ListShape::Atomic => {}
            ListShape::Set => list.retain(|entry| !abandoned.children.contains_key(&format!("v:{entry}"))),
            ListShape::Map(keys) => list.retain_mut(|entry| {
                let element = key_element(&keys, entry);
                let Some(below) = abandoned.children.get(&element) else {
                    return true;
                };
                let needed = kept.children.get(&element).unwrap_or(&nothing);
                if below.member && needed.is_empty() {
                    return false;
                }
                remove(&shape.entry(), entry, below, needed);
                true
            }),
        },
        _ => {}
    }
}

fn remove_fields(
    shape: &Shape<'_>,
    map: &mut Map<String, Value>,
    abandoned: &FieldSet,
    kept: &FieldSet,
    nothing: &FieldSet,
) {
    for (element, below) in &abandoned.children {
        let Some(name) = element.strip_prefix("f:") else {
            continue;
        };
        let needed = kept.children.get(element).unwrap_or(nothing);
        let Some(value) = map.get_mut(name) else { continue };
        if below.member && needed.is_empty() {
            map.remove(name);
            continue;
        }
        remove(&shape.field(name), value, below, needed);
        let emptied = match value {
            Value::Object(map) => map.is_empty(),
            Value::Array(list) => list.is_empty(),
            _ => false,
        };
        if emptied && needed.is_empty() {
            map.remove(name);
        }
    }
}
