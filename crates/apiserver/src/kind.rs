//! A served kind and the registry that finds it by path. Data only: no objects, no requests.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{schema::Schema, table::Column};

/// What identifies the place where objects are kept: all versions of a kind share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    /// API group, empty for the core group.
    pub group: String,
    /// Plural, lower-case resource name.
    pub plural: String,
}

impl ResourceId {
    /// `group`, `plural`.
    pub fn new(group: &str, plural: &str) -> Self {
        Self {
            group: group.into(),
            plural: plural.into(),
        }
    }
}

impl std::fmt::Display for ResourceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

/// Where the `scale` subresource finds its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    /// JSON path of the wanted count.
    pub(crate) spec_replicas: String,
    /// JSON path of the observed count.
    pub(crate) status_replicas: String,
    /// JSON path of the selector, when there is one.
    pub(crate) label_selector: Option<String>,
}

/// How objects look through this kind compared to how they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// As stored.
    Stored,
    /// As stored, but for `apiVersion`.
    OtherVersion,
    /// Core v1 events shown as `events.k8s.io/v1`.
    EventsV1,
}

/// One served version of one kind.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    /// API group, empty for the core group.
    pub(crate) group: String,
    /// Version (`v1`).
    pub(crate) version: String,
    /// Kind (`Pod`).
    pub(crate) kind: String,
    /// Plural (`pods`).
    pub(crate) plural: String,
    /// Singular (`pod`).
    pub(crate) singular: String,
    /// Short names (`po`).
    pub(crate) short_names: Vec<String>,
    /// Categories (`all`).
    pub(crate) categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub(crate) namespaced: bool,
    /// Whether there is a `status` subresource.
    pub(crate) status: bool,
    /// The `scale` subresource, when there is one.
    pub(crate) scale: Option<ScalePaths>,
    /// Whether the server counts `metadata.generation`.
    pub(crate) generation: bool,
    /// Where objects are kept.
    pub(crate) resource: ResourceId,
    /// `apiVersion` of stored objects.
    pub(crate) stored_api_version: String,
    /// How this version differs from the stored one.
    pub(crate) view: View,
    /// Schema of custom resources; built-in kinds take any field.
    pub(crate) schema: Option<Arc<Schema>>,
    /// Columns of Tables after Name; empty means Name and Age.
    pub(crate) columns: Vec<Column>,
    /// Field paths (`spec.x`) a custom resource allows in field selectors.
    pub(crate) selectable_fields: Vec<String>,
    /// Only POST is answered (reviews).
    pub(crate) create_only: bool,
    /// A deprecation warning of a CRD version.
    pub(crate) warning: Option<String>,
}

impl Kind {
    /// Whether this is a custom resource.
    pub(crate) fn is_custom(&self) -> bool {
        self.schema.is_some()
    }

    /// `group/version` or `version`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `plural.group` or `plural`, as messages have it.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Kind of lists.
    pub(crate) fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// A stored object as this version shows it.
    pub(crate) fn present(&self, stored: &Arc<Value>) -> Arc<Value> {
        match self.view {
            View::Stored => Arc::clone(stored),
            View::OtherVersion => {
                let mut shown = (**stored).clone();
                shown["apiVersion"] = Value::String(self.api_version());
                Arc::new(shown)
            }
            View::EventsV1 => Arc::new(crate::event_view::to_events_v1(stored)),
        }
    }

    /// An object of this version as it will be stored.
    pub(crate) fn absorb(&self, mut sent: Value) -> Value {
        match self.view {
            View::Stored => sent,
            View::OtherVersion => {
                sent["apiVersion"] = Value::String(self.stored_api_version.clone());
                sent
            }
            View::EventsV1 => crate::event_view::to_core(&sent),
        }
    }
}

/// All served kinds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registry {
    kinds: BTreeMap<(String, String, String), Arc<Kind>>,
    /// Counts changes, so that derived documents can be cached.
    pub(crate) revision: u64,
}

impl Registry {
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.kinds
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
            .cloned()
    }

    /// All served kinds, ordered by group, version, plural.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }

    pub(crate) fn add(&mut self, kind: Kind) {
        self.revision += 1;
        self.kinds.insert(
            (kind.group.clone(), kind.version.clone(), kind.plural.clone()),
            Arc::new(kind),
        );
    }

    /// Stops serving every version of a resource.
    pub(crate) fn remove(&mut self, resource: &ResourceId) {
        self.revision += 1;
        self.kinds.retain(|_, kind| kind.resource != *resource);
    }

    /// The kind under which a resource is stored, any version.
    pub(crate) fn of_resource(&self, resource: &ResourceId) -> Option<Arc<Kind>> {
        let mut served = self.kinds.values().filter(|kind| kind.resource == *resource);
        let first = served.next()?;
        if first.view == View::Stored {
            return Some(Arc::clone(first));
        }
        Some(Arc::clone(
            served.find(|kind| kind.view == View::Stored).unwrap_or(first),
        ))
    }
}
