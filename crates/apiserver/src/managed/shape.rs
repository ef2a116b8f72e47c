//! How lists and maps are merged: from the CRD's schema, or from a table for built-in kinds.

use crate::{
    kind::Kind,
    schema::{Additional, ListType, Node},
};

/// How the entries of a list are distinguished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListShape {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Where in an object we are, as far as merging is concerned.
#[derive(Debug, Clone)]
pub(crate) enum Shape<'a> {
    /// The root of an object.
    Root { schema: Option<&'a Node> },
    /// Somewhere in a custom resource.
    Schema(Option<&'a Node>),
    /// Somewhere in a built-in object or in metadata: parent field, field.
    Builtin(String, String),
}

/// Lists of built-in objects: parent field, field, keys. `*` is any parent.
const LISTS: &[(&str, &str, &[&str])] = &[
    ("metadata", "ownerReferences", &["uid"]),
    ("*", "containers", &["name"]),
    ("*", "initContainers", &["name"]),
    ("*", "ephemeralContainers", &["name"]),
    ("*", "volumes", &["name"]),
    ("*", "env", &["name"]),
    ("*", "volumeMounts", &["mountPath"]),
    ("*", "volumeDevices", &["devicePath"]),
    ("*", "imagePullSecrets", &["name"]),
    ("*", "hostAliases", &["ip"]),
    ("*", "topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("*", "conditions", &["type"]),
    ("status", "addresses", &["type"]),
    ("*", "secrets", &["name"]),
    ("containers", "ports", &["containerPort", "protocol"]),
    ("initContainers", "ports", &["containerPort", "protocol"]),
    ("spec", "ports", &["port", "protocol"]),
    ("*", "webhooks", &["name"]),
    ("*", "podIPs", &["ip"]),
    ("*", "resourceClaims", &["name"]),
];

/// Lists of scalars that are sets: parent field, field.
const SETS: &[(&str, &str)] = &[("metadata", "finalizers"), ("spec", "finalizers"), ("spec", "podCIDRs")];

/// Maps that are one value.
const ATOMIC_MAPS: &[(&str, &str)] = &[
    ("spec", "selector"),
    ("*", "nodeSelectorTerms"),
    ("*", "valueFrom"),
    ("*", "fieldRef"),
    ("*", "secretKeyRef"),
    ("*", "configMapKeyRef"),
    ("*", "labelSelector"),
    ("*", "involvedObject"),
    ("*", "roleRef"),
];

fn listed<'t, T>(
    table: &'t [T],
    parent: &str,
    field: &str,
    at: impl Fn(&T) -> (&'static str, &'static str),
) -> Option<&'t T> {
    table.iter().find(|row| {
        let (wanted_parent, wanted) = at(row);
        wanted == field && (wanted_parent == "*" || wanted_parent == parent)
    })
}

/// The merge key of a list of a built-in object in a strategic merge patch: one field, or none for atomic lists.
pub(crate) fn merge_key(parent: &str, field: &str) -> Option<&'static str> {
    listed(LISTS, parent, field, |row| (row.0, row.1)).and_then(|row| row.2.first().copied())
}

impl<'a> Shape<'a> {
    pub(crate) fn of(kind: &'a Kind) -> Self {
        Self::Root {
            schema: kind.schema.as_deref().map(|schema| &schema.root),
        }
    }

    /// The shape of a field of this map.
    pub(crate) fn field(&self, name: &str) -> Self {
        match self {
            Self::Root { .. } if name == "metadata" => Self::Builtin(String::new(), name.into()),
            Self::Root { schema: Some(node) } => Self::Schema(node.child(name)),
            Self::Root { schema: None } => Self::Builtin(String::new(), name.into()),
            Self::Schema(node) => Self::Schema(node.and_then(|node| node.child(name))),
            Self::Builtin(_, field) => Self::Builtin(field.clone(), name.into()),
        }
    }

    /// The shape of an entry of this list.
    pub(crate) fn entry(&self) -> Self {
        match self {
            Self::Root { .. } => Self::Schema(None),
            Self::Schema(node) => Self::Schema(node.and_then(|node| node.items.as_deref())),
            Self::Builtin(parent, field) => Self::Builtin(parent.clone(), field.clone()),
        }
    }

    pub(crate) fn list(&self) -> ListShape {
        match self {
            Self::Root { .. } => ListShape::Atomic,
            Self::Schema(node) => match node.and_then(|node| node.list_type.as_ref()) {
                Some(ListType::Set) => ListShape::Set,
                Some(ListType::Map(keys)) => ListShape::Map(keys.clone()),
                Some(ListType::Atomic) | None => ListShape::Atomic,
            },
            Self::Builtin(parent, field) => {
                if let Some(row) = listed(LISTS, parent, field, |row| (row.0, row.1)) {
                    return ListShape::Map(row.2.iter().map(|key| (*key).to_owned()).collect());
                }
                match listed(SETS, parent, field, |row| *row) {
                    Some(_) => ListShape::Set,
                    None => ListShape::Atomic,
                }
            }
        }
    }

    pub(crate) fn is_atomic_map(&self) -> bool {
        match self {
            Self::Root { .. } => false,
            Self::Schema(Some(node)) => {
                node.atomic_map
                    // Without any schema below, fields are still tracked one by one.
                    && (!node.properties.is_empty() || !matches!(node.additional, Additional::None))
            }
            Self::Schema(None) => false,
            Self::Builtin(parent, field) => listed(ATOMIC_MAPS, parent, field, |row| *row).is_some(),
        }
    }
}
