//! Defaults of a schema, filled in as the real server does before validation.

use serde_json::Value;

use super::node::{Additional, Node};

pub(super) fn fill(node: &Node, value: &mut Value) {
    match value {
        Value::Object(map) => {
            // A null where null is not allowed counts as absent: the default comes in or the field goes.
            map.retain(|name, found| {
                !(found.is_null() && node.properties.get(name).is_some_and(|child| !child.nullable))
            });
            for (name, child) in &node.properties {
                if let Some(default) = &child.default
                    && !map.contains_key(name)
                {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, found) in map.iter_mut() {
                if let Some(child) = node.properties.get(name) {
                    fill(child, found);
                } else if let Additional::Of(child) = &node.additional {
                    if found.is_null()
                        && !child.nullable
                        && let Some(default) = &child.default
                    {
                        *found = default.clone();
                    }
                    fill(child, found);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &node.items {
                for found in list {
                    if found.is_null()
                        && !items.nullable
                        && let Some(default) = &items.default
                    {
                        *found = default.clone();
                    }
                    fill(items, found);
                }
            }
        }
        _ => {}
    }
}
