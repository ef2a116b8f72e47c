//! Pruning: what a schema does not name is not kept.

use serde_json::Value;

use super::node::{Additional, Node};

const ALWAYS: [&str; 3] = ["apiVersion", "kind", "metadata"];

pub(super) fn prune_root(root: &Node, object: &mut Value, dropped: &mut Vec<String>) {
    prune(root, object, true, "", dropped);
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn prune(node: &Node, value: &mut Value, resource: bool, path: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if !node.preserve_unknown && matches!(node.additional, Additional::None) {
                map.retain(|name, _| {
                    let known = node.properties.contains_key(name) || (resource && ALWAYS.contains(&name.as_str()));
                    if !known {
                        dropped.push(joined(path, name));
                    }
                    known
                });
            }
            for (name, found) in map.iter_mut() {
                if resource && ALWAYS.contains(&name.as_str()) {
                    continue;
                }
                if let Some(child) = node.properties.get(name) {
                    prune(child, found, child.embedded, &joined(path, name), dropped);
                } else if let Additional::Of(child) = &node.additional {
                    prune(child, found, child.embedded, &joined(path, name), dropped);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &node.items {
                for (index, found) in list.iter_mut().enumerate() {
                    prune(items, found, items.embedded, &format!("{path}[{index}]"), dropped);
                }
            }
        }
        _ => {}
    }
}
